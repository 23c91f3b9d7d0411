#include "trireme/planner/solver/weighted.h"

#include <algorithm>
#include <utility>

namespace trireme::solver {
namespace {

// Row numbers in the order of their labels.
std::vector<size_t> sorted_rows(const std::vector<int32_t>& labels, size_t width, size_t count) {
  std::vector<size_t> order(count);
  for (size_t r = 0; r < count; ++r) order[r] = r;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto row = [&](size_t r) { return labels.begin() + static_cast<int64_t>(r * width); };
    return std::lexicographical_compare(row(a), row(a + 1), row(b), row(b + 1));
  });
  return order;
}

}  // namespace

int64_t combinations(std::span<const int> sizes) {
  int64_t out = 1;
  for (const int size : sizes) {
    if (out > kMostEntries / std::max(size, 1)) return kMostEntries + 1;
    out *= size;
  }
  return out;
}

int64_t Weighted::at(std::span<const int32_t> of) const {
  const std::vector<int32_t>& labels = all->labels;
  if (all->is_dense) {
    size_t index = 0;
    for (size_t i = 0; i < variables.size(); ++i)
      index = index * static_cast<size_t>(all->sizes[i]) + static_cast<size_t>(of[static_cast<size_t>(variables[i])]);
    return all->values[index];
  }
  size_t begin = 0, end = all->values.size();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    int compared = 0;
    for (size_t i = 0; i < variables.size() && compared == 0; ++i)
      compared = labels[middle * variables.size() + i] - of[static_cast<size_t>(variables[i])];
    if (compared == 0) return all->values[middle];
    if (compared < 0) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return kNever;
}

Weighted renumbered(const Weighted& table, std::span<const int> number) {
  const Entries& from = *table.all;
  const size_t width = table.variables.size();
  std::vector<size_t> order(width);
  for (size_t i = 0; i < width; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return number[a] < number[b]; });
  std::vector<int> variables;
  Entries rows{.is_dense = false};
  for (const size_t i : order) {
    variables.push_back(number[i]);
    rows.sizes.push_back(from.sizes[i]);
  }
  std::vector<int32_t> now(width, 0);
  for (size_t r = 0; r < from.values.size(); ++r) {
    if (!from.is_dense)
      now.assign(from.labels.begin() + static_cast<int64_t>(r * width),
                 from.labels.begin() + static_cast<int64_t>((r + 1) * width));
    if (from.values[r] < kNever) {
      for (const size_t i : order) rows.labels.push_back(now[i]);
      rows.values.push_back(from.values[r]);
    }
    for (size_t i = width; from.is_dense && i-- > 0;) {
      if (++now[i] < from.sizes[i]) break;
      now[i] = 0;
    }
  }
  Entries out{.sizes = rows.sizes, .is_dense = from.is_dense};
  const std::vector<size_t> sorted = sorted_rows(rows.labels, width, rows.values.size());
  if (from.is_dense) out.values.assign(from.values.size(), kNever);
  for (const size_t r : sorted) {
    size_t index = 0;
    for (size_t i = 0; i < width; ++i)
      index = index * static_cast<size_t>(out.sizes[i]) + static_cast<size_t>(rows.labels[r * width + i]);
    if (from.is_dense) {
      out.values[index] = rows.values[r];
    } else {
      out.values.push_back(rows.values[r]);
      out.labels.insert(out.labels.end(), rows.labels.begin() + static_cast<int64_t>(r * width),
                        rows.labels.begin() + static_cast<int64_t>((r + 1) * width));
    }
  }
  return {std::move(variables), std::make_shared<const Entries>(std::move(out))};
}

}  // namespace trireme::solver
