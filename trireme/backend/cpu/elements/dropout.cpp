// dropout of f32 and bf16 tensors: the random words of a stretch of elements are drawn, then
// compared.
#include <algorithm>
#include <array>
#include <cmath>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/base/rng.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kWords = 1024;

// The piece as lines that are contiguous in the whole tensor too.
int64_t line_size(const Shape& piece, const Shape& whole) {
  int64_t size = 1;
  for (int dim = piece.rank() - 1; dim >= 0; --dim) {
    size *= piece[dim];
    if (piece[dim] != whole[dim]) break;
  }
  return size;
}

// The row-major index in the whole tensor of element `first` of the piece.
uint64_t place_of(const KernelArgs& args, int64_t first) {
  const Shape& piece = args.out[0].type.shape;
  const auto strides = args.out_whole(0).strides();
  int64_t place = 0;
  for (int dim = piece.rank() - 1; dim >= 0; --dim) {
    place += (first % piece[dim] + args.out_start(0, dim)) * strides[static_cast<size_t>(dim)];
    first /= piece[dim];
  }
  return static_cast<uint64_t>(place);
}

template <class T>
void run_dropout(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<DropoutAttrs>();
  const Stream stream{static_cast<uint64_t>(attrs.seed), static_cast<uint64_t>(attrs.stream)};
  const auto step = static_cast<uint64_t>(args.in[1].as<int64_t>()[0]);
  // (word >> 8) 2^-24 >= p where word >= limit.
  const auto limit = static_cast<uint64_t>(std::ceil(attrs.p * 0x1p24)) << 8;
  const auto scale = static_cast<float>(1 / (1 - attrs.p));
  const T* x = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  const int64_t line = line_size(args.out[0].type.shape, args.out_whole(0));
  const int64_t pieces = (line + kWords - 1) / kWords;
  const int64_t lines = line == 0 ? 0 : args.out[0].elements() / line;
  for_range(args, lines * pieces, rows_per_task(std::min(line, kWords)), [&](int64_t item, int64_t end) {
    std::array<uint32_t, kWords> words;
    for (; item < end; ++item) {
      const int64_t from = item % pieces * kWords;
      const int64_t n = std::min(kWords, line - from);
      const int64_t first = item / pieces * line + from;
      fill_random_bits(stream, place_of(args, first), step, {words.data(), static_cast<size_t>(n)});
      loops_on<T>().dropout(n, words.data(), limit, scale, x + first, y + first);
    }
  });
}

}  // namespace

std::span<const Kernel> dropout_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "dropout",
          .name = "dropout.simd",
          .why_not = first_not_float,
          .run = by_storage<run_dropout<float>, run_dropout<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
