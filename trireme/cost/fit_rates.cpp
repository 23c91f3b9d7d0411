#include "trireme/cost/fit_rates.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kMostAchieved = 1e3;  // what a machine's file may say

struct OfOp {
  std::vector<const OpSample*> samples;
  double seconds = 0;  // of all
};

// Minimises the sum of (a + b x - t)^2 / t over a >= 0 and b > 0, by x = bound_s and t = seconds.
OpRate fit(std::string ops, std::span<const OpSample* const> samples) {
  double w = 0, wx = 0, wxx = 0, wt = 0, wxt = 0;  // sums weighted by 1 / t
  for (const OpSample* sample : samples) {
    const double x = sample->bound_s, t = sample->seconds, weight = 1 / t;
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const double determinant = w * wxx - wx * wx;
  const bool is_line = determinant > 1e-9 * w * wxx;
  double a = is_line ? (wxx * wt - wx * wxt) / determinant : 0;
  double b = is_line ? (w * wxt - wx * wt) / determinant : 0;
  if (!is_line || a < 0) {  // through zero
    a = 0;
    b = wxx > 0 ? wxt / wxx : 0;
  }
  if (b < 1 / kMostAchieved) {  // what it takes hardly depends on its size
    b = 1 / kMostAchieved;
    a = std::max(0.0, (wt - b * wx) / w);
  }
  return {std::move(ops), 1 / b, std::min(a, 1.0)};
}

}  // namespace

std::vector<OpRate> fit_op_rates(std::span<const OpSample> samples) {
  std::map<std::string, OfOp> by_op;
  OfOp all;
  for (const OpSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    for (OfOp* of : {&by_op[sample.op], &all}) {
      of->samples.push_back(&sample);
      of->seconds += sample.seconds;
    }
  }
  require(!all.samples.empty(), "rates of ops: nothing was measured");
  std::vector<std::pair<double, OpRate>> rates;
  for (const auto& [op, of] : by_op) rates.emplace_back(of.seconds, fit(op, of.samples));
  std::ranges::stable_sort(rates, std::ranges::greater{}, &std::pair<double, OpRate>::first);
  std::vector<OpRate> out;
  for (auto& [seconds, rate] : rates) out.push_back(std::move(rate));
  out.push_back(fit("*", all.samples));
  return out;
}

}  // namespace trireme
