#include "trireme/ops/convolution/window.h"

#include "trireme/base/said.h"

namespace trireme {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;  // positions of a window, a stride, a padding

std::string list(std::span<const int64_t> values) {
  std::string out;
  for (const int64_t value : values) out += (out.empty() ? "" : ",") + std::to_string(value);
  return "[" + out + "]";
}

void check_list(std::string_view op, std::string_view name, std::span<const int64_t> values, int64_t least) {
  bool ok = values.size() == 2;
  for (const int64_t value : values) ok = ok && value >= least && value <= kMost;
  require(ok, "{}: {} is {}; it must be [h,w], each at least {} and at most 2^24", op, name, list(values), least);
}

}  // namespace

Windows windows_of(std::string_view op, std::span<const int64_t> kernel, std::span<const int64_t> stride,
                   std::span<const int64_t> padding, std::span<const int64_t> dilation) {
  check_list(op, "kernel", kernel, 1);
  check_list(op, "stride", stride, 1);
  check_list(op, "dilation", dilation, 1);
  bool ok = padding.size() == 2 || padding.size() == 4;
  for (const int64_t value : padding) ok = ok && value >= 0 && value <= kMost;
  require(ok, "{}: padding is {}; it must be [h,w] or [top,bottom,left,right], none negative or above 2^24", op,
          list(padding));
  const bool both = padding.size() == 2;
  Windows out;
  for (size_t i = 0; i < 2; ++i) {
    out[i] = {kernel[i], stride[i], both ? padding[i] : padding[2 * i], both ? padding[i] : padding[2 * i + 1],
              dilation[i]};
  }
  return out;
}

TensorType window_output(std::string_view op, const TensorType& x, const Windows& windows, int64_t channels) {
  TensorType y = x;
  y.shape[3] = channels;
  for (int i = 0; i < 2; ++i) {
    const Window& window = windows[static_cast<size_t>(i)];
    const int64_t padded = x.shape[i + 1] + window.before + window.after;
    require(window.reach() <= padded,
            "{}: a window of {} positions does not fit dimension {}, which has {} with padding (x {})", op,
            window.reach(), i + 1, padded, said(x));
    y.shape[i + 1] = window.output(x.shape[i + 1]);
  }
  return y;
}

WindowParts window_parts(const Windows& windows, double fill) {
  WindowParts out;
  for (size_t i = 0; i < 2; ++i) {
    const char letter = i == 0 ? 'p' : 'q';
    const Window& w = windows[i];
    out.x += letter;
    out.y += letter;
    if (w.reach() == 1 && w.stride == 1 && w.before == 0 && w.after == 0) continue;
    out.x += '~';
    out.windows[letter] = {.stride = w.stride, .before = w.before, .reach = w.reach(), .fill = fill};
  }
  return out;
}

std::vector<int64_t> without_padding(std::span<const int64_t> padding, int dim) {
  std::vector<int64_t> out(padding.begin(), padding.end());
  if (out.size() == 2) out = {padding[0], padding[0], padding[1], padding[1]};
  const auto first = static_cast<size_t>(2 * (dim - 1));
  out[first] = out[first + 1] = 0;
  return out;
}

}  // namespace trireme
