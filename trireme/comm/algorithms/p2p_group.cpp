#include "trireme/comm/algorithms/p2p_group.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "trireme/comm/reduce.h"

namespace trireme::comm {
namespace {

constexpr int64_t kSmallGather = 32 << 10;  // bytes of one piece, up to which latency decides
constexpr int kDirectMembers = 16;          // up to which a small gather sends to each member
constexpr int64_t kSmallReduce = 64 << 10;  // bytes gathered, up to which a reduction gathers everything
constexpr int64_t kStage = 512 << 10;       // bytes of one message of a large reduction or broadcast

// Room for this many bytes, whose values do not matter.
std::byte* grown(std::vector<std::byte>& room, size_t bytes) {
  if (room.size() < bytes) room.resize(bytes);
  return room.data();
}

// Whether a sum of sums has the bits of one sum: nothing is rounded in between.
bool sums_in_parts(DType dtype) {
  return !is_floating(dtype) || size_of(dtype) >= size_of(DType::kF32);
}

}  // namespace

void P2pGroup::close() {
  engine().transport().close(channel_);
}

P2pGroup::P2pGroup(Engine& engine, Members members, int channel)
    : GroupBase(engine, std::move(members)), sources_(static_cast<size_t>(size())), channel_(channel) {
  all_.place = rank();
  for (int i = 0; i < size(); ++i) all_.members.push_back(i);
  find_hosts();
}

void P2pGroup::find_hosts() {
  const std::vector<int>& hosts = engine().options().hosts;
  if (hosts.empty()) return;
  const auto host_of = [&](int member) { return hosts[static_cast<size_t>(world_rank(member))]; };
  int on_host = 1;
  while (on_host < size() && host_of(on_host) == host_of(0)) ++on_host;
  if (!std::has_single_bit(static_cast<unsigned>(on_host)) || on_host == 1 || on_host == size() ||
      size() % on_host != 0)
    return;
  for (int i = 0; i < size(); ++i) {
    const bool begins = i % on_host == 0;
    if (i > 0 && (host_of(i) != host_of(i - 1)) != begins) return;
  }
  host_.place = rank() % on_host;
  hosts_.place = rank() / on_host;
  for (int i = 0; i < on_host; ++i) host_.members.push_back(rank() - host_.place + i);
  for (int i = host_.place; i < size(); i += on_host) hosts_.members.push_back(i);
}

bool P2pGroup::by_hosts(DType dtype) const {
  return host_.size() > 1 && sums_in_parts(dtype);
}

std::span<Transfer> P2pGroup::fresh_transfers(size_t count) {
  transfers_.assign(count, Transfer());
  return transfers_;
}

void P2pGroup::post_send(Operation& operation, Transfer& transfer, const Circle& circle, int place,
                         std::span<const std::byte> bytes) {
  transfer.peer = world_rank(circle.members[static_cast<size_t>(place)]);
  transfer.channel = channel_;
  transfer.tag = kCollectiveTags | static_cast<uint32_t>(operation.turn & 0xffff);
  transfer.data = const_cast<std::byte*>(bytes.data());  // only read
  transfer.bytes = bytes.size();
  engine().transport().send(transfer);
}

void P2pGroup::post_receive(Operation& operation, Transfer& transfer, const Circle& circle, int place,
                            std::span<std::byte> bytes) {
  transfer.peer = world_rank(circle.members[static_cast<size_t>(place)]);
  transfer.channel = channel_;
  transfer.tag = kCollectiveTags | static_cast<uint32_t>(operation.turn & 0xffff);
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
    post_receive(operation, transfers[0], all_, all_.before(distance), {});
    post_send(operation, transfers[1], all_, all_.after(distance), {});
    co_await arrivals(operation, transfers);
  }
}

// Small gather among few members: every member sends its piece to each of the others at once. One
// message deep, and a member that does not come is known by name.
Task P2pGroup::gather_directly(Operation& operation, const Circle& circle, const Slices& slices) {
  const std::span<Transfer> transfers = fresh_transfers(2 * (static_cast<size_t>(circle.size()) - 1));
  size_t next = 0;
  for (int d = 1; d < circle.size(); ++d) {
    post_receive(operation, transfers[next++], circle, circle.before(d), slices.raw(circle.before(d)));
  }
  for (int d = 1; d < circle.size(); ++d) {
    post_send(operation, transfers[next++], circle, circle.after(d), slices.raw(circle.place));
  }
  co_await arrivals(operation, transfers);
}

// Small gather among many members (Bruck 1997): a member holds a run of pieces that starts with its
// own. In round k it sends the first 2^k of its run to the member 2^k before it and gets as many
// from the one 2^k after it, which continue its run: log2(size) rounds. `run` is the pieces in that
// order; its head is copied in before and it is turned into rank order after. All pieces have the
// size of the largest.
Task P2pGroup::gather_doubling(Operation& operation, const Circle& circle, const Slices& slices) {
  size_t piece = 0;
  for (int i = 0; i < circle.size(); ++i) piece = std::max(piece, slices.raw(i).size());
  std::byte* const run = grown(run_, piece * static_cast<size_t>(circle.size()));
  std::copy_n(slices.raw(circle.place).data(), slices.raw(circle.place).size(), run);
  for (int held = 1; held < circle.size(); held *= 2) {
    const size_t moved = static_cast<size_t>(std::min(held, circle.size() - held)) * piece;
    const size_t end = static_cast<size_t>(held) * piece;
    Transfer transfers[2];
    post_receive(operation, transfers[0], circle, circle.after(held), {run + end, moved});
    post_send(operation, transfers[1], circle, circle.before(held), {run, moved});
    co_await arrivals(operation, transfers);
  }
  for (int i = 1; i < circle.size(); ++i) {
    const std::span<std::byte> to = slices.raw(circle.after(i));
    std::copy_n(run + static_cast<size_t>(i) * piece, to.size(), to.data());
  }
}

// Large gather: pieces travel around the ring of members. In step s a member passes on to the next
// one the piece it received in step s-1 (first its own), so that each piece crosses each link once.
Task P2pGroup::gather_ring(Operation& operation, const Circle& circle, const Slices& slices) {
  const size_t steps = static_cast<size_t>(circle.size()) - 1;
  const std::span<Transfer> transfers = fresh_transfers(2 * steps);
  const std::span<Transfer> received = transfers.first(steps);
  const std::span<Transfer> sent = transfers.last(steps);
  for (size_t s = 0; s < steps; ++s) {
    const int owner = circle.before(static_cast<int>(s) + 1);
    post_receive(operation, received[s], circle, circle.before(1), slices.raw(owner));
  }
  for (size_t s = 0; s < steps; ++s) {
    if (s > 0) co_await arrivals(operation, received.subspan(s - 1, 1));
    post_send(operation, sent[s], circle, circle.after(1), slices.raw(circle.before(static_cast<int>(s))));
  }
  co_await arrivals(operation, received);
  co_await arrivals(operation, sent);
}

Task P2pGroup::gather(Operation& operation, const Circle& circle, const Slices& slices) {
  if (slices.count(0) * size_of(slices.dtype) > kSmallGather) return gather_ring(operation, circle, slices);
  if (circle.size() > kDirectMembers) return gather_doubling(operation, circle, slices);
  return gather_directly(operation, circle, slices);
}

// Every member sends each other member that one's slice, and reduces its own slice over all members
// in the tree of reduce.h. (A ring would move as many bytes but sum each slice in another order; here the
// bits do not depend on the algorithm.) The own slice is reduced in stages: while stage k is
// reduced the messages of stage k+1 arrive, into the other half of `stage`. Slices may differ by
// one element, so the stages a member sends to another are counted by that one's slice.
Task P2pGroup::reduce_to_owner(Operation& operation, const Circle& circle, const Slices& slices, std::byte* out,
                               Reduce op) {
  const size_t others = static_cast<size_t>(circle.size()) - 1;
  const int64_t step = kStage / size_of(slices.dtype);  // elements of a stage
  const int64_t own = slices.count(circle.place);
  const auto stages = static_cast<size_t>((slices.count(0) + step - 1) / step);
  const std::span<Transfer> transfers = fresh_transfers((2 + stages) * others);
  const std::span<Transfer> received[2] = {transfers.first(others), transfers.subspan(others, others)};
  const std::span<Transfer> sent = transfers.subspan(2 * others);
  size_t sends = 0;
  for (int64_t begin = 0; begin < slices.count(0); begin += step) {
    for (int d = 1; d < circle.size(); ++d) {
      const int64_t count = std::min(step, slices.count(circle.after(d)) - begin);
      if (count <= 0) continue;
      post_send(operation, sent[sends++], circle, circle.after(d),
                slices.raw(circle.after(d))
                    .subspan(static_cast<size_t>(begin * size_of(slices.dtype)),
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
    for (int d = 1; d < circle.size() && count > 0; ++d) {
      Transfer& transfer = received[k % 2][static_cast<size_t>(d) - 1];
      transfer = Transfer();
      post_receive(operation, transfer, circle, circle.before(d),
                   {place(k, d), static_cast<size_t>(count * size_of(slices.dtype))});
    }
  };
  receive_stage(0);
  for (int64_t k = 0; k * step < own; ++k) {
    receive_stage(k + 1);
    co_await arrivals(operation, received[k % 2]);
    const int64_t offset = k * step * size_of(slices.dtype);
    for (int d = 1; d < circle.size(); ++d) sources_[static_cast<size_t>(circle.before(d))] = place(k, d);
    sources_[static_cast<size_t>(circle.place)] = slices.raw(circle.place).data() + offset;
    std::byte* const to = out + offset;
    reduce_in_tree(op, slices.dtype, std::span(sources_).first(static_cast<size_t>(circle.size())), {&to, 1},
                   std::min(step, own - k * step));
  }
  for (size_t i = 0; i < sends; ++i) co_await arrivals(operation, sent.subspan(i, 1));
}

Task P2pGroup::run_reduce_scatter(Operation& operation, View in, View out, Reduce op) {
  if (by_hosts(in.type.dtype)) {
    co_await reduce_scatter_by_hosts(operation, in, out, op);
    co_return;
  }
  operation.all_bytes = out.bytes() * (size() - 1);
  co_await reduce_to_owner(operation, all_, slices_of(in, all_), out.data, op);
}

// Member j of a host sums, over the host, the pieces of all j-th members: what hosts then exchange are sums already.
Task P2pGroup::reduce_scatter_by_hosts(Operation& operation, View in, View out, Reduce op) {
  const auto piece = static_cast<size_t>(out.bytes());
  const auto hosts = static_cast<size_t>(hosts_.size());
  const int64_t host_elements = in.elements() / hosts_.size();
  operation.all_bytes = out.bytes() * (hosts_.size() * (host_.size() - 1) + hosts_.size() - 1);
  std::byte* const sums = grown(sums_, hosts * piece);
  for (size_t h = 0; h < hosts; ++h) {
    const Slices pieces{in.data + h * in.raw().size() / hosts, host_elements, host_.size(), in.type.dtype};
    co_await reduce_to_owner(operation, host_, pieces, sums + h * piece, op);
  }
  const Slices slices{sums, out.elements() * hosts_.size(), hosts_.size(), in.type.dtype};
  co_await reduce_to_owner(operation, hosts_, slices, out.data, op);
}

// Small: everyone gathers everything and reduces it. Large: everyone reduces its
// slice, then the slices are gathered; 2 n (p - 1) / p bytes leave each member.
Task P2pGroup::run_all_reduce(Operation& operation, View inout, Reduce op) {
  if (inout.bytes() * size() > kSmallReduce) {
    if (by_hosts(inout.type.dtype)) {
      co_await all_reduce_by_hosts(operation, inout, op);
      co_return;
    }
    const Slices slices = slices_of(inout, all_);
    const auto own = static_cast<int64_t>(slices.raw(rank()).size());
    operation.all_bytes = own * (size() - 1) + inout.bytes() - own;
    co_await reduce_to_owner(operation, all_, slices, slices.raw(rank()).data(), op);
    co_await gather(operation, all_, slices);
    co_return;
  }
  const int64_t count = inout.elements();
  operation.all_bytes = inout.bytes() * (size() - 1);
  std::byte* const all = grown(stage_, static_cast<size_t>(inout.bytes()) * static_cast<size_t>(size()));
  const Slices slices{all, count * size(), size(), inout.type.dtype};
  std::copy_n(inout.data, slices.raw(rank()).size(), slices.raw(rank()).data());
  co_await gather(operation, all_, slices);
  for (int i = 0; i < size(); ++i) sources_[static_cast<size_t>(i)] = slices.raw(i).data();
  reduce_in_tree(op, inout.type.dtype, sources_, {&inout.data, 1}, count);
}

// Each host sums for itself, a member its slice; those slices are summed with the other hosts', and go around in the
// host.
Task P2pGroup::all_reduce_by_hosts(Operation& operation, View inout, Reduce op) {
  const Slices slices = slices_of(inout, host_);
  const Slices own{slices.raw(host_.place).data(), slices.count(host_.place), hosts_.size(), inout.type.dtype};
  const auto slice = static_cast<int64_t>(slices.raw(host_.place).size());
  const auto part = static_cast<int64_t>(own.raw(hosts_.place).size());
  operation.all_bytes =
      slice * (host_.size() - 1) + part * (hosts_.size() - 1) + (slice - part) + (inout.bytes() - slice);
  co_await reduce_to_owner(operation, host_, slices, slices.raw(host_.place).data(), op);
  co_await reduce_to_owner(operation, hosts_, own, own.raw(hosts_.place).data(), op);
  co_await gather(operation, hosts_, own);
  co_await gather(operation, host_, slices);
}

Task P2pGroup::run_all_gather(Operation& operation, View in, View out) {
  const Slices slices = slices_of(out, all_);
  const std::span<std::byte> own = slices.raw(rank());
  operation.all_bytes = out.bytes() - in.bytes();
  if (own.data() != in.data) std::copy_n(in.data, own.size(), own.data());
  co_await gather(operation, all_, slices);
}

// Pairwise: in step d every member sends to the one d after it and receives from the one d before
// it, so that no two members send to the same one in the same step. All steps are started at once.
Task P2pGroup::run_all_to_all(Operation& operation, View in, View out) {
  const Slices from = slices_of(in, all_);
  const Slices to = slices_of(out, all_);
  operation.all_bytes = out.bytes() - static_cast<int64_t>(to.raw(rank()).size());
  const std::span<Transfer> transfers = fresh_transfers(2 * (static_cast<size_t>(size()) - 1));
  size_t next = 0;
  for (int d = 1; d < size(); ++d) {
    post_receive(operation, transfers[next++], all_, all_.before(d), to.raw(all_.before(d)));
    post_send(operation, transfers[next++], all_, all_.after(d), from.raw(all_.after(d)));
  }
  std::copy_n(from.raw(rank()).data(), from.raw(rank()).size(), to.raw(rank()).data());
  co_await arrivals(operation, transfers);
}

Task P2pGroup::run_ring_shift(Operation& operation, View in, View out, int by) {
  operation.all_bytes = out.bytes();
  const std::span<Transfer> transfers = fresh_transfers(2);
  post_receive(operation, transfers[0], all_, all_.before(by), out.raw());
  post_send(operation, transfers[1], all_, all_.after(by), in.raw());
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
  const auto most_sends = static_cast<size_t>(stages * std::bit_width(static_cast<unsigned>(lowest)));
  const std::span<Transfer> transfers = fresh_transfers(receives + most_sends);
  const std::span<Transfer> received = transfers.first(receives);
  const std::span<Transfer> sent = transfers.subspan(receives);
  for (size_t s = 0; s < receives; ++s) {
    post_receive(operation, received[s], all_, member(v - lowest), raw(static_cast<int64_t>(s)));
  }
  size_t sends = 0;
  operation.all_bytes = v == 0 ? 0 : inout.bytes();
  for (int64_t s = 0; s < stages; ++s) {
    if (v != 0) co_await arrivals(operation, received.subspan(static_cast<size_t>(s), 1));
    for (int bit = lowest / 2; bit > 0; bit /= 2) {
      if (v + bit >= size()) continue;
      sent[sends].counts = v == 0;  // the root receives nothing
      if (v == 0) operation.all_bytes += static_cast<int64_t>(raw(s).size());
      post_send(operation, sent[sends++], all_, member(v + bit), raw(s));
    }
  }
  for (size_t i = 0; i < sends; ++i) co_await arrivals(operation, sent.subspan(i, 1));
}

}  // namespace trireme::comm
