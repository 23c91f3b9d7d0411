// What the loops of few_channels.h do.
#pragma once

#include "trireme/backend/cpu/isa/channel_planes_impl.h"
#include "trireme/backend/cpu/isa/few_channels.h"
#include "trireme/backend/cpu/isa/product_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::ImageWindows;
using cpu::kOutputsTogether;
using cpu::kTapsTogether;

template <int rows>
[[gnu::always_inline]] static inline void clear_sums(TileSums<rows>& at) {
#pragma GCC unroll 16
  for (int i = 0; i < rows; ++i) at[i][0] = at[i][1] = F32{};
}

// fn(first output, constant of how many) for blocks of outputs of nearly equal size.
template <class Fn>
[[gnu::always_inline]] static inline void each_block_of_outputs(int64_t outputs, Fn&& fn) {
  const int64_t blocks = (outputs + kTileRows - 1) / kTileRows;
  const int64_t size = (outputs + blocks - 1) / blocks;
  for (int64_t o = 0; o < outputs; o += size) {
    const int64_t rows = outputs - o < size ? outputs - o : size;
    with_number<kTileRows>(
        rows, [&](auto block) __attribute__((always_inline)) { fn(o, block); });
  }
}

// One tile: some outputs and a line's positions.
template <int rows>
void planes_tile(const ImageWindows& c, const float* x, const float* w, int64_t columns, float* y) {
  TileSums<rows> at;
  clear_sums<rows>(at);
  const int64_t w_row = c.row();
  for (int64_t down = 0; down < c.taps_down; ++down) {
    for (int64_t across = 0; across < c.taps_across; ++across) {
      for (int64_t i = 0; i < c.inputs; ++i)
        add_term<rows>(at, w++, w_row, x + i * c.x_plane + down * c.x_line + across);
    }
  }
  store_sums<rows>(at, y, c.positions(), columns);
}

inline void planes_forward(const ImageWindows& c, const float* x, const float* w, float* y) {
  each_block_of_outputs(c.outputs, [&](int64_t o, auto block) {
    for (int64_t line = 0; line < c.lines; ++line) {
      for (int64_t column = 0; column < c.columns; column += kTileColumns) {
        const int64_t columns = c.columns - column < kTileColumns ? c.columns - column : kTileColumns;
        planes_tile<decltype(block)::value>(c, x + line * c.x_line + column, w + o * c.row(), columns,
                                            y + o * c.positions() + line * c.columns + column);
      }
    }
  });
}

using LaneSums = F32[kOutputsTogether][kTapsTogether];

// The lanes of a vector of positions.
template <class V>
[[gnu::always_inline]] static inline void add_lanes(LaneSums& at, V v, const float* const* x, const float* const* dy) {
  F32 d[kOutputsTogether];
#pragma GCC unroll 3
  for (int o = 0; o < kOutputsTogether; ++o) d[o] = v.get(dy[o]);
#pragma GCC unroll 5
  for (int t = 0; t < kTapsTogether; ++t) {
    const F32 seen = v.get(x[t]);
#pragma GCC unroll 3
    for (int o = 0; o < kOutputsTogether; ++o) add_product(at[o][t], seen, d[o]);
  }
}

// Some outputs and some taps, which begin at x; what is past the last ones is added up, too, and left.
inline void planes_weight_block(const ImageWindows& c, const float* const* taps, const float* const* outputs,
                                float* sums) {
  LaneSums at;
#pragma GCC unroll 15
  for (int i = 0; i < kOutputsTogether * kTapsTogether; ++i)
    at[i / kTapsTogether][i % kTapsTogether] = load(sums + i * kLanes);
  const float* x[kTapsTogether];
  const float* dy[kOutputsTogether];
  for (int64_t line = 0; line < c.lines; ++line) {
    for (int t = 0; t < kTapsTogether; ++t) x[t] = taps[t] + line * c.x_line;
    for (int o = 0; o < kOutputsTogether; ++o) dy[o] = outputs[o] + line * c.columns;
    for_each_vector(
        c.columns, [&](auto v) __attribute__((always_inline)) { add_lanes(at, v, x, dy); });
  }
#pragma GCC unroll 15
  for (int i = 0; i < kOutputsTogether * kTapsTogether; ++i)
    store(sums + i * kLanes, at[i / kTapsTogether][i % kTapsTogether]);
}

// Where tap t of the windows begins.
[[gnu::always_inline]] static inline int64_t place_of_tap(const ImageWindows& c, int64_t t) {
  const int64_t input = t % c.inputs, across = t / c.inputs % c.taps_across, down = t / c.inputs / c.taps_across;
  return input * c.x_plane + down * c.x_line + across;
}

inline void planes_weight(const ImageWindows& c, const float* x, const float* dy, float* sums) {
  const auto least = [](int64_t a, int64_t b) { return a < b ? a : b; };
  const float* taps[kTapsTogether];
  const float* outputs[kOutputsTogether];
  for (int64_t t = 0; t < c.row(); t += kTapsTogether) {
    for (int64_t i = 0; i < kTapsTogether; ++i) taps[i] = x + place_of_tap(c, least(t + i, c.row() - 1));
    for (int64_t o = 0; o < c.outputs; o += kOutputsTogether) {
      for (int64_t i = 0; i < kOutputsTogether; ++i) outputs[i] = dy + least(o + i, c.outputs - 1) * c.positions();
      planes_weight_block(c, taps, outputs, sums);
      sums += kOutputsTogether * kTapsTogether * kLanes;
    }
  }
}

inline void sum_planes_weight(const ImageWindows& c, const float* sums, float* dw) {
  for (int64_t t = 0; t < c.row(); t += kTapsTogether) {
    for (int64_t o = 0; o < c.outputs; o += kOutputsTogether) {
      for (int64_t i = 0; i < kOutputsTogether * kTapsTogether; ++i, sums += kLanes) {
        const int64_t output = o + i / kTapsTogether, tap = t + i % kTapsTogether;
        if (output < c.outputs && tap < c.row()) dw[output * c.row() + tap] = sum_lanes(load(sums));
      }
    }
  }
}

inline void add_lines(int64_t lines, int64_t run, const float* x, int64_t y_line, float* y) {
  for (; lines > 0; --lines, x += run, y += y_line) {
    for_each_vector(
        run, [&](auto v) __attribute__((always_inline)) { v.put(y, v.get(y) + v.get(x)); });
  }
}

constexpr cpu::FewChannelLoops few_channel_loops() {
  return {.part_channels = part_channels,
          .join_channels = join_channels,
          .planes_forward = planes_forward,
          .planes_weight = planes_weight,
          .sum_planes_weight = sum_planes_weight,
          .add_lines = add_lines};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
