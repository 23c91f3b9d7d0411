// Exchange: the collectives in which ranks send each other boxes of their own: windows taken from and added to the
// blocks of neighbours, whole tensors passed on, and boxes that the model names. What a rank sends and gets depends on
// its place in the group alone.
#pragma once

#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/layout/box.h"
#include "trireme/op/op_def.h"

namespace trireme {

bool is_exchange(const OpDef& op);

struct Exchange {
  struct Part {
    int64_t peer = 0;  // place in the group
    size_t tensor = 0;
    Box box;  // of the operand that is sent, or of the result that is filled
  };
  std::vector<Part> sends;     // by peer
  std::vector<Part> receipts;  // by peer
  // What the rank itself has of its result: part i of `kept_from` goes to part i of `kept_to`.
  std::vector<Part> kept_from, kept_to;
  bool adds = false;  // parts of a result overlap and are added, in the order of the peers
  double fill = 0;    // where nothing comes
};
Exchange exchange_of(const OpDef& op, const TypeArgs& types, int64_t place);

// Bytes that the rank at a place sends; and of packing space, the most that any place needs.
int64_t exchange_bytes(const OpDef& op, const TypeArgs& types, int64_t place);
int64_t exchange_scratch(const OpDef& op, const TypeArgs& types);

class BoundExchange {
 public:
  // `group` may be null: this rank takes no part, and nothing comes. Messages carry `tag`.
  BoundExchange(Exchange exchange, std::vector<View> in, std::vector<View> out, std::span<std::byte> scratch,
                comm::Group* group, int tag);
  void start();
  void wait();
  std::span<const comm::Work> works() const { return works_; }

 private:
  View packed(const Exchange::Part& part, const std::vector<View>& tensors);
  void put(const View& from, const Exchange::Part& to);

  Exchange exchange_;
  std::vector<View> in_, out_;
  std::span<std::byte> scratch_;
  size_t used_ = 0;  // of scratch_
  comm::Group* group_;
  int tag_;
  std::vector<View> sent_, received_, kept_;
  std::vector<char> filled_;  // of results: whether what comes covers them
  std::vector<comm::Work> works_;
};

}  // namespace trireme
