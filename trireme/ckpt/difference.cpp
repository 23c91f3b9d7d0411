#include "trireme/ckpt/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/tensor/convert.h"

namespace trireme::ckpt {
namespace {

bool is_selected(const TensorSource& source, const Selection& selection, const std::string& name) {
  const auto fits = [&](const std::string& pattern) { return matches(pattern, name); };
  return (selection.state || !source.is_state_of_parameter(name)) &&
         (selection.only.empty() || std::ranges::any_of(selection.only, fits)) &&
         std::ranges::none_of(selection.except, fits);
}

// Elements [first, first + count) as f64.
HostTensor numbers(const HostTensor& tensor, int64_t first, int64_t count) {
  const TensorType part{tensor.type().dtype, {count}};
  HostTensor out(TensorType{DType::kF64, {count}});
  convert(View{tensor.view().data + first * size_of(part.dtype), part}, out.view());
  return out;
}

void compare_numbers(std::span<const double> a, std::span<const double> b, TensorDifference& out) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(a[i])) out.magnitude = std::max(out.magnitude, std::abs(a[i]));
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    ++out.elements;
    const double apart = std::abs(a[i] - b[i]);
    out.largest = std::max(out.largest, std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity());
  }
}

// Integers and truth values: how many differ.
void compare_bytes(const HostTensor& a, const HostTensor& b, TensorDifference& out) {
  const auto left = a.view().raw(), right = b.view().raw();
  const auto size = static_cast<size_t>(size_of(a.type().dtype));
  for (size_t at = 0; at < left.size(); at += size) {
    out.elements += std::equal(left.begin() + static_cast<std::ptrdiff_t>(at),
                               left.begin() + static_cast<std::ptrdiff_t>(at + size),
                               right.begin() + static_cast<std::ptrdiff_t>(at))
                        ? 0
                        : 1;
  }
}

void compare(const HostTensor& a, const HostTensor& b, TensorDifference& out) {
  if (a.type() == b.type() && std::ranges::equal(a.view().raw(), b.view().raw())) return;
  if (!is_convertible(a.type().dtype)) return compare_bytes(a, b, out);
  constexpr int64_t kAtOnce = 1 << 16;
  for (int64_t at = 0; at < a.view().elements(); at += kAtOnce) {
    const int64_t count = std::min(kAtOnce, a.view().elements() - at);
    compare_numbers(numbers(a, at, count).as<double>(), numbers(b, at, count).as<double>(), out);
  }
}

}  // namespace

Difference difference(const TensorSource& first, const TensorSource& second, const Selection& selection) {
  Difference out;
  std::set<std::string> seen;
  for (const Selected& tensor : select(first, selection)) {
    seen.insert(tensor.renamed);
    if (!second.has(tensor.renamed)) {
      out.only_first.push_back(tensor.name);
      continue;
    }
    TensorDifference found{
        .name = tensor.name, .first = first.type(tensor.name), .second = second.type(tensor.renamed)};
    const bool numbers = is_convertible(found.first.dtype) && is_convertible(found.second.dtype);
    if (found.first == found.second || (numbers && found.first.shape == found.second.shape)) {
      compare(first.read(tensor.name), second.read(tensor.renamed), found);
    }
    if (found.first != found.second) {
      out.types.push_back(std::move(found));
      continue;
    }
    if (found.elements > 0) {
      out.values.push_back(std::move(found));
    } else {
      ++out.equal;
    }
  }
  for (const std::string& name : second.names()) {
    if (is_selected(second, selection, name) && !seen.contains(name)) out.only_second.push_back(name);
  }
  return out;
}

}  // namespace trireme::ckpt
