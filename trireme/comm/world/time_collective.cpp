#include "trireme/comm/world/time_collective.h"

#include <algorithm>
#include <string>

#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

const std::vector<std::string>& names() {
  static const std::vector<std::string> names{"all_reduce", "all_gather", "reduce_scatter",
                                              "all_to_all", "broadcast",  "barrier"};
  return names;
}

struct Operands {
  View whole;
  View piece;
  View other;  // as large as whole
};

Work start(Group& group, std::string_view op, const Operands& operands, Reduce reduce) {
  if (op == "all_reduce") return group.all_reduce(operands.whole, reduce);
  if (op == "all_gather") return group.all_gather(operands.piece, operands.whole);
  if (op == "reduce_scatter") return group.reduce_scatter(operands.whole, operands.piece, reduce);
  if (op == "all_to_all") return group.all_to_all(operands.whole, operands.other);
  if (op == "broadcast") return group.broadcast(operands.whole, 0);
  return group.barrier();
}

double moved_bytes(std::string_view op, double bytes, int size) {
  const double share = static_cast<double>(size - 1) / size;
  if (op == "all_reduce") return 2 * bytes * share;
  if (op == "broadcast") return size > 1 ? bytes : 0;
  return bytes * share;
}

double run_once(Group& group, std::string_view op, const Operands& operands, Reduce reduce) {
  const Clock::time_point begin = Clock::now();
  start(group, op, operands, reduce).wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

CollectiveTiming time_one(World& world, std::string_view op, const Operands& operands, const TimingOptions& options) {
  Group& group = world.all();
  double estimate_us = 0;
  for (int i = 0; i < std::max(options.warmup, 1); ++i) estimate_us = run_once(group, op, operands, options.reduce);
  // All ranks do the same number of runs: rank 0's.
  const double budget_us = std::chrono::duration<double, std::micro>(options.budget).count();
  const HostTensor runs = HostTensor::of<int64_t>(
      {1}, std::vector<int64_t>{std::clamp<int64_t>(static_cast<int64_t>(budget_us / (estimate_us + 0.1)), 3,
                                                    std::max(options.max_runs, 3))});
  group.broadcast(runs.view(), 0).wait();
  std::vector<double> times(static_cast<size_t>(runs.as<int64_t>()[0]));
  for (double& time : times) time = run_once(group, op, operands, options.reduce);
  std::sort(times.begin(), times.end());

  const int64_t bytes = op == "barrier" ? 0 : operands.whole.bytes();
  const double median = times[times.size() / 2];
  const HostTensor stats =
      HostTensor::of<double>({3}, std::vector<double>{median, times.front(), times[(times.size() - 1) * 99 / 100]});
  group.broadcast(stats.view(), 0).wait();
  const std::span<double> all = stats.as<double>();
  const double moved = moved_bytes(op, static_cast<double>(bytes), world.size());
  return {bytes, all[0], all[1], all[2], moved / (all[0] * 1e3)};
}

}  // namespace

std::vector<CollectiveTiming> time_collective(World& world, std::string_view op, std::span<const int64_t> bytes,
                                              const TimingOptions& options) {
  require(std::find(names().begin(), names().end(), op) != names().end(),
          "time_collective: there is no operation '{}'.{}", op, suggestion(op, names()));
  require(options.reduce == Reduce::kSum || op == "all_reduce" || op == "reduce_scatter",
          "time_collective: {} adds nothing up, so that the reduction that is asked for changes nothing; leave it out",
          op);
  const int64_t size = world.size();
  int64_t largest = 0;  // elements of a piece
  std::vector<int64_t> pieces;
  for (const int64_t wanted : bytes) {
    require(wanted >= 0, "time_collective: a size of {} bytes; it must be 0 or more", wanted);
    pieces.push_back((wanted / 4 + size - 1) / size);
    largest = std::max(largest, pieces.back());
  }
  const int64_t room = 4 * largest * size;
  HostTensor own;
  std::byte* memory = nullptr;
  if (options.in_arena) {
    memory = world.allocate(static_cast<size_t>(3 * room + 64)).data();
  } else {
    own = HostTensor(TensorType{DType::kU8, Shape{3 * room + 64}});
    memory = own.view().data;
  }
  std::fill_n(memory, 3 * room, std::byte{});  // sums of zeros stay numbers, however often they are taken
  std::vector<CollectiveTiming> out;
  for (const int64_t piece : pieces) {
    const TensorType whole{DType::kF32, Shape{piece * size}};
    const Operands operands{{memory, whole}, {memory + room, {DType::kF32, Shape{piece}}}, {memory + 2 * room, whole}};
    out.push_back(time_one(world, op, operands, options));
  }
  return out;
}

}  // namespace trireme::comm
