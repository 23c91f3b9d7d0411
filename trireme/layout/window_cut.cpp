#include "trireme/layout/window_cut.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/layout/box.h"
#include "trireme/layout/interpret_reshard.h"

namespace trireme {
namespace {

constexpr int64_t kMostParts = 65'536;  // so that the end of the last window fits an int64_t
constexpr int64_t kMostPositions = int64_t{1} << 40;

template <class T>
void fill_as(const View& out, T value) {
  std::ranges::fill(out.as<T>(), value);
}

HostTensor part_of(const HostTensor& from, const Box& region) {
  HostTensor out(TensorType{from.type().dtype, region.size});
  copy_region(from.view(), Box::whole(from.shape()), out.view(), region, region);
  return out;
}

Box along(const Shape& shape, int dim, int64_t start, int64_t size) {
  Box box = Box::whole(shape);
  box.start[dim] = start;
  box.size[dim] = size;
  return box;
}

// The positions of window k that are inside the whole.
Range inside(const WindowCut& cut, int64_t k) {
  const int64_t from = std::max<int64_t>(cut.start(k), 0);
  const int64_t to = std::min(cut.start(k) + cut.length, cut.extent);
  return {from, std::max<int64_t>(to - from, 0)};
}

}  // namespace

Range common(const WindowCut& cut, int64_t k, int64_t j) {
  const int64_t from = std::max(cut.start(k), j * cut.block());
  const int64_t to = std::min(cut.start(k) + cut.length, (j + 1) * cut.block());
  return {from, std::max<int64_t>(to - from, 0)};
}

std::string why_not(const WindowCut& cut) {
  if (cut.parts < 1 || cut.length < 1 || cut.step < 0) {
    return fmt::format("{} windows of {} positions, {} apart; there must be 1 or more of each", cut.parts, cut.length,
                       cut.step);
  }
  const int64_t longest = std::max({cut.extent, cut.length, cut.step, cut.offset, cut.offset < 0 ? ~cut.offset : 0});
  if (cut.parts > kMostParts || cut.extent < 0 || longest > kMostPositions) {
    return fmt::format(
        "{} windows of {} positions, {} apart, of {} from {} on; there may be 2^16 windows and 2^40 positions",
        cut.parts, cut.length, cut.step, cut.extent, cut.offset);
  }
  if (cut.extent % cut.parts != 0) {
    return fmt::format("{} ranks do not divide {} positions in equal blocks", cut.parts, cut.extent);
  }
  for (int64_t k = 0; k < cut.parts; ++k) {
    const Range seen = inside(cut, k);
    const int64_t first = std::max<int64_t>(k - 1, 0) * cut.block();
    const int64_t end = std::min(k + 2, cut.parts) * cut.block();
    if (seen.size == 0 || (seen.start >= first && seen.start + seen.size <= end)) continue;
    return fmt::format(
        "part {} of {} needs positions [{},{}) and has a block of {}; it can only reach into the blocks next to it, "
        "[{},{})",
        k, cut.parts, seen.start, seen.start + seen.size, cut.block(), first, end);
  }
  return "";
}

void fill(const View& out, double value) {
  switch (out.type.dtype) {
    case DType::kF32:
      return fill_as(out, static_cast<float>(value));
    case DType::kF64:
      return fill_as(out, value);
    case DType::kBF16:
      return fill_as(out, BFloat16(static_cast<float>(value)));
    default:
      break;
  }
  require(value == 0, "{} cannot be filled with {}; fill it with 0", to_string(out.type), value);
  std::ranges::fill(out.raw(), std::byte{0});
}

HostTensor take_windows(const HostTensor& whole, int dim, const WindowCut& cut, double value) {
  TensorType type = whole.type();
  type.shape[dim] = cut.parts * cut.length;
  HostTensor out(type);
  fill(out.view(), value);
  for (int64_t k = 0; k < cut.parts; ++k) {
    const Range seen = inside(cut, k);
    const Box region = along(whole.shape(), dim, seen.start, seen.size);
    // Where position 0 of the whole would stand among the windows, if window k went that far.
    Box to = Box::whole(type.shape);
    to.start[dim] = cut.start(k) - k * cut.length;
    if (seen.size > 0) copy_region(whole.view(), Box::whole(whole.shape()), out.view(), to, region);
  }
  return out;
}

HostTensor add_windows(const HostTensor& windows, int dim, const WindowCut& cut) {
  TensorType type = windows.type();
  type.shape[dim] = cut.extent;
  HostTensor out(type);
  for (int64_t k = 0; k < cut.parts; ++k) {
    const Range seen = inside(cut, k);
    if (seen.size == 0) continue;
    const Box region = along(type.shape, dim, seen.start, seen.size);
    const HostTensor sum = part_of(out, region);
    const int64_t at = k * cut.length + seen.start - cut.start(k);
    reduce_into(sum.view(), part_of(windows, along(windows.shape(), dim, at, seen.size)).view(), Reduction::kSum);
    copy_region(sum.view(), region, out.view(), Box::whole(type.shape), region);
  }
  return out;
}

}  // namespace trireme
