// Loops of convolutions whose channels fill no vector (cpu/windows/conv_few_channels.cpp): lanes are positions of a
// line.
#pragma once

#include <cstdint>

namespace trireme::cpu {

// The windows of an image, which move by one position. x has all that they see in planes, one a channel, zeros at the
// edges included; floats past its end are read, as many as a tile is wide.
struct ImageWindows {
  int64_t lines = 0, columns = 0;  // of y
  int64_t inputs = 0, outputs = 0;
  int64_t taps_down = 0, taps_across = 0;
  int64_t x_line = 0;   // floats from one line to the next
  int64_t x_plane = 0;  // and from one channel to the next

  int64_t row() const { return taps_down * taps_across * inputs; }
  int64_t positions() const { return lines * columns; }
};

struct FewChannelLoops {
  // planes[channels][n], `apart` floats from one to the next: of n positions whose channels lie side by side. And back.
  void (*part_channels)(int64_t n, int64_t channels, const float* x, int64_t apart, float* planes);
  void (*join_channels)(int64_t n, int64_t channels, const float* planes, int64_t apart, float* y);

  // y[outputs][positions] of x and w[outputs][row].
  void (*planes_forward)(const ImageWindows& c, const float* x, const float* w, float* y);
  // Lanes of w's gradient += those of x and dy[outputs][positions]; there are lane_sums(c) floats of them.
  // The second makes w's gradient of them.
  void (*planes_weight)(const ImageWindows& c, const float* x, const float* dy, float* sums);
  void (*sum_planes_weight)(const ImageWindows& c, const float* sums, float* dw);

  // Lines of `run` floats, side by side in x, each added to its own of y, `y_line` apart.
  void (*add_lines)(int64_t lines, int64_t run, const float* x, int64_t y_line, float* y);
};

// Outputs and taps that planes_weight takes together, and the most lanes of a vector.
inline constexpr int64_t kOutputsTogether = 3, kTapsTogether = 5, kMostLanes = 16;

inline int64_t lane_sums(const ImageWindows& c) {
  const int64_t blocks = (c.outputs + kOutputsTogether - 1) / kOutputsTogether;
  return blocks * kOutputsTogether * ((c.row() + kTapsTogether - 1) / kTapsTogether) * kTapsTogether * kMostLanes;
}

}  // namespace trireme::cpu
