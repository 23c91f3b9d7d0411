#include "trireme/comm/p2p_group.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trireme/comm/reduce.h"

namespace trireme::comm {
namespace {

constexpr uint32_t kCollective = 1U
                                 << 30;  // set in the tags of collectives; tags of users are below
constexpr int64_t kSmallGather = 32 << 10;  // bytes of one piece, up to which latency decides
constexpr int kDirectMembers = 16;          // up to which a small gather sends to each member
constexpr int64_t kSmallReduce =
    64 << 10;                          // bytes gathered, up to which a reduction gathers everything
constexpr int64_t kStage = 512 << 10;  // bytes of one message of a large reduction or broadcast

// Room for so many bytes, whose values do not matter.
std::byte* grown(std::vector<std::byte>& room, size_t bytes) {
  if (room.size() < bytes) room.resize(bytes);
  return room.data();
}

}  // namespace

std::span<Transfer> P2pGroup::fresh_transfers(size_t count) {
  transfers_.assign(count, Transfer());
  return transfers_;
}

void P2pGroup::post_send(Operation& operation, Transfer& transfer, int member,
                         std::span<const std::byte> bytes) {
  transfer.peer = world_rank(member);
  transfer.channel = channel_;
  transfer.tag = kCollective | static_cast<uint32_t>(operation.turn & 0xffff);
  transfer.data = const_cast<std::byte*>(bytes.data());  // only read
  transfer.bytes = bytes.size();
  engine().transport().send(transfer);
}

void P2pGroup::post_receive(Operation& operation, Transfer& transfer, int member,
                            std::span<std::byte> bytes) {
  transfer.peer = world_rank(member);
  transfer.channel = channel_;
  transfer.tag = kCollective | static_cast<uint32_t>(operation.turn & 0xffff);
  transfer.data = bytes.data();
  transfer.bytes = bytes.size();
  transfer.counts = true;
  engine().transport().receive(transfer);
}

Task P2pGroup::run_message(Operation& operation, View view, bool is_send) {
  Transfer transfer;
  transfer.peer = world_rank(operation.peer);
  transfer.channel = channel_;
  transfer.tag = static_cast<uint32_t>(operation.tag);
  transfer.data = view.data;
  transfer.bytes = static_cast<size_t>(view.bytes());
  transfer.counts = true;
  operation.all_bytes = view.bytes();
  if (is_send) {
    engine().transport().send(transfer);
  } else {
    engine().transport().receive(transfer);
  }
  co_await arrivals(operation, {&transfer, 1});
}

// Dissemination: in round k every member tells the one 2^k after it that it has come, and has heard
// of 2^(k+1) members when it hears from the one 2^k before it. After log2(size) rounds it has heard
// of all.
Task P2pGroup::run_barrier(Operation& operation) {
  for (int distance = 1; distance < size(); distance *= 2) {
    Transfer transfers[2];
    post_receive(operation, transfers[0], before(distance), {});
    post_send(operation, transfers[1], after(distance), {});
    co_await arrivals(operation, transfers);
  }
}

// Small gather among few members: every member sends its piece to each of the others at once. One
// message deep, and a member that does not come is known by name.
Task P2pGroup::gather_directly(Operation& operation, const Slices& slices) {
  const std::span<Transfer> transfers = fresh_transfers(2 * (static_cast<size_t>(size()) - 1));
  size_t next = 0;
  for (int d = 1; d < size(); ++d) {
    post_receive(operation, transfers[next++], before(d), slices.raw(before(d)));
  }
  for (int d = 1; d < size(); ++d) {
    post_send(operation, transfers[next++], after(d), slices.raw(rank()));
  }
  co_await arrivals(operation, transfers);
}

// Small gather among many members (Bruck 1997): a member holds a run of pieces that starts with its
// own. In round k it sends the first 2^k of its run to the member 2^k before it and gets as many
// from the one 2^k after it, which continue its run: log2(size) rounds. `run` is the pieces in that
// order; its head is copied in before and it is turned into rank order after. All pieces have the
// size of the largest.
Task P2pGroup::gather_doubling(Operation& operation, const Slices& slices) {
  size_t piece = 0;
  for (int i = 0; i < size(); ++i) piece = std::max(piece, slices.raw(i).size());
  std::byte* const run = grown(run_, piece * static_cast<size_t>(size()));
  std::copy_n(slices.raw(rank()).data(), slices.raw(rank()).size(), run);
  for (int held = 1; held < size(); held *= 2) {
    const size_t moved = static_cast<size_t>(std::min(held, size() - held)) * piece;
    const size_t end = static_cast<size_t>(held) * piece;
    Transfer transfers[2];
    post_receive(operation, transfers[0], after(held), {run + end, moved});
    post_send(operation, transfers[1], before(held), {run, moved});
    co_await arrivals(operation, transfers);
  }
  for (int i = 1; i < size(); ++i) {
    const std::span<std::byte> to = slices.raw(after(i));
    std::copy_n(run + static_cast<size_t>(i) * piece, to.size(), to.data());
  }
}

// Large gather: pieces travel around the ring of members. In step s a member passes on to the next
// one the piece it received in step s-1 (first its own), so that each piece crosses each link once.
Task P2pGroup::gather_ring(Operation& operation, const Slices& slices) {
  const size_t steps = static_cast<size_t>(size()) - 1;
  const std::span<Transfer> transfers = fresh_transfers(2 * steps);
  const std::span<Transfer> received = transfers.first(steps);
  const std::span<Transfer> sent = transfers.last(steps);
  for (size_t s = 0; s < steps; ++s) {
    const int owner = before(static_cast<int>(s) + 1);
    post_receive(operation, received[s], before(1), slices.raw(owner));
  }
  for (size_t s = 0; s < steps; ++s) {
    if (s > 0) co_await arrivals(operation, received.subspan(s - 1, 1));
    post_send(operation, sent[s], after(1), slices.raw(before(static_cast<int>(s))));
  }
  co_await arrivals(operation, received);
  co_await arrivals(operation, sent);
}

Task P2pGroup::gather(Operation& operation, const Slices& slices) {
  if (slices.count(0) * size_of(slices.dtype) > kSmallGather) return gather_ring(operation, slices);
  if (size() > kDirectMembers) return gather_doubling(operation, slices);
  return gather_directly(operation, slices);
}

// Every member sends each other member that one's slice, and reduces its own slice over all members
// in the tree of reduce.h. (A ring would move as many bytes but sum each slice in another order; here the
// bits do not depend on the algorithm.) The own slice is reduced in stages: while stage k is
// reduced the messages of stage k+1 arrive, into the other half of `stage`. Slices may differ by
// one element, so the stages a member sends to another are counted by that one's slice.
Task P2pGroup::reduce_to_owner(Operation& operation, const Slices& slices, std::byte* out,
                               Reduce op) {
  const size_t others = static_cast<size_t>(size()) - 1;
  const int64_t step = kStage / size_of(slices.dtype);  // elements of a stage
  const int64_t own = slices.count(rank());
  const auto stages = static_cast<size_t>((slices.count(0) + step - 1) / step);
  const std::span<Transfer> transfers = fresh_transfers((2 + stages) * others);
  const std::span<Transfer> received[2] = {transfers.first(others),
                                           transfers.subspan(others, others)};
  const std::span<Transfer> sent = transfers.subspan(2 * others);
  size_t sends = 0;
  for (int64_t begin = 0; begin < slices.count(0); begin += step) {
    for (int d = 1; d < size(); ++d) {
      const int64_t count = std::min(step, slices.count(after(d)) - begin);
      if (count <= 0) continue;
      post_send(operation, sent[sends++], after(d),
                slices.raw(after(d)).subspan(static_cast<size_t>(begin * size_of(slices.dtype)),
                                             static_cast<size_t>(count * size_of(slices.dtype))));
    }
  }
  const size_t room = static_cast<size_t>(std::min(step, own) * size_of(slices.dtype));
  std::byte* const stage = grown(stage_, 2 * others * room);
  const auto place = [&](int64_t k, int d) {  // of the message in stage k from the member d before
    return stage + (static_cast<size_t>(k % 2) * others + static_cast<size_t>(d) - 1) * room;
  };
  const auto receive_stage = [&](int64_t k) {
    const int64_t count = std::min(step, own - k * step);
    for (int d = 1; d < size() && count > 0; ++d) {
      Transfer& transfer = received[k % 2][static_cast<size_t>(d) - 1];
      transfer = Transfer();
      post_receive(operation, transfer, before(d),
                   {place(k, d), static_cast<size_t>(count * size_of(slices.dtype))});
    }
  };
  receive_stage(0);
  for (int64_t k = 0; k * step < own; ++k) {
    receive_stage(k + 1);
    co_await arrivals(operation, received[k % 2]);
    const int64_t offset = k * step * size_of(slices.dtype);
    for (int d = 1; d < size(); ++d) sources_[static_cast<size_t>(before(d))] = place(k, d);
    sources_[static_cast<size_t>(rank())] = slices.raw(rank()).data() + offset;
    std::byte* const to = out + offset;
    reduce_in_tree(op, slices.dtype, sources_, {&to, 1}, std::min(step, own - k * step));
  }
  for (size_t i = 0; i < sends; ++i) co_await arrivals(operation, sent.subspan(i, 1));
}

Task P2pGroup::run_reduce_scatter(Operation& operation, View in, View out, Reduce op) {
  operation.all_bytes = out.bytes() * (size() - 1);
  co_await reduce_to_owner(operation, slices_of(in), out.data, op);
}

// Small: everyone gathers everything and reduces it. Large: everyone reduces its
// slice, then the slices are gathered; 2 n (p - 1) / p bytes leave each member.
Task P2pGroup::run_all_reduce(Operation& operation, View inout, Reduce op) {
  if (inout.bytes() * size() > kSmallReduce) {
    const Slices slices = slices_of(inout);
    const auto own = static_cast<int64_t>(slices.raw(rank()).size());
    operation.all_bytes = own * (size() - 1) + inout.bytes() - own;
    co_await reduce_to_owner(operation, slices, slices.raw(rank()).data(), op);
    co_await gather(operation, slices);
    co_return;
  }
  const int64_t count = inout.elements();
  operation.all_bytes = inout.bytes() * (size() - 1);
  std::byte* const all =
      grown(stage_, static_cast<size_t>(inout.bytes()) * static_cast<size_t>(size()));
  const Slices slices{all, count * size(), size(), inout.type.dtype};
  std::copy_n(inout.data, slices.raw(rank()).size(), slices.raw(rank()).data());
  co_await gather(operation, slices);
  for (int i = 0; i < size(); ++i) sources_[static_cast<size_t>(i)] = slices.raw(i).data();
  reduce_in_tree(op, inout.type.dtype, sources_, {&inout.data, 1}, count);
}

Task P2pGroup::run_all_gather(Operation& operation, View in, View out) {
  const Slices slices = slices_of(out);
  const std::span<std::byte> own = slices.raw(rank());
  operation.all_bytes = out.bytes() - in.bytes();
  if (own.data() != in.data) std::copy_n(in.data, own.size(), own.data());
  co_await gather(operation, slices);
}

// Pairwise: in step d every member sends to the one d after it and receives from the one d before
// it, so that no two members send to the same one in the same step. All steps are started at once.
Task P2pGroup::run_all_to_all(Operation& operation, View in, View out) {
  const Slices from = slices_of(in);
  const Slices to = slices_of(out);
  operation.all_bytes = out.bytes() - static_cast<int64_t>(to.raw(rank()).size());
  const std::span<Transfer> transfers = fresh_transfers(2 * (static_cast<size_t>(size()) - 1));
  size_t next = 0;
  for (int d = 1; d < size(); ++d) {
    post_receive(operation, transfers[next++], before(d), to.raw(before(d)));
    post_send(operation, transfers[next++], after(d), from.raw(after(d)));
  }
  std::copy_n(from.raw(rank()).data(), from.raw(rank()).size(), to.raw(rank()).data());
  co_await arrivals(operation, transfers);
}

Task P2pGroup::run_ring_shift(Operation& operation, View in, View out, int by) {
  operation.all_bytes = out.bytes();
  const std::span<Transfer> transfers = fresh_transfers(2);
  post_receive(operation, transfers[0], before(by), out.raw());
  post_send(operation, transfers[1], after(by), in.raw());
  co_await arrivals(operation, transfers);
}

// Binomial tree, in stages. Counted from the root, member v gets the data from v without its lowest
// set bit, and passes them on to v + 2^k for every 2^k below that bit. A stage is passed on while
// the next arrives.
Task P2pGroup::run_broadcast(Operation& operation, View inout, int root) {
  const int v = (rank() + size() - root) % size();
  const auto member = [&](int counted) { return (counted + root) % size(); };
  int lowest = 1;
  while (lowest < size() && (v & lowest) == 0) lowest *= 2;
  const int64_t stages = std::max<int64_t>(1, (inout.bytes() + kStage - 1) / kStage);
  const auto raw = [&](int64_t stage) {
    const size_t begin = static_cast<size_t>(stage * kStage);
    return inout.raw().subspan(begin, std::min<size_t>(kStage, inout.raw().size() - begin));
  };
  const auto receives = v == 0 ? 0 : static_cast<size_t>(stages);
  const auto most_sends =
      static_cast<size_t>(stages * std::bit_width(static_cast<unsigned>(lowest)));
  const std::span<Transfer> transfers = fresh_transfers(receives + most_sends);
  const std::span<Transfer> received = transfers.first(receives);
  const std::span<Transfer> sent = transfers.subspan(receives);
  for (size_t s = 0; s < receives; ++s) {
    post_receive(operation, received[s], member(v - lowest), raw(static_cast<int64_t>(s)));
  }
  size_t sends = 0;
  operation.all_bytes = v == 0 ? 0 : inout.bytes();
  for (int64_t s = 0; s < stages; ++s) {
    if (v != 0) co_await arrivals(operation, received.subspan(static_cast<size_t>(s), 1));
    for (int bit = lowest / 2; bit > 0; bit /= 2) {
      if (v + bit >= size()) continue;
      sent[sends].counts = v == 0;  // the root receives nothing
      if (v == 0) operation.all_bytes += static_cast<int64_t>(raw(s).size());
      post_send(operation, sent[sends++], member(v + bit), raw(s));
    }
  }
  for (size_t i = 0; i < sends; ++i) co_await arrivals(operation, sent.subspan(i, 1));
}

}  // namespace trireme::comm
