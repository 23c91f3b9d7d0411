#include "trireme/exec/collective.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/seeded_defect.h"
#include "trireme/exec/memory_plan.h"
#include "trireme/layout/box.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

// Whether the pieces along `dim` are runs of bytes one after the other.
bool contiguous_along(const Shape& shape, int64_t dim) {
  for (int64_t d = 0; d < dim; ++d) {
    if (shape[static_cast<int>(d)] != 1) return false;
  }
  return true;
}

// Between a tensor and the row of its `parts` pieces along `dim`, each dense.
void pack(const View& whole, std::byte* pieces, int dim, int64_t parts, bool unpack) {
  Box box = Box::whole(whole.type.shape);
  TensorType piece = whole.type;
  piece.shape[dim] /= parts;
  for (int64_t i = 0; i < parts; ++i) {
    Box part = Box::whole(piece.shape);
    const bool rotated = !unpack && seeded_defect("collective: each rank gets its neighbour's piece");
    part.start[dim] = (rotated ? (i + 1) % parts : i) * piece.shape[dim];
    const View dense{pieces + i * piece.bytes(), piece};
    if (unpack) {
      copy_region(dense, part, whole, box, part);
    } else {
      copy_region(whole, box, dense, part, part);
    }
  }
}

comm::Reduce reduce_of(const std::string& name) {
  if (name == "max") return comm::Reduce::kMax;
  if (seeded_defect("collective: sums are maxima")) return comm::Reduce::kMax;
  if (name == "min") return comm::Reduce::kMin;
  invariant(name == "sum", "no reduction '{}'", name);
  return comm::Reduce::kSum;
}

View flat(std::byte* data, DType dtype, int64_t elements) {
  return {data, {dtype, {elements}}};
}

}  // namespace

int64_t collective_scratch(const OpDef& op, const TypeArgs& types) {
  if (is_exchange(op)) return exchange_scratch(op, types);
  const auto& attrs = types.attrs.as<CollectiveAttrs>();
  if (op.name == "all_gather" && !contiguous_along(types.out[0].shape, attrs.dim)) return types.out[0].bytes();
  if (op.name == "reduce_scatter" && !contiguous_along(types.in[0].shape, attrs.dim)) return types.in[0].bytes();
  if (op.name == "all_to_all") return align_buffer(types.in[0].bytes()) * 2;
  return 0;
}

std::vector<Run> joined(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  std::vector<Run> out;
  for (const Run& run : runs) {
    if (!out.empty() && out.back().dtype == run.dtype && run.offset - out.back().end() < kBufferAlignment) {
      out.back().elements = (run.end() - out.back().offset) / size_of(run.dtype);
    } else {
      out.push_back(run);
    }
  }
  return out;
}

BoundCollective::BoundCollective(const OpDef& op, const Attrs& attrs, std::vector<View> in, std::vector<View> out,
                                 std::span<std::byte> scratch, const Ranks& ranks)
    : op_(&op), attrs_(attrs), in_(std::move(in)), out_(std::move(out)), scratch_(scratch), group_(ranks.group) {
  if (is_exchange(op)) {
    std::vector<TensorType> in_types, out_types;
    for (const View& view : in_) in_types.push_back(view.type);
    for (const View& view : out_) out_types.push_back(view.type);
    Exchange exchange;
    if (ranks.place >= 0) exchange = exchange_of(op, {in_types, out_types, attrs}, ranks.place);
    exchange_ = std::make_unique<BoundExchange>(std::move(exchange), in_, out_, scratch_, group_, ranks.tag);
    return;
  }
  reduce_ = reduce_of(attrs.as<CollectiveAttrs>().reduction);
  if (op.name != "all_reduce") {
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
  const auto& attrs = attrs_.as<CollectiveAttrs>();
  const auto dim = static_cast<int>(attrs.dim);
  const int64_t parts = group_->size();
  works_.clear();
  started_ = true;
  if (op_->name == "all_reduce") return start_all_reduce();
  const View& in = in_[0];
  const View& out = out_[0];
  std::byte* packed = scratch_.empty() ? nullptr : scratch_.data();
  if (op_->name == "all_gather") {
    works_.push_back(group_->all_gather(in, packed ? flat(packed, out.type.dtype, out.elements()) : out));
  } else if (op_->name == "reduce_scatter") {
    if (packed) pack(in, packed, dim, parts, false);
    works_.push_back(group_->reduce_scatter(packed ? flat(packed, in.type.dtype, in.elements()) : in, out, reduce_));
  } else if (op_->name == "all_to_all") {
    pack(in, packed, dim, parts, false);
    std::byte* arrived = packed + align_buffer(in.bytes());
    works_.push_back(
        group_->all_to_all(flat(packed, in.type.dtype, in.elements()), flat(arrived, out.type.dtype, out.elements())));
  } else if (op_->name == "ring_shift") {
    const int64_t by = seeded_defect("collective: pieces go around the other way") ? -attrs.shift : attrs.shift;
    works_.push_back(group_->ring_shift(in, out, static_cast<int>(by)));
  } else if (op_->name == "broadcast") {
    for (size_t i = 0; i < in_.size(); ++i) {
      if (out_[i].data != in_[i].data) {
        std::memcpy(out_[i].data, in_[i].data, static_cast<size_t>(in_[i].bytes()));
      }
      works_.push_back(group_->broadcast(out_[i], static_cast<int>(attrs.root)));
    }
  } else {
    invariant(false, "no collective '{}'", op_->name);
  }
}

void BoundCollective::start_all_reduce() {
  for (size_t i = 0; i < in_.size(); ++i) {
    if (seeded_defect("collective: all but the first of a bucket are stale") && i > 0) break;
    if (in_[i].data != out_[i].data) {
      std::memcpy(out_[i].data, in_[i].data, static_cast<size_t>(in_[i].bytes()));
    }
  }
  if (seeded_defect("collective: nothing is reduced")) return;
  for (const View& run : runs_) {
    works_.push_back(group_->all_reduce(run, reduce_));
    if (seeded_defect("collective: only the first run of a bucket is reduced")) return;
    if (seeded_defect("collective: sums are taken twice")) {
      works_.back().wait();
      works_.push_back(group_->all_reduce(run, reduce_));
    }
  }
}

void BoundCollective::wait() {
  if (!started_) return;
  started_ = false;
  if (exchange_) return exchange_->wait();
  for (comm::Work& work : works_) work.wait();
  if (scratch_.empty()) return;
  const auto& attrs = attrs_.as<CollectiveAttrs>();
  if (seeded_defect("collective: what arrived is not unpacked")) return;
  if (op_->name == "all_gather") {
    pack(out_[0], scratch_.data(), static_cast<int>(attrs.dim), group_->size(), true);
  } else if (op_->name == "all_to_all") {
    const int64_t arrived = seeded_defect("collective: what was sent is unpacked") ? 0 : align_buffer(in_[0].bytes());
    pack(out_[0], scratch_.data() + arrived, static_cast<int>(attrs.from_dim), group_->size(), true);
  }
}

std::chrono::steady_clock::time_point BoundCollective::ended() const {
  std::chrono::steady_clock::time_point last;
  const std::span<const comm::Work> works = exchange_ ? exchange_->works() : std::span<const comm::Work>(works_);
  for (const comm::Work& work : works) last = std::max(last, work.ended());
  return last;
}

void copy_part(const View& from, const View& to, int dim, int64_t index) {
  Box part = Box::whole(to.type.shape);
  part.start[dim] = index * to.type.shape[dim];
  copy_region(from, Box::whole(from.type.shape), to, part, part);
}

}  // namespace trireme
