#include "trireme/cost/fit_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kMostAchieved = 1e3;  // what a machine's file may say

struct OfOp {
  std::vector<const OpSample*> samples;
  double seconds = 0;  // of all
};

constexpr size_t kTerms = 3;  // whose factors are launch_s, 1 / achievable and memory
using Terms = std::array<double, kTerms>;

Terms longer_of(const OpBound& bound) {
  return {1, std::max(bound.flops_s, bound.bytes_s), 0};
}

Terms sum_of(const OpBound& bound) {
  return {1, bound.flops_s, bound.bytes_s};
}

// Sums over samples of products of two terms, weighted by 1 / t, of terms, and of t.
struct Sums {
  std::array<Terms, kTerms> products = {};
  Terms terms = {};
  double t = 0;
};

Sums sums_of(std::span<const OpSample* const> samples, Terms (*terms_of)(const OpBound&)) {
  Sums out;
  for (const OpSample* sample : samples) {
    const Terms terms = terms_of(sample->bound);
    for (size_t i = 0; i < kTerms; ++i) {
      out.terms[i] += terms[i];
      for (size_t k = 0; k < kTerms; ++k) out.products[i][k] += terms[i] * terms[k] / sample->seconds;
    }
    out.t += sample->seconds;
  }
  return out;
}

// The factors of the terms `used` that minimise the sum of (terms * factors - t)^2 / t, the others 0; none where
// samples do not tell the terms apart. Gauss-Jordan with the largest pivot, terms scaled to 1.
std::optional<Terms> solve(const Sums& sums, const std::vector<size_t>& used) {
  const size_t n = used.size();
  std::array<std::array<double, kTerms + 1>, kTerms> rows = {};
  Terms scale = {};
  for (size_t i = 0; i < n; ++i) {
    scale[i] = std::sqrt(sums.products[used[i]][used[i]]);
    if (scale[i] <= 0) return std::nullopt;
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < n; ++k) rows[i][k] = sums.products[used[i]][used[k]] / (scale[i] * scale[k]);
    rows[i][n] = sums.terms[used[i]] / scale[i];
  }
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t k = i + 1; k < n; ++k) pivot = std::abs(rows[k][i]) > std::abs(rows[pivot][i]) ? k : pivot;
    std::swap(rows[i], rows[pivot]);
    if (std::abs(rows[i][i]) < 1e-6) return std::nullopt;
    for (size_t k = 0; k < n; ++k) {
      const double share = k == i ? 0 : rows[k][i] / rows[i][i];
      for (size_t column = i; column <= n; ++column) rows[k][column] -= share * rows[i][column];
    }
  }
  Terms out = {};
  for (size_t i = 0; i < n; ++i) out[used[i]] = rows[i][n] / rows[i][i] / scale[i];
  return out;
}

struct Fitted {
  Terms factors = {0, 1, 0};
  double error = std::numeric_limits<double>::infinity();
};

// Without a negative factor.
Fitted best_of(const Sums& sums, std::initializer_list<std::vector<size_t>> subsets) {
  Fitted best;
  for (const std::vector<size_t>& used : subsets) {
    const std::optional<Terms> found = solve(sums, used);
    if (!found || std::ranges::any_of(*found, [](double factor) { return factor < 0; })) continue;
    double error = sums.t;
    for (size_t i = 0; i < kTerms; ++i) {
      error -= 2 * (*found)[i] * sums.terms[i];
      for (size_t k = 0; k < kTerms; ++k) error += (*found)[i] * (*found)[k] * sums.products[i][k];
    }
    if (error < best.error - 1e-9 * sums.t) best = {*found, error};
  }
  return best;
}

OpRate fit(std::string ops, std::span<const OpSample* const> samples) {
  constexpr double kGain = 1e-3;  // of all times, for which one more factor is worth it
  const Sums longer = sums_of(samples, longer_of);
  Fitted best = best_of(longer, {{1}, {0, 1}, {0}});
  const Fitted sum = best_of(sums_of(samples, sum_of), {{1, 2}, {0, 1, 2}});
  if (sum.error < best.error - kGain * longer.t) best = sum;
  if (best.factors[1] < 1 / kMostAchieved) {  // what it takes hardly depends on its size
    const double launch_s = (longer.terms[0] - longer.products[0][1] / kMostAchieved) / longer.products[0][0];
    best.factors = {std::max(0.0, launch_s), 1 / kMostAchieved, 0};
  }
  return {.ops = std::move(ops),
          .achievable = 1 / best.factors[1],
          .launch_s = std::min(best.factors[0], 1.0),
          .memory = std::min(best.factors[2], kMostAchieved)};
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
