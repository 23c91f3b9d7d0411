#include "trireme/comm/engine/group.h"

#include <algorithm>
#include <cstring>

#include "trireme/comm/reduce.h"

namespace trireme::comm {
namespace {

constexpr int kTagEnd = 1 << 30;

bool overlap(const View& a, const View& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

}  // namespace

int Group::world_rank_of(int group_rank) const {
  require(group_rank >= 0 && group_rank < size(), "group {}: it has no rank {}; its ranks are 0 to {}", name(),
          group_rank, size() - 1);
  return world_ranks()[static_cast<size_t>(group_rank)];
}

int Group::group_rank_of(int world_rank) const {
  const std::vector<int>& members = world_ranks();
  const auto at = std::find(members.begin(), members.end(), world_rank);
  require(at != members.end(), "group {}: rank {} of the world is not a member of it", name(), world_rank);
  return static_cast<int>(at - members.begin());
}

int64_t slice_begin(int64_t count, int size, int i) {
  const int64_t longer = count % size;  // the first slices have one element more
  return i * (count / size) + std::min<int64_t>(i, longer);
}

std::shared_ptr<Operation> GroupBase::operation(std::string_view kind, const View* view) {
  auto operation = std::allocate_shared<Operation>(std::pmr::polymorphic_allocator<Operation>(&engine_.pool()));
  operation->engine = &engine_;
  operation->group = this;
  operation->turns = &turns_;
  operation->kind = kind;
  if (view != nullptr) {
    view->require_host();
    operation->bytes = view->bytes();
    operation->dtype = view->type.dtype;
  }
  return operation;
}

void GroupBase::check_reducible(std::string_view kind, DType dtype) const {
  require(dtype != DType::kBool, "{} (group {}): bool elements cannot be reduced; cast them to u8 or i32", kind,
          name());
  if (dtype == DType::kF16) {
    fail(ErrorKind::kUnsupported, "{} (group {}): f16 elements cannot be reduced; cast them to f32 or bf16", kind,
         name());
  }
}

void GroupBase::check_whole_and_piece(std::string_view kind, const View& whole, const View& piece,
                                      std::string_view whole_name, std::string_view piece_name) const {
  require(whole.type.dtype == piece.type.dtype, "{} (group {}): 'in' and 'out' differ in type: {} is {}, {} is {}",
          kind, name(), whole_name, to_string(whole.type), piece_name, to_string(piece.type));
  require(whole.elements() == piece.elements() * size(),
          "{} (group {} of {}): '{}' {} must hold {} times as many elements as '{}' {}", kind, name(), size(),
          whole_name, to_string(whole.type), size(), piece_name, to_string(piece.type));
  require(!overlap(whole, piece) || whole.data + rank() * piece.bytes() == piece.data,
          "{} (group {}): '{}' and '{}' overlap; '{}' may only lie inside if it is exactly this rank's piece", kind,
          name(), whole_name, piece_name, piece_name);
}

// Bytes counted, n those of the whole and p the members: what one rank hands to the others in an
// algorithm that sends no byte twice. Whatever the transport, so that counts can be compared with a
// plan.
Work GroupBase::all_reduce(View inout, Reduce op) {
  check_reducible("all_reduce", inout.type.dtype);
  engine_.count("all_reduce", 2 * inout.bytes() * (size() - 1) / size());  // 2 n (p - 1) / p
  if (size() == 1) return {};
  auto started = operation("all_reduce", &inout);
  started->task = run_all_reduce(*started, inout, op);
  return engine_.start(started);
}

Work GroupBase::all_gather(View in, View out) {
  check_whole_and_piece("all_gather", out, in, "out", "in");
  engine_.count("all_gather", in.bytes() * (size() - 1));  // n (p - 1) / p
  if (size() == 1) {
    std::memmove(out.data, in.data, static_cast<size_t>(in.bytes()));
    return {};
  }
  auto started = operation("all_gather", &out);
  started->task = run_all_gather(*started, in, out);
  return engine_.start(started);
}

Work GroupBase::reduce_scatter(View in, View out, Reduce op) {
  check_reducible("reduce_scatter", in.type.dtype);
  check_whole_and_piece("reduce_scatter", in, out, "in", "out");
  engine_.count("reduce_scatter", out.bytes() * (size() - 1));  // n (p - 1) / p
  if (size() == 1) {
    std::memmove(out.data, in.data, static_cast<size_t>(in.bytes()));
    return {};
  }
  auto started = operation("reduce_scatter", &in);
  started->task = run_reduce_scatter(*started, in, out, op);
  return engine_.start(started);
}

Work GroupBase::all_to_all(View in, View out) {
  require(in.type.dtype == out.type.dtype && in.elements() == out.elements(),
          "all_to_all (group {}): 'in' {} and 'out' {} must have the same type and number of elements", name(),
          to_string(in.type), to_string(out.type));
  require(in.elements() % size() == 0, "all_to_all (group {} of {}): 'in' {} cannot be cut into {} equal pieces",
          name(), size(), to_string(in.type), size());
  require(!overlap(in, out), "all_to_all (group {}): 'in' and 'out' overlap; they must not share memory", name());
  engine_.count("all_to_all", in.bytes() / size() * (size() - 1));  // n (p - 1) / p
  if (size() == 1) {
    std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
    return {};
  }
  auto started = operation("all_to_all", &in);
  started->task = run_all_to_all(*started, in, out);
  return engine_.start(started);
}

Work GroupBase::ring_shift(View in, View out, int by) {
  require(in.type == out.type, "ring_shift (group {}): 'in' {} and 'out' {} must have the same type and shape", name(),
          to_string(in.type), to_string(out.type));
  require(by > -size() && by < size(), "ring_shift (group {} of {}): a shift by {} places; use {} to {}", name(),
          size(), by, 1 - size(), size() - 1);
  require(!overlap(in, out), "ring_shift (group {}): 'in' and 'out' overlap; they must not share memory", name());
  by = (by + size()) % size();
  if (by == 0) {
    engine_.count("ring_shift", 0);
    std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
    return {};
  }
  engine_.count("ring_shift", in.bytes());  // n
  auto started = operation("ring_shift", &in);
  started->task = run_ring_shift(*started, in, out, by);
  return engine_.start(started);
}

Work GroupBase::broadcast(View inout, int root) {
  require(root >= 0 && root < size(), "broadcast (group {}): root {} is not a rank of this group of {}", name(), root,
          size());
  engine_.count("broadcast", rank() == root ? inout.bytes() * (size() - 1) : 0);  // root: n (p - 1)
  if (size() == 1) return {};
  auto started = operation("broadcast", &inout);
  started->task = run_broadcast(*started, inout, root);
  return engine_.start(started);
}

Work GroupBase::barrier() {
  engine_.count("barrier", 0);
  if (size() == 1) return {};
  auto started = operation("barrier", nullptr);
  started->task = run_barrier(*started);
  return engine_.start(started);
}

Work GroupBase::message(std::string_view kind, View view, int peer, int tag) {
  require(peer >= 0 && peer < size(), "{} (group {}): peer {} is not a rank of this group of {}", kind, name(), peer,
          size());
  require(tag >= 0 && tag < kTagEnd, "{} (group {}): tag {} is out of range; it must be in [0, {})", kind, name(), tag,
          kTagEnd);
  auto started = operation(kind, &view);
  started->ordered = false;
  started->peer = peer;
  started->tag = tag;
  started->task = run_message(*started, view, kind == "send");
  return engine_.start(started);
}

Work GroupBase::send(View from, int peer, int tag) {
  Work work = message("send", from, peer, tag);
  engine_.count("send", from.bytes());
  return work;
}

Work GroupBase::recv(View to, int peer, int tag) {
  return message("recv", to, peer, tag);
}

}  // namespace trireme::comm
