#include "trireme/cost/op_seconds.h"

#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/op/packing.h"

namespace trireme {
namespace {

int64_t bytes_of(std::span<const TensorType> types) {
  int64_t out = 0;
  for (const TensorType& type : types) out += type.bytes();
  return out;
}

// Of the rank that sends most.
double most_sent(const OpDef& op, const TypeArgs& types, int64_t ranks) {
  int64_t most = 0;
  for (int64_t place = 0; place < ranks; ++place) {
    int64_t sent = 0;
    for (const Exchange::Part& part : op.collective->exchange(types, place).sends)
      sent += part.box.elements() * static_cast<int64_t>(size_of(types.in[part.tensor].dtype));
    most = std::max(most, sent);
  }
  return static_cast<double>(most);
}

int64_t parts(int64_t extent, int64_t part) {
  return (extent + part - 1) / part;
}

// How many times their share of the device's units tiles of the results take, at least 1.
double rounds_over_share(std::span<const TensorType> results, int64_t rows, int64_t columns, int64_t units) {
  int64_t tiles = 0;
  double elements = 0;
  for (const TensorType& result : results) {
    const int last = result.shape.rank() - 1;
    if (last < 1 || result.elements() == 0) continue;
    const int64_t width = result.shape[last];
    tiles += parts(result.elements() / width, rows) * parts(width, columns);
    elements += static_cast<double>(result.elements());
  }
  if (tiles == 0) return 1;
  return static_cast<double>(parts(tiles, units) * units) * static_cast<double>(rows * columns) / elements;
}

// The same for the tile that suits the results best: that of the rate either way around or, where its tiles leave half
// of the units without one, half of it, down to 64 x 64. What is smaller than that is divided along the sum (split-K),
// and only what tiles have beyond the results counts.
double tile_rounding(std::span<const TensorType> results, const OpRate& rate, int64_t units) {
  constexpr int64_t kSmallest = 64;
  constexpr double kHalfUsed = 2;
  int64_t rows = rate.tile_rows, columns = rate.tile_columns;
  const auto over_share = [&](int64_t n) {
    return std::min(rounds_over_share(results, rows, columns, n), rounds_over_share(results, columns, rows, n));
  };
  double out = over_share(units);
  while (out >= kHalfUsed && (rows > kSmallest || columns > kSmallest)) {
    (rows >= columns ? rows : columns) /= 2;
    out = std::min(out, over_share(units));
  }
  return out < kHalfUsed ? out : over_share(1);
}

}  // namespace

OpBound bound_of(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (!op.cost || op.traits.zero_cost_view || types.out.empty()) return {};
  const Cost cost = op.cost.get()(types);
  const DType dtype = (types.in.empty() ? types.out : types.in)[0].dtype;
  return {cost.flops / machine.flops_of(to_string(dtype)), cost.bytes / machine.memory_bytes_per_s};
}

double seconds_by(const OpRate& rate, const OpBound& bound) {
  if (rate.memory > 0) return rate.launch_s + bound.flops_s / rate.achievable + rate.memory * bound.bytes_s;
  return rate.launch_s + std::max(bound.flops_s, bound.bytes_s) / rate.achievable;
}

double compute_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (!op.cost || op.traits.zero_cost_view || types.out.empty()) return 0;
  OpBound bound = bound_of(op, types, machine);
  for (const OpRate& rate : machine.op_rates) {
    if (!matches(rate.ops, op.name)) continue;
    if (rate.tile_rows != 0) {
      bound.flops_s *= tile_rounding(types.out, rate, machine.units);
      bound.flops_s += static_cast<double>(bytes_of(types.out)) / machine.memory_bytes_per_s;
    }
    return seconds_by(rate, bound);
  }
  return std::max(bound.flops_s / machine.achievable, bound.bytes_s);
}

double compute_seconds_on_host(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (machine.host_memory_bytes_per_s == 0 && machine.host_flops_per_s == 0) return compute_seconds(op, types, machine);
  if (!op.cost || op.traits.zero_cost_view || types.out.empty()) return 0;
  const Cost cost = op.cost.get()(types);
  const DType dtype = (types.in.empty() ? types.out : types.in)[0].dtype;
  const auto or_device = [](double host, double device) { return host > 0 ? host : device; };
  return std::max(cost.flops / or_device(machine.host_flops_per_s, machine.flops_of(to_string(dtype))),
                  cost.bytes / or_device(machine.host_memory_bytes_per_s, machine.memory_bytes_per_s));
}

double move_seconds(const Move& move, int64_t bytes, const Machine& machine) {
  const double link = move.to == Tier::kDevice ? machine.from_host_bytes_per_s : machine.to_host_bytes_per_s;
  const auto moved = static_cast<double>(bytes);
  const double memory_s = link > 0 ? moved / link : 2 * moved / machine.memory_bytes_per_s;
  if (!move.meets_disk()) return memory_s;
  return std::max(memory_s, moved / machine.disk_bytes_per_s);
}

CollectiveWork collective_work(const OpDef& op, const TypeArgs& types) {
  const int64_t ranks = groups_of(op, types.attrs).size;
  const auto sent = static_cast<double>(bytes_of(types.in));
  const double payload = std::max(sent, static_cast<double>(bytes_of(types.out)));
  switch (op.collective->work) {
    case GroupWork::kCut:
      return {};
    case GroupWork::kAllReduce:
      return among_all(ranks, payload, 2);
    case GroupWork::kAllGather:
    case GroupWork::kReduceScatter:
    case GroupWork::kAllToAll:
      return among_all(ranks, payload);
    case GroupWork::kRingShift:
      return {.rounds = 1, .bytes = sent};
    case GroupWork::kBroadcast:
      return {.rounds = among_all(ranks, 0).rounds, .bytes = sent};
    case GroupWork::kExchange:
      return {.rounds = 1, .bytes = most_sent(op, types, ranks)};
  }
  return {};
}

double collective_seconds(const OpDef& op, const TypeArgs& types, const Mesh& mesh, const ReshardCosts& links) {
  const RankGroups groups = groups_of(op, types.attrs);
  if (groups.size < 2) return 0;
  return seconds(collective_work(op, types), slowest_link(groups, mesh, links), links);
}

double packing_seconds(const OpDef& op, const TypeArgs& types, const Machine& machine) {
  if (op.collective->work == GroupWork::kExchange || groups_of(op, types.attrs).size < 2) return 0;
  const auto [sent, come] = packing_of(op, types);
  return 2 * static_cast<double>(sent + come) / machine.memory_bytes_per_s;
}

LinkCost slowest_link(const RankGroups& groups, const Mesh& mesh, const ReshardCosts& links) {
  std::vector<int64_t> axes = groups.axes;
  if (!groups.ranks.empty()) {  // listed by number: they may lie anywhere
    for (int axis = 0; axis < mesh.axes(); ++axis) axes.push_back(axis);
  }
  if (axes.empty()) return links.link;
  LinkCost out = links.of(static_cast<int>(axes[0]));
  for (const int64_t axis : axes) out = slower(out, links.of(static_cast<int>(axis)));
  return out;
}

}  // namespace trireme
