#include "trireme/comm/shm/shm_group.h"

#include <algorithm>
#include <cstring>

#include "trireme/base/bytes_text.h"
#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/copy.h"
#include "trireme/comm/reduce.h"

namespace trireme::comm {
namespace {

constexpr size_t kLine = 64;                 // bytes: members do not write to the same cache line
constexpr size_t kBreath = size_t{2} << 20;  // bytes worked on before other operations get a turn
constexpr std::array<std::string_view, 7> kKinds{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                                 "ring_shift", "broadcast",  "barrier"};

uint32_t index_of(std::string_view kind) {
  return static_cast<uint32_t>(std::find(kKinds.begin(), kKinds.end(), kind) - kKinds.begin());
}

// Like slice_begin, but slices begin at multiples of a cache line.
int64_t line_slice_begin(int64_t count, DType dtype, int size, int i) {
  const int64_t per_line = static_cast<int64_t>(kLine) / size_of(dtype);
  const int64_t lines = (count + per_line - 1) / per_line;
  return std::min(count, slice_begin(lines, size, i) * per_line);
}

}  // namespace

ShmGroup::ShmGroup(Engine& engine, Members members, ShmTransport& transport, int channel)
    : P2pGroup(engine, std::move(members), channel),
      transport_(transport),
      blocks_(transport.share(world_ranks(), channel, sizeof(Block))),
      targets_(static_cast<size_t>(size())) {}

void ShmGroup::publish() {
  block(rank()).phase.store(++published_);
  transport_.notify(world_ranks());
}

// Waits until every member has published as many steps as this one.
auto ShmGroup::everyone(Operation& operation) {
  const uint64_t target = published_;
  return Until(
      operation,
      [this, target] {
        for (int i = 0; i < size(); ++i) {
          if (block(i).phase.load() < target) return false;
        }
        return true;
      },
      [this, target](std::vector<int>& missing) {
        for (int i = 0; i < size(); ++i) {
          if (block(i).phase.load() < target) missing.push_back(world_rank(i));
        }
      });
}

// Every collective begins with a step in which each member says what it calls and where its operand
// lies, or gives the operand itself if it is small. There are two slots for the calls in turn: a
// member writes a slot again when it enters the call after the next, and then all have entered the
// next one, so all have read it.
void ShmGroup::enter(Operation& operation, const Call& call) {
  Slot& own = block(rank()).slots[operation.turn % 2];
  own.kind = index_of(operation.kind);
  own.dtype = static_cast<uint32_t>(operation.dtype);
  own.detail = call.detail;
  own.bytes = call.bytes;
  own.segment = -1;
  const auto place =
      call.bytes > call.in_slot ? transport_.locate(call.operand.data(), call.operand.size()) : std::nullopt;
  if (place) {
    own.segment = place->segment;
    own.offset = place->offset;
  } else if (call.bytes <= kSmall && !call.operand.empty()) {
    hand_over(own.payload, call.operand.data(), call.operand.size());
  }
  publish();
}

void ShmGroup::check_calls(const Operation& operation) const {
  const Slot& own = slot(operation, rank());
  for (int i = 0; i < size(); ++i) {
    const Slot& other = slot(operation, i);
    if (other.kind == own.kind && other.dtype == own.dtype && other.detail == own.detail && other.bytes == own.bytes) {
      continue;
    }
    const std::string_view kind = other.kind < kKinds.size() ? kKinds[other.kind] : "something unknown";
    fail(ErrorKind::kInvalidArgument,
         "{}: {} calls {} of {} {} (reduction or root {}), this rank has reduction or "
         "root {}; all "
         "members must make the same calls in the same order",
         describe(operation), operation.engine->name_of(world_rank(i)), kind,
         bytes_text(static_cast<double>(other.bytes)), to_string(static_cast<DType>(other.dtype)), other.detail,
         own.detail);
  }
}

bool ShmGroup::all_shared(const Operation& operation) const {
  for (int i = 0; i < size(); ++i) {
    if (slot(operation, i).segment < 0) return false;
  }
  return true;
}

bool ShmGroup::none_shared(const Operation& operation) const {
  for (int i = 0; i < size(); ++i) {
    if (slot(operation, i).segment >= 0) return false;
  }
  return true;
}

std::byte* ShmGroup::operand_of(const Operation& operation, int member, size_t bytes) const {
  const Slot& from = slot(operation, member);
  std::byte* const at = transport_.reach(world_rank(member), {from.segment, from.offset}, bytes);
  invariant(at != nullptr, "shm: {} bytes at {} of segment {} of rank {} do not exist", bytes, from.offset,
            from.segment, world_rank(member));
  return at;
}

std::span<const std::byte* const> ShmGroup::payloads(const Operation& operation) {
  for (int i = 0; i < size(); ++i) sources_[static_cast<size_t>(i)] = slot(operation, i).payload;
  return sources_;
}

Task ShmGroup::run_barrier(Operation& operation) {
  enter(operation, {});
  co_await everyone(operation);
  check_calls(operation);
}

Task ShmGroup::copy(Operation& operation, std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += kBreath) {
    if (begin > 0) co_await let_others_run(operation);
    const size_t part = std::min(kBreath, bytes - begin);
    copy_bytes(to + begin, from + begin, part, bytes);
    operation.done_bytes += static_cast<int64_t>(part);
  }
}

// An operand that some members have in shared memory and others do not: the former put it in their slots too.
Task ShmGroup::put_in_slot(Operation& operation, std::span<const std::byte> operand) {
  if (slot(operation, rank()).segment >= 0) {
    hand_over(block(rank()).slots[operation.turn % 2].payload, operand.data(), operand.size());
  }
  publish();
  co_await everyone(operation);
}

// Small: everyone reads all slots and reduces them itself. To write a slot past the cache takes longer than to read
// what lies in shared memory and to say so twice (4 KiB of two ranks: 1.7 us and 1.1), but for the smallest.
Task ShmGroup::run_all_reduce(Operation& operation, View inout, Reduce op) {
  const auto bytes = static_cast<uint64_t>(inout.bytes());
  enter(operation, {.detail = static_cast<uint32_t>(op), .bytes = bytes, .operand = inout.raw(), .in_slot = kTiny});
  co_await everyone(operation);
  check_calls(operation);
  if (bytes > kTiny && all_shared(operation)) {
    co_await reduce_in_place(operation, inout, op);
  } else if (bytes <= kSmall) {
    if (!none_shared(operation)) co_await put_in_slot(operation, inout.raw());
    reduce_in_tree(op, inout.type.dtype, payloads(operation), {&inout.data, 1}, inout.elements());
  } else if (size() == 2) {
    co_await reduce_as_pair(operation, inout, op);
  } else {
    co_await reduce_by_bounce(operation, inout, op);
  }
}

// Two members read all of each other's bytes, as many as if each reduced a half and read the other
// half of the result, but with one step for each round: a half of the bounce buffer is filled again
// when the other member has published the round after, so has read it.
Task ShmGroup::reduce_as_pair(Operation& operation, View inout, Reduce op) {
  const DType dtype = inout.type.dtype;
  const int64_t step = static_cast<int64_t>(kBounce) / size_of(dtype);
  const int peer = 1 - rank();
  for (int64_t begin = 0, round = 0; begin < inout.elements(); begin += step, ++round) {
    const int64_t count = std::min(step, inout.elements() - begin);
    std::byte* const data = inout.data + begin * size_of(dtype);
    hand_over(bounce(rank(), round), data, static_cast<size_t>(count * size_of(dtype)));
    publish();
    co_await everyone(operation);
    operation.done_bytes += count * size_of(dtype);
    const std::byte* sources[2];
    sources[rank()] = data;
    sources[peer] = bounce(peer, round);
    reduce_in_tree(op, dtype, sources, {&data, 1}, count);
  }
}

// Every member reduces its slice over all members, reading them where they lie, and writes the
// result into all of them: each byte is read once and written once per member, and nothing else
// moves.
Task ShmGroup::reduce_in_place(Operation& operation, View inout, Reduce op) {
  const DType dtype = inout.type.dtype;
  const int64_t end = line_slice_begin(inout.elements(), dtype, size(), rank() + 1);
  const int64_t step = static_cast<int64_t>(kBreath) / size_of(dtype) / size();
  int64_t begin = line_slice_begin(inout.elements(), dtype, size(), rank());
  operation.all_bytes = (end - begin) * size_of(dtype);
  for (; begin < end; begin += step) {
    for (int i = 0; i < size(); ++i) {
      targets_[static_cast<size_t>(i)] = operand_of(operation, i, inout.raw().size()) + begin * size_of(dtype);
    }
    std::copy(targets_.begin(), targets_.end(), sources_.begin());
    reduce_in_tree(op, dtype, sources_, targets_, std::min(step, end - begin));
    operation.done_bytes += std::min(step, end - begin) * size_of(dtype);
    if (begin + step < end) co_await let_others_run(operation);
  }
  publish();
  co_await everyone(operation);
}

// In rounds of what one half of the bounce buffer holds: copy in; reduce the own slice of the round
// over all members into the other half; copy the slices of the others out. A member copies in again
// when all have reduced, and reduces again when all have copied out, because it has seen them
// publish the step after that.
Task ShmGroup::reduce_by_bounce(Operation& operation, View inout, Reduce op) {
  const DType dtype = inout.type.dtype;
  const int64_t width = size_of(dtype);
  const int64_t step = static_cast<int64_t>(kBounce) / width;
  for (int64_t begin = 0; begin < inout.elements(); begin += step) {
    const int64_t count = std::min(step, inout.elements() - begin);
    std::byte* const data = inout.data + begin * width;
    hand_over(bounce(rank(), 0), data, static_cast<size_t>(count * width));
    publish();
    co_await everyone(operation);

    const auto from = [&](int i) { return line_slice_begin(count, dtype, size(), i) * width; };
    const auto length = [&](int i) { return static_cast<size_t>(from(i + 1) - from(i)); };
    for (int i = 0; i < size(); ++i) sources_[static_cast<size_t>(i)] = bounce(i, 0) + from(rank());
    std::byte* const own = data + from(rank());
    reduce_in_tree(op, dtype, sources_, {&own, 1}, static_cast<int64_t>(length(rank())) / width);
    hand_over(bounce(rank(), 1) + from(rank()), own, length(rank()));
    publish();
    co_await everyone(operation);

    for (int d = 1; d < size(); ++d) {
      const int i = (rank() + d) % size();
      copy_bytes(data + from(i), bounce(i, 1) + from(i), length(i), kBounce);
    }
    operation.done_bytes += count * width;
  }
}

// The pieces are read from `in` of each member, or from its place in `out` where only that is
// shared.
Task ShmGroup::run_all_gather(Operation& operation, View in, View out) {
  const auto piece = static_cast<size_t>(in.bytes());
  const auto place = [&](int i) { return out.data + static_cast<size_t>(i) * piece; };
  const bool in_place = place(rank()) == in.data;
  const bool from_out = piece > kSmall && !transport_.locate(in.data, piece);
  operation.all_bytes = in_place ? out.bytes() - in.bytes() : out.bytes();
  if (from_out && !in_place) co_await copy(operation, place(rank()), in.data, piece);
  enter(operation, {.bytes = piece, .operand = {from_out ? place(rank()) : in.data, piece}});
  co_await everyone(operation);
  check_calls(operation);
  if (piece <= kSmall) {
    for (int i = 0; i < size(); ++i) std::memcpy(place(i), slot(operation, i).payload, piece);
    co_return;
  }
  if (all_shared(operation)) {
    if (!from_out && !in_place) co_await copy(operation, place(rank()), in.data, piece);
    for (int d = 1; d < size(); ++d) {
      const int i = (rank() + d) % size();
      co_await copy(operation, place(i), operand_of(operation, i, piece), piece);
    }
    publish();
    co_await everyone(operation);
    co_return;
  }
  if (!from_out && !in_place) co_await copy(operation, place(rank()), in.data, piece);
  for (size_t begin = 0, round = 0; begin < piece; begin += kBounce, ++round) {
    const size_t bytes = std::min(kBounce, piece - begin);
    hand_over(bounce(rank(), static_cast<int64_t>(round)), in.data + begin, bytes);
    publish();
    co_await everyone(operation);
    for (int d = 1; d < size(); ++d) {
      const int i = (rank() + d) % size();
      copy_bytes(place(i) + begin, bounce(i, static_cast<int64_t>(round)), bytes, piece);
      operation.done_bytes += static_cast<int64_t>(bytes);
    }
  }
}

Task ShmGroup::run_reduce_scatter(Operation& operation, View in, View out, Reduce op) {
  const DType dtype = in.type.dtype;
  const int64_t piece = out.bytes();
  operation.all_bytes = piece;
  enter(operation,
        {.detail = static_cast<uint32_t>(op), .bytes = static_cast<uint64_t>(in.bytes()), .operand = in.raw()});
  co_await everyone(operation);
  check_calls(operation);
  const bool small = in.raw().size() <= kSmall;
  if (small || all_shared(operation)) {
    const int64_t step = static_cast<int64_t>(kBreath) / size_of(dtype) / size();
    for (int64_t begin = 0; begin < out.elements(); begin += step) {
      if (begin > 0) co_await let_others_run(operation);
      for (int i = 0; i < size(); ++i) {
        const std::byte* const from = small ? slot(operation, i).payload : operand_of(operation, i, in.raw().size());
        sources_[static_cast<size_t>(i)] = from + rank() * piece + begin * size_of(dtype);
      }
      std::byte* const to = out.data + begin * size_of(dtype);
      reduce_in_tree(op, dtype, sources_, {&to, 1}, std::min(step, out.elements() - begin));
      operation.done_bytes += std::min(step, out.elements() - begin) * size_of(dtype);
    }
    if (small) co_return;
    publish();
    co_await everyone(operation);
    co_return;
  }
  // In rounds: half of the bounce buffer holds the next part of the piece of every member.
  const int64_t part = static_cast<int64_t>(kBounce / static_cast<size_t>(size()) / kLine * kLine);
  for (int64_t begin = 0, round = 0; begin < piece; begin += part, ++round) {
    const int64_t bytes = std::min(part, piece - begin);
    for (int i = 0; i < size(); ++i) {
      hand_over(bounce(rank(), round) + i * part, in.data + i * piece + begin, static_cast<size_t>(bytes));
    }
    publish();
    co_await everyone(operation);
    for (int i = 0; i < size(); ++i) sources_[static_cast<size_t>(i)] = bounce(i, round) + rank() * part;
    std::byte* const to = out.data + begin;
    reduce_in_tree(op, dtype, sources_, {&to, 1}, bytes / size_of(dtype));
    operation.done_bytes += bytes;
  }
}

Task ShmGroup::run_all_to_all(Operation& operation, View in, View out) {
  const auto whole = static_cast<size_t>(in.bytes());
  const size_t piece = whole / static_cast<size_t>(size());
  const size_t own = static_cast<size_t>(rank()) * piece;
  const auto place = [&](int i) { return out.data + static_cast<size_t>(i) * piece; };
  enter(operation, {.bytes = whole, .operand = in.raw()});
  co_await everyone(operation);
  check_calls(operation);
  if (whole <= kSmall) {
    for (int i = 0; i < size(); ++i) std::memcpy(place(i), slot(operation, i).payload + own, piece);
    co_return;
  }
  if (all_shared(operation)) {
    for (int d = 0; d < size(); ++d) {
      const int i = (rank() + d) % size();
      co_await copy(operation, place(i), operand_of(operation, i, whole) + own, piece);
    }
    publish();
    co_await everyone(operation);
    co_return;
  }
  const size_t part = kBounce / static_cast<size_t>(size()) / kLine * kLine;
  for (size_t begin = 0, round = 0; begin < piece; begin += part, ++round) {
    const size_t bytes = std::min(part, piece - begin);
    for (size_t i = 0; i < static_cast<size_t>(size()); ++i) {
      hand_over(bounce(rank(), static_cast<int64_t>(round)) + i * part, in.data + i * piece + begin, bytes);
    }
    publish();
    co_await everyone(operation);
    for (int i = 0; i < size(); ++i) {
      copy_bytes(place(i) + begin, bounce(i, static_cast<int64_t>(round)) + static_cast<size_t>(rank()) * part, bytes,
                 whole);
      operation.done_bytes += static_cast<int64_t>(bytes);
    }
  }
}

// Every member reads the operand of the one `by` places before it.
Task ShmGroup::run_ring_shift(Operation& operation, View in, View out, int by) {
  const auto bytes = static_cast<size_t>(in.bytes());
  const int from = (rank() + size() - by) % size();
  enter(operation, {.detail = static_cast<uint32_t>(by), .bytes = bytes, .operand = in.raw()});
  co_await everyone(operation);
  check_calls(operation);
  if (bytes <= kSmall) {
    std::memcpy(out.data, slot(operation, from).payload, bytes);
    co_return;
  }
  if (all_shared(operation)) {
    co_await copy(operation, out.data, operand_of(operation, from, bytes), bytes);
    publish();
    co_await everyone(operation);
    co_return;
  }
  for (size_t begin = 0, round = 0; begin < bytes; begin += kBounce, ++round) {
    const size_t part = std::min(kBounce, bytes - begin);
    hand_over(bounce(rank(), static_cast<int64_t>(round)), in.data + begin, part);
    publish();
    co_await everyone(operation);
    copy_bytes(out.data + begin, bounce(from, static_cast<int64_t>(round)), part, bytes);
    operation.done_bytes += static_cast<int64_t>(part);
  }
}

Task ShmGroup::run_broadcast(Operation& operation, View inout, int root) {
  const auto bytes = static_cast<size_t>(inout.bytes());
  const bool is_root = rank() == root;
  Call call{.detail = static_cast<uint32_t>(root), .bytes = bytes, .operand = inout.raw()};
  if (!is_root) call.operand = {};
  enter(operation, call);
  co_await everyone(operation);
  check_calls(operation);
  if (bytes <= kSmall) {
    if (!is_root && bytes > 0) std::memcpy(inout.data, slot(operation, root).payload, bytes);
    co_return;
  }
  if (slot(operation, root).segment >= 0) {
    if (!is_root) co_await copy(operation, inout.data, operand_of(operation, root, bytes), bytes);
    publish();
    co_await everyone(operation);
    co_return;
  }
  for (size_t begin = 0, round = 0; begin < bytes; begin += kBounce, ++round) {
    const size_t part = std::min(kBounce, bytes - begin);
    std::byte* const half = bounce(root, static_cast<int64_t>(round));
    if (is_root) hand_over(half, inout.data + begin, part);
    publish();
    co_await everyone(operation);
    if (!is_root) copy_bytes(inout.data + begin, half, part, bytes);
    operation.done_bytes += static_cast<int64_t>(part);
  }
}

Backend shm_backend(const WorldOptions& options) {
  auto transport = std::make_unique<ShmTransport>(options);
  ShmTransport& shared = *transport;
  return {std::move(transport), [&shared](Engine& engine, GroupBase::Members members) {
            const int channel = shared.open(members.world_ranks, members.channel);
            return std::make_unique<ShmGroup>(engine, std::move(members), shared, channel);
          }};
}

}  // namespace trireme::comm
