#include "trireme/train/step/session/measure_rates.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/layout/collective_cost.h"
#include "trireme/layout/reshard.h"

namespace trireme {
namespace {

constexpr int64_t kSmall = 1 << 10;  // elements of a sum whose time is latency
constexpr int64_t kLarge = 1 << 17;  // elements of one whose time is bytes
constexpr int kTries = 3;            // after one that wakes the link
constexpr double kAchievable = 0.8;  // of the multiplications in registers, by large kernels

double shortest_s(comm::Group& group, std::vector<float>& values, int64_t elements) {
  const View view{reinterpret_cast<std::byte*>(values.data()), {DType::kF32, {elements}}};
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTries; ++i) {
    group.barrier().wait();
    const double begin = now_s();
    group.all_reduce(view, comm::Reduce::kSum).wait();
    if (i > 0) best = std::min(best, now_s() - begin);
  }
  return best;
}

// By what a sum over these ranks costs (layout/collective_cost.h).
LinkCost link_of(comm::Group& group, std::vector<float>& values) {
  const double small_s = shortest_s(group, values, kSmall);
  const double large_s = shortest_s(group, values, kLarge);
  const auto bytes = static_cast<double>((kLarge - kSmall) * size_of(DType::kF32));
  const CollectiveWork work = among_all(group.size(), bytes, 2);
  return {.latency_s = small_s / work.rounds, .bytes_per_s = work.bytes / std::max(large_s - small_s, 1e-9)};
}

// What joins ranks: each axis of a crew's mesh, the last first, as it joins neighbours, and then crews.
struct Link {
  std::string name;
  int64_t joins = 1;
  comm::Group* group = nullptr;
};

std::vector<Link> links_of(comm::World& world, const Mesh& ranks) {
  std::vector<Link> out;
  const int64_t first = world.rank() / ranks.devices() * ranks.devices();  // of the crew
  for (int axis = ranks.axes(); axis-- > 0;) {
    std::vector<int> members;
    for (const int64_t member : ranks.group_of(world.rank() - first, std::vector{axis}))
      members.push_back(static_cast<int>(first + member));
    if (members.size() < 2) continue;
    out.push_back({ranks.axis(axis).name, ranks.stride(axis) * ranks.axis(axis).size, &world.group(members)});
  }
  if (ranks.devices() < world.size()) out.push_back({"crews", world.size(), &world.all()});
  return out;
}

// The largest of any rank.
void agree(comm::World& world, std::vector<float>& values) {
  const auto count = static_cast<int64_t>(values.size());
  world.all()
      .all_reduce({reinterpret_cast<std::byte*>(values.data()), {DType::kF32, {count}}}, comm::Reduce::kMax)
      .wait();
}

// Passes over values that stay in a core's cache, on every thread.
class CacheWork {
 public:
  explicit CacheWork(ThreadPool& pool) : pool_(pool), values_(static_cast<size_t>(pool.size()) * kValues, 1.0F) {}
  double seconds(int64_t passes) {
    const double begin = now_s();
    pool_.run(pool_.size(), [&](int64_t task, int) {
      float* const values = values_.data() + task * kValues;
      for (int64_t pass = 0; pass < passes; ++pass) {
        for (int64_t i = 0; i < kValues; ++i) values[i] = values[i] * 0.5F + 0.5F;
      }
    });
    return now_s() - begin;
  }

 private:
  static constexpr int64_t kValues = 1 << 14;
  ThreadPool& pool_;
  std::vector<float> values_;
};

// The interquartile mean: of what is measured on a machine with other work a quarter at each end says more of that
// work.
double middle_mean(std::vector<double> values) {
  std::ranges::sort(values);
  const auto quarter = static_cast<std::ptrdiff_t>(values.size() / 4);
  const auto count = static_cast<double>(std::ssize(values) - 2 * quarter);
  return std::accumulate(values.begin() + quarter, values.end() - quarter, 0.0) / count;
}

}  // namespace

double measure_overlap_slowdown(comm::World& world, ThreadPool& pool) {
  constexpr int64_t kElements = 1 << 20;  // a sum for which no cache of a core has room
  constexpr double kLonger = 3;           // than a sum computes each try
  constexpr int kRounds = 60;
  std::vector<float> values(kElements);
  const View view{reinterpret_cast<std::byte*>(values.data()), {DType::kF32, {kElements}}};
  comm::Group& all = world.all();
  const double sum_s = shortest_s(all, values, kElements);
  CacheWork work(pool);
  constexpr int64_t kProbe = 64;
  work.seconds(kProbe);
  std::vector<float> passes{static_cast<float>(kLonger * sum_s / work.seconds(kProbe) * kProbe)};
  agree(world, passes);
  const auto count = std::clamp<int64_t>(static_cast<int64_t>(passes[0]), 1, 1 << 20);
  std::vector<double> sums, lost;  // of rounds: what is compared was measured one right after the other
  for (int round = 0; round < kRounds; ++round) {
    all.barrier().wait();
    const double begin = now_s();
    all.all_reduce(view, comm::Reduce::kSum).wait();
    sums.push_back(now_s() - begin);
    all.barrier().wait();
    const double alone_s = work.seconds(count);
    all.barrier().wait();
    auto sum = all.all_reduce(view, comm::Reduce::kSum);
    lost.push_back(work.seconds(count) - alone_s);
    sum.wait();
  }
  std::vector<float> slowdown{static_cast<float>(middle_mean(lost) / std::max(middle_mean(sums), 1e-9))};
  agree(world, slowdown);
  return std::clamp<double>(slowdown[0], 0, 1);
}

Machine measure_rates(comm::World& world, ThreadPool& pool, const Mesh& mesh, const Device& device) {
  const Mesh ranks = without_micro_batches(mesh);
  Machine out = Machine::this_host();
  const PeakOptions quick{.bytes = int64_t{16} << 20, .turns = 200'000, .repetitions = 3};
  if (const std::optional<Peak> peak = device.measure_peak(pool, quick)) {
    out.achievable = kAchievable;
    out.flops_per_s = {{"f32", peak->f32_flops_per_s}, {"bf16", peak->bf16_flops_per_s}};
    out.memory_bytes_per_s = peak->triad_bytes_per_s;
  }
  std::vector<float> values(kLarge);
  std::vector<float> slowest{static_cast<float>(1 / out.flops_of("f32")), static_cast<float>(1 / out.flops_of("bf16")),
                             static_cast<float>(1 / out.memory_bytes_per_s)};
  const size_t first_link = slowest.size();
  const std::vector<Link> links = links_of(world, ranks);
  for (const Link& link : links) {
    const LinkCost cost = link_of(*link.group, values);
    slowest.insert(slowest.end(), {static_cast<float>(cost.latency_s), static_cast<float>(1 / cost.bytes_per_s)});
  }
  agree(world, slowest);
  out.name = "measured";
  out.devices_per_host = world.size();
  out.flops_per_s = {{"f32", 1 / slowest[0]}, {"bf16", 1 / slowest[1]}};
  out.memory_bytes_per_s = 1 / slowest[2];
  out.levels.clear();
  for (size_t i = 0; i < links.size(); ++i) {
    const size_t at = first_link + 2 * i;
    const LinkLevel& level =
        out.levels.emplace_back(LinkLevel{links[i].name, links[i].joins, slowest[at], 1 / slowest[at + 1]});
    TRIREME_LOG(kDebug, "train",
                "measured  axis={} latency_us={:.1f} mb_per_s={:.1f} gflop_per_s={:.0f} bf16_gflop_per_s={:.0f} "
                "memory_gb_per_s={:.1f}",
                level.name, level.latency_s * 1e6, level.bytes_per_s / 1e6, 1e-9 / slowest[0], 1e-9 / slowest[1],
                1e-9 / slowest[2]);
  }
  check(out, "the rates that were measured");
  return out;
}

}  // namespace trireme
