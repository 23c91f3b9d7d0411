// The collectives of a plan, run on a group: packs operands whose pieces are not contiguous, starts the
// communication, and unpacks what arrived.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/background/background.h"
#include "trireme/exec/background/bound_exchange.h"
#include "trireme/mesh/mesh.h"
#include "trireme/op/op_def.h"

namespace trireme {

// One collective action of one rank, bound to its memory and group.
class BoundCollective : public Background {
 public:
  // Without a group this rank is alone in it, at place 0, or, at place -1, in none of the op's groups, and keeps what
  // it has. Messages between two ranks carry `tag`.
  struct Ranks {
    comm::Group* group = nullptr;
    int64_t place = -1;
    int tag = 0;
  };
  BoundCollective(const OpDef& op, const Attrs& attrs, std::vector<View> in, std::vector<View> out,
                  std::span<std::byte> scratch, const Ranks& ranks);
  void start() override;
  void wait() override;
  bool is_under_way() const override { return started_; }
  std::chrono::steady_clock::time_point ended() const override;

 private:
  void start_all_reduce();
  void start_broadcast();
  void start_in_slots();
  void take_out_of_slots();
  int64_t slot_bytes() const;
  void keep();

  View packed_operand() const;
  View packed_result() const;

  GroupWork work_;
  GroupCall call_;
  bool in_slots_ = false;  // several operands of a gather or scatter, which go as one (op/packing.h)
  std::vector<View> in_;
  std::vector<View> out_;
  std::span<std::byte> scratch_;
  comm::Group* group_;
  std::vector<View> runs_;  // all_reduce: results that lie side by side, as few runs of elements as possible
  std::unique_ptr<BoundExchange> exchange_;
  std::vector<comm::Work> works_;
  bool started_ = false;
};

}  // namespace trireme
