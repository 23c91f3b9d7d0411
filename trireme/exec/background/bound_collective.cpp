#include "trireme/exec/background/bound_collective.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/exec/plan/communication_bytes.h"
#include "trireme/layout/box.h"
#include "trireme/op/packing.h"

namespace trireme {
namespace {

// Between a tensor and its `parts` pieces along `dim`, each dense, which begin `slot` bytes apart.
void pack(const View& whole, std::byte* pieces, int64_t slot, int dim, int64_t parts, bool unpack) {
  const Box box = Box::whole(whole.type.shape);
  TensorType piece = whole.type;
  piece.shape[dim] /= parts;
  for (int64_t i = 0; i < parts; ++i) {
    Box part = Box::whole(piece.shape);
    part.start[dim] = i * piece.shape[dim];
    const View dense{pieces + i * slot, piece};
    if (unpack) {
      copy_region(dense, part, whole, box, part);
    } else {
      copy_region(whole, box, dense, part, part);
    }
  }
}

comm::Reduce comm_reduce(Reduction reduction) {
  if (reduction == Reduction::kMax) return comm::Reduce::kMax;
  return reduction == Reduction::kMin ? comm::Reduce::kMin : comm::Reduce::kSum;
}

View flat(std::byte* data, DType dtype, int64_t elements) {
  return {data, {dtype, {elements}}};
}

}  // namespace

BoundCollective::BoundCollective(const OpDef& op, const Attrs& attrs, std::vector<View> in, std::vector<View> out,
                                 std::span<std::byte> scratch, const Ranks& ranks)
    : work_(op.collective->work), in_(std::move(in)), out_(std::move(out)), scratch_(scratch), group_(ranks.group) {
  if (work_ == GroupWork::kExchange) {
    std::vector<TensorType> in_types, out_types;
    for (const View& view : in_) in_types.push_back(view.type);
    for (const View& view : out_) out_types.push_back(view.type);
    Exchange exchange;
    if (ranks.place >= 0) exchange = op.collective->exchange({in_types, out_types, attrs}, ranks.place);
    exchange_ = std::make_unique<BoundExchange>(std::move(exchange), in_, out_, scratch_, group_, ranks.tag);
    return;
  }
  call_ = op.collective->call(attrs);
  in_slots_ = packs_slots(call_, in_.size());
  if (work_ != GroupWork::kAllReduce) {
    works_.reserve(out_.size());
    return;
  }
  std::byte* first = out_[0].data;
  for (const View& view : out_) first = std::min(first, view.data);
  std::vector<Run> runs;
  for (const View& view : out_) runs.push_back({view.data - first, view.type.dtype, view.elements()});
  for (const Run& run : joined(std::move(runs))) runs_.push_back(flat(first + run.offset, run.dtype, run.elements));
  works_.reserve(runs_.size());
}

// The operand as the group sends it: pieces one after the other in the front of the scratch, where they do not lie so
// already.
View BoundCollective::packed_operand() const {
  if (call_.parted < 0 || scratch_.empty()) return in_[0];
  return flat(scratch_.data(), in_[0].type.dtype, in_[0].elements());
}

// The same of the result, after the packed operand.
View BoundCollective::packed_result() const {
  if (call_.joined < 0 || scratch_.empty()) return out_[0];
  const int64_t begin = call_.parted < 0 ? 0 : align_buffer(in_[0].bytes());
  return flat(scratch_.data() + begin, out_[0].type.dtype, out_[0].elements());
}

// The bytes of one rank's pieces of all operands of a gather, or of all results of a scatter.
int64_t BoundCollective::slot_bytes() const {
  int64_t bytes = 0;
  for (const View& view : call_.joined >= 0 ? in_ : out_) bytes += view.bytes();
  return bytes;
}

// Gathers: this rank's slot is filled, and all slots are taken apart at the end. Scatters: all slots are filled, and
// what is in this rank's one at the end are its results.
void BoundCollective::start_in_slots() {
  const int64_t slot = slot_bytes();
  std::byte* const own = scratch_.data() + group_->rank() * slot;
  const DType dtype = in_[0].type.dtype;
  const View all = flat(scratch_.data(), dtype, group_->size() * slot / size_of(dtype));
  const View mine = flat(own, dtype, slot / size_of(dtype));
  int64_t offset = 0;  // in a slot
  for (size_t i = 0; i < in_.size(); ++i) {
    if (call_.joined >= 0) {
      std::memcpy(own + offset, in_[i].data, static_cast<size_t>(in_[i].bytes()));
      offset += in_[i].bytes();
    } else {
      pack(in_[i], scratch_.data() + offset, slot, call_.parted, group_->size(), false);
      offset += out_[i].bytes();
    }
  }
  works_.push_back(call_.joined >= 0 ? group_->all_gather(mine, all)
                                     : group_->reduce_scatter(all, mine, comm_reduce(call_.reduction)));
}

void BoundCollective::take_out_of_slots() {
  const int64_t slot = slot_bytes();
  const std::byte* const own = scratch_.data() + group_->rank() * slot;
  int64_t offset = 0;
  for (size_t i = 0; i < out_.size(); ++i) {
    if (call_.joined >= 0) {
      pack(out_[i], scratch_.data() + offset, slot, call_.joined, group_->size(), true);
      offset += in_[i].bytes();
    } else {
      std::memcpy(out_[i].data, own + offset, static_cast<size_t>(out_[i].bytes()));
      offset += out_[i].bytes();
    }
  }
}

// What a rank has that is alone, or outside all groups, is its result.
void BoundCollective::keep() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (in_[i].data != out_[i].data)
      copy_region(in_[i], Box::whole(in_[i].type.shape), out_[i], Box::whole(out_[i].type.shape),
                  Box::whole(in_[i].type.shape));
  }
}

void BoundCollective::start() {
  if (exchange_) {
    exchange_->start();
    started_ = true;
    return;
  }
  if (!group_) return keep();
  works_.clear();
  started_ = true;
  if (work_ == GroupWork::kAllReduce) return start_all_reduce();
  if (work_ == GroupWork::kBroadcast) return start_broadcast();
  if (in_slots_) return start_in_slots();
  const View sent = packed_operand();
  const View come = packed_result();
  if (sent.data != in_[0].data)
    pack(in_[0], sent.data, in_[0].bytes() / group_->size(), call_.parted, group_->size(), false);
  if (work_ == GroupWork::kAllGather) {
    works_.push_back(group_->all_gather(sent, come));
  } else if (work_ == GroupWork::kReduceScatter) {
    works_.push_back(group_->reduce_scatter(sent, come, comm_reduce(call_.reduction)));
  } else if (work_ == GroupWork::kAllToAll) {
    works_.push_back(group_->all_to_all(sent, come));
  } else if (work_ == GroupWork::kRingShift) {
    works_.push_back(group_->ring_shift(sent, come, static_cast<int>(call_.shift)));
  } else {
    invariant(false, "a collective that no group does (work {})", static_cast<int>(work_));
  }
}

void BoundCollective::start_broadcast() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (out_[i].data != in_[i].data) {
      std::memcpy(out_[i].data, in_[i].data, static_cast<size_t>(in_[i].bytes()));
    }
    works_.push_back(group_->broadcast(out_[i], static_cast<int>(call_.root)));
  }
}

void BoundCollective::start_all_reduce() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (in_[i].data != out_[i].data) {
      std::memcpy(out_[i].data, in_[i].data, static_cast<size_t>(in_[i].bytes()));
    }
  }
  for (const View& run : runs_) works_.push_back(group_->all_reduce(run, comm_reduce(call_.reduction)));
}

void BoundCollective::wait() {
  if (!started_) return;
  started_ = false;
  if (exchange_) return exchange_->wait();
  for (comm::Work& work : works_) work.wait();
  if (in_slots_) return take_out_of_slots();
  if (call_.joined < 0 || scratch_.empty()) return;
  pack(out_[0], packed_result().data, out_[0].bytes() / group_->size(), call_.joined, group_->size(), true);
}

std::chrono::steady_clock::time_point BoundCollective::ended() const {
  std::chrono::steady_clock::time_point last;
  const std::span<const comm::Work> works = exchange_ ? exchange_->works() : std::span<const comm::Work>(works_);
  for (const comm::Work& work : works) last = std::max(last, work.ended());
  return last;
}

}  // namespace trireme
