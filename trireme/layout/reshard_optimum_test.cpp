// The search against an enumeration of all chains that shares no code with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "trireme/layout/reshard.h"

namespace trireme::reshard_optimum_test {
namespace {

// Small latencies: bytes decide.
ReshardCosts by_bytes() {
  return {.link = {1e-9, 1e9}, .step_s = 1e-9};
}

double total_seconds(const std::vector<ReshardStep>& steps, const TensorType& whole, const Mesh& mesh,
                     const ReshardCosts& costs) {
  double out = 0;
  for (const ReshardStep& step : steps) out += seconds(step, whole, mesh, costs);
  return out;
}

// All layouts of a rank on a mesh.
std::vector<Layout> all_layouts(const Shape& whole, const Mesh& mesh) {
  std::vector<Layout> out = {Layout::replicated(whole.rank())};
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    std::vector<Layout> more;
    for (const Layout& layout : out) {
      more.push_back(layout);
      more.push_back(layout);
      more.back().add_partial(axis, Reduction::kSum);
      for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
        for (size_t at = 0; at <= layout.dims[dim].size(); ++at) {
          Layout next = layout;
          next.dims[dim].insert(next.dims[dim].begin() + static_cast<int64_t>(at), axis);
          more.push_back(next);
        }
      }
    }
    out = std::move(more);
  }
  std::erase_if(out, [&](const Layout& layout) { return !fits(layout, whole, mesh); });
  return out;
}

// What b has after a, if a is a prefix of b.
std::optional<std::vector<int>> suffix(const std::vector<int>& a, const std::vector<int>& b) {
  if (a.size() > b.size() || !std::equal(a.begin(), a.end(), b.begin())) return std::nullopt;
  return std::vector<int>(b.begin() + static_cast<int64_t>(a.size()), b.end());
}

double collective(const Mesh& mesh, const ReshardCosts& costs, const std::vector<int>& axes, double bytes, int ways) {
  double p = 1;
  double latency = 0;
  double rate = 1e300;
  for (int axis : axes) {
    p *= static_cast<double>(mesh.axis(axis).size);
    latency = std::max(latency, costs.of(axis).latency_s);
    rate = std::min(rate, costs.of(axis).bytes_per_s);
  }
  return costs.step_s + ways * (std::ceil(std::log2(p) - 1e-12) * latency + bytes * (p - 1) / p / rate);
}

// Seconds of the one step from a to b, or nothing when no single step does it.
std::optional<double> one_step(const Layout& a, const Layout& b, const TensorType& type, const Mesh& mesh,
                               const ReshardCosts& costs) {
  const auto bytes = [&](const Layout& layout) {
    double out = static_cast<double>(type.bytes());
    for (const auto& dim : layout.dims) out /= static_cast<double>(mesh.size_of(dim));
    return out;
  };
  std::vector<size_t> differ;
  for (size_t dim = 0; dim < a.dims.size(); ++dim) {
    if (a.dims[dim] != b.dims[dim]) differ.push_back(dim);
  }
  std::vector<int> lost;
  for (int axis : a.partial_axes()) {
    if (!b.is_partial_over(axis)) lost.push_back(axis);
  }
  if (b.partial.size() + lost.size() != a.partial.size()) return std::nullopt;
  if (differ.empty()) return collective(mesh, costs, lost, bytes(a), 2);
  if (differ.size() == 1) {
    auto added = suffix(a.dims[differ[0]], b.dims[differ[0]]);
    if (added && lost.empty()) return costs.slice_s * static_cast<double>(added->size());
    if (added) {
      std::vector<int> sorted = *added;
      std::sort(sorted.begin(), sorted.end());
      if (sorted != lost) return std::nullopt;
      return collective(mesh, costs, lost, bytes(a), 1);
    }
    const auto removed = suffix(b.dims[differ[0]], a.dims[differ[0]]);
    if (!removed || !lost.empty()) return std::nullopt;
    return collective(mesh, costs, *removed, bytes(b), 1);
  }
  if (differ.size() != 2 || !lost.empty() || !costs.enable_all_to_all) return std::nullopt;
  for (int turn = 0; turn < 2; ++turn, std::swap(differ[0], differ[1])) {
    const auto removed = suffix(b.dims[differ[0]], a.dims[differ[0]]);
    const auto added = suffix(a.dims[differ[1]], b.dims[differ[1]]);
    if (removed && added && *removed == *added) {
      return collective(mesh, costs, *removed, bytes(a), 1);
    }
  }
  return std::nullopt;
}

// Seconds of the cheapest chains from one layout to all, by relaxing every edge until nothing
// changes.
std::vector<double> optima(size_t from, const std::vector<std::map<size_t, double>>& edges) {
  std::vector<double> best(edges.size(), 1e300);
  best[from] = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t a = 0; a < edges.size(); ++a) {
      for (const auto& [b, cost] : edges[a]) {
        if (best[a] + cost >= best[b] * (1 - 1e-12)) continue;
        best[b] = best[a] + cost;
        changed = true;
      }
    }
  }
  return best;
}

// Compares every `sample`-th pair.
void expect_optimal(const char* mesh_text, const Shape& shape, const ReshardCosts& costs, size_t sample = 1) {
  SCOPED_TRACE(mesh_text);
  const Mesh mesh = parse_mesh(mesh_text);
  const TensorType type{DType::kF32, shape};
  const std::vector<Layout> layouts = all_layouts(shape, mesh);
  std::vector<std::map<size_t, double>> edges(layouts.size());
  for (size_t a = 0; a < layouts.size(); ++a) {
    for (size_t b = 0; b < layouts.size(); ++b) {
      if (a == b) continue;
      if (const auto cost = one_step(layouts[a], layouts[b], type, mesh, costs)) edges[a][b] = *cost;
    }
  }
  int compared = 0;
  for (size_t a = 0; a < layouts.size(); a += sample) {
    const std::vector<double> best = optima(a, edges);
    for (size_t b = a % sample; b < layouts.size(); b += sample) {
      if (best[b] >= 1e300) continue;
      const auto steps = plan_reshard(layouts[a], layouts[b], type, mesh, costs);
      ASSERT_NEAR(total_seconds(steps, type, mesh, costs), best[b], best[b] * 1e-9 + 1e-18)
          << to_string(layouts[a], mesh) << " to " << to_string(layouts[b], mesh) << ": " << to_string(steps, mesh);
      ++compared;
    }
  }
  EXPECT_GT(compared, 10);
}

TEST(OptimalReshard, costs_what_an_enumeration_of_all_chains_finds) {
  expect_optimal("a=2,b=2", {4, 4}, {});
  expect_optimal("a=2,b=2", {64, 64, 64}, by_bytes());
  expect_optimal("a=3,b=2", {12, 6}, by_bytes());
  expect_optimal("a=8", {16, 8}, by_bytes());
  expect_optimal("a=2,b=3,c=2", {24, 12}, {});
}

TEST(OptimalReshard, holds_with_links_of_different_speed) {
  ReshardCosts costs;
  costs.axes = {{1e-5, 1e8}, {1e-6, 1e9}, {1e-7, 1e10}};
  expect_optimal("a=2,b=2,c=2", {4096, 64}, costs);
  expect_optimal("a=2,b=2,c=2", {1 << 20}, costs);
}

TEST(OptimalReshard, holds_with_four_axes) {
  expect_optimal("a=2,b=2,c=2,d=2", {64, 64}, by_bytes(), 23);
}

TEST(OptimalReshard, holds_without_all_to_all) {
  ReshardCosts costs = by_bytes();
  costs.enable_all_to_all = false;
  expect_optimal("a=2,b=3", {36, 36}, costs);
}

}  // namespace
}  // namespace trireme::reshard_optimum_test
