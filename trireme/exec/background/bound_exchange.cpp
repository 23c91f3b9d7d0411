#include "trireme/exec/background/bound_exchange.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/reduce.h"
#include "trireme/exec/memory/memory_plan.h"

namespace trireme {
namespace {

using Part = Exchange::Part;

// to[region] += from, which holds the region alone.
void add_region(const View& from, const View& to, const Box& region) {
  const View before = to;
  const Box whole = Box::whole(to.type.shape);
  each_run(region, whole, region, [&](int64_t from_at, int64_t to_at, int64_t elements) {
    const int64_t item = size_of(from.type.dtype);
    const std::byte* sources[] = {before.data + to_at * item, from.data + from_at * item};
    std::byte* outs[] = {to.data + to_at * item};
    comm::reduce_in_tree(comm::Reduce::kSum, from.type.dtype, sources, outs, elements);
  });
}

}  // namespace

BoundExchange::BoundExchange(Exchange exchange, std::vector<View> in, std::vector<View> out,
                             std::span<std::byte> scratch, comm::Group* group, int tag)
    : exchange_(std::move(exchange)),
      in_(std::move(in)),
      out_(std::move(out)),
      scratch_(scratch),
      group_(group),
      tag_(tag) {
  for (const Part& part : exchange_.sends) sent_.push_back(packed(part, in_));
  for (const Part& part : exchange_.receipts) received_.push_back(packed(part, out_));
  for (const Part& part : exchange_.kept_from) kept_.push_back(packed(part, in_));
  works_.reserve(sent_.size() + received_.size());
  for (size_t i = 0; i < out_.size(); ++i) {
    int64_t elements = 0;
    for (const std::vector<Part>* parts : {&exchange_.receipts, &exchange_.kept_to}) {
      for (const Part& part : *parts) elements += part.tensor == i ? part.box.elements() : 0;
    }
    filled_.push_back(!exchange_.adds && elements == out_[i].elements() ? 1 : 0);
  }
}

// Room for the part alone.
View BoundExchange::packed(const Part& part, const std::vector<View>& tensors) {
  const View out{scratch_.data() + used_, {tensors[part.tensor].type.dtype, part.box.size}};
  used_ += static_cast<size_t>(align_buffer(out.bytes()));
  return out;
}

void BoundExchange::start() {
  works_.clear();
  for (size_t i = 0; i < received_.size(); ++i) {
    works_.push_back(group_->recv(received_[i], static_cast<int>(exchange_.receipts[i].peer), tag_));
  }
  const auto pack = [&](const Part& part, const View& to) {
    const View& from = in_[part.tensor];
    copy_region(from, Box::whole(from.type.shape), to, part.box, part.box);
  };
  for (size_t i = 0; i < sent_.size(); ++i) {
    pack(exchange_.sends[i], sent_[i]);
    works_.push_back(group_->send(sent_[i], static_cast<int>(exchange_.sends[i].peer), tag_));
  }
  for (size_t i = 0; i < kept_.size(); ++i) pack(exchange_.kept_from[i], kept_[i]);
}

void BoundExchange::put(const View& from, const Part& to) {
  const View& out = out_[to.tensor];
  if (exchange_.adds) return add_region(from, out, to.box);
  copy_region(from, to.box, out, Box::whole(out.type.shape), to.box);
}

void BoundExchange::wait() {
  for (comm::Work& work : works_) work.wait();
  for (size_t i = 0; i < out_.size(); ++i) {
    if (filled_[i] == 0) fill(out_[i], exchange_.fill);
  }
  const auto first_after = [&](int64_t place) {
    return std::find_if(exchange_.receipts.begin(), exchange_.receipts.end(),
                        [&](const Part& p) { return p.peer > place; }) -
           exchange_.receipts.begin();
  };
  // In the order of the peers, this rank among them.
  const auto own = static_cast<size_t>(exchange_.kept_to.empty() ? 0 : first_after(exchange_.kept_to[0].peer));
  for (size_t i = 0; i < own; ++i) put(received_[i], exchange_.receipts[i]);
  for (size_t i = 0; i < kept_.size(); ++i) put(kept_[i], exchange_.kept_to[i]);
  for (size_t i = own; i < received_.size(); ++i) put(received_[i], exchange_.receipts[i]);
}

}  // namespace trireme
