// full and one_hot of any element type.
#include "trireme/backend/cpu/movement/fill.h"

#include <algorithm>
#include <cstring>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/structural.h"

namespace trireme::cpu {
namespace {

template <class T>
Element bytes_of(T value) {
  Element element{};
  std::memcpy(element.data(), &value, sizeof value);
  return element;
}

template <class T>
void fill_with(const KernelArgs& args, const View& y, const Element& element) {
  T value;
  std::memcpy(&value, element.data(), sizeof value);
  T* to = reinterpret_cast<T*>(y.data);
  for_range(args, y.elements(), kGrain, [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
}

void run_full(const KernelArgs& args) {
  fill(args, args.out[0], args.attrs.as<FullAttrs>().value);
}

void run_one_hot(const KernelArgs& args) {
  const View& y = args.out[0];
  const int last = y.type.shape.rank() - 1;
  const int64_t depth = y.type.shape[last];
  const int64_t start = args.out_start(0, last);
  const auto size = static_cast<size_t>(size_of(y.type.dtype));
  const Indices ids(args.in[0]);
  const Element one = element_of(y.type.dtype, 1);
  for_range(args, ids.size(), rows_per_task(depth), [&](int64_t row, int64_t end) {
    std::byte* to = y.data + row * depth * static_cast<int64_t>(size);
    std::memset(to, 0, static_cast<size_t>((end - row) * depth) * size);
    for (; row < end; ++row, to += depth * static_cast<int64_t>(size)) {
      const int64_t at = ids[row] - start;
      if (at >= 0 && at < depth) std::memcpy(to + at * static_cast<int64_t>(size), one.data(), size);
    }
  });
}

}  // namespace

Element element_of(DType dtype, double value) {
  switch (dtype) {
    case DType::kF32:
      return bytes_of(static_cast<float>(value));
    case DType::kF64:
      return bytes_of(value);
    case DType::kBF16:
      return bytes_of(BFloat16(static_cast<float>(value)));
    case DType::kI8:
      return bytes_of(static_cast<int8_t>(value));
    case DType::kU8:
      return bytes_of(static_cast<uint8_t>(value));
    case DType::kI32:
      return bytes_of(static_cast<int32_t>(value));
    case DType::kI64:
      return bytes_of(static_cast<int64_t>(value));
    case DType::kBool:
      return bytes_of(value != 0);
    case DType::kF16:
      break;
  }
  fail(ErrorKind::kUnsupported, "f16 is stored and read, not computed with; use f32 or bf16");
}

void fill(const KernelArgs& args, const View& y, double value) {
  const Element element = element_of(y.type.dtype, value);
  switch (size_of(y.type.dtype)) {
    case 1:
      return fill_with<uint8_t>(args, y, element);
    case 2:
      return fill_with<uint16_t>(args, y, element);
    case 4:
      return fill_with<uint32_t>(args, y, element);
    default:
      return fill_with<uint64_t>(args, y, element);
  }
}

std::span<const Kernel> fill_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "full",
          .name = "full.fill",
          .why_not = any_f16,
          .run = run_full,
          .bits = Bits::kElement,
      },
      {
          .op = "one_hot",
          .name = "one_hot.fill",
          .why_not = any_f16,
          .run = run_one_hot,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
