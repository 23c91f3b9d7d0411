// The exchanges of a plan (op/exchange.h), run on a group: packs what is sent, and puts what arrived in its place.
#pragma once

#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/layout/box.h"
#include "trireme/op/op_def.h"

namespace trireme {

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
