#include "trireme/backend/cpu/windows/conv_windows.h"

#include <algorithm>
#include <cstring>

#include "trireme/backend/cpu/isa/loops.h"

namespace trireme::cpu {
namespace {

// Taps whose elements lie side by side in x as in a row: those of a line, where no other taps or channels are between
// them, or one.
int64_t taps_together(const Windows& c) {
  return c.groups() == 1 && c.dilation_w == 1 ? c.w[2] : 1;
}

// A position of an image, which goes on to the next one without a division.
class PositionOf {
 public:
  PositionOf(const Windows& c, int64_t position)
      : c_(c), image_(position / (c.y[1] * c.y[2])), line_(position / c.y[2] % c.y[1]), column_(position % c.y[2]) {}

  int64_t image() const { return image_; }
  int64_t top() const { return line_ * c_.stride_h - c_.top; }
  int64_t left() const { return column_ * c_.stride_w - c_.left; }
  void next() {
    if (++column_ < c_.y[2]) return;
    column_ = 0;
    if (++line_ < c_.y[1]) return;
    line_ = 0;
    ++image_;
  }

 private:
  const Windows& c_;
  int64_t image_, line_, column_;
};

// Calls fn(offset in the image, elements that are there, zeros before and after them) for each run of the window.
template <class Fn>
void each_run(const Windows& c, int64_t group, const PositionOf& position, Fn&& fn) {
  const int64_t run = taps_together(c), channels = c.w[3];
  const int64_t top = position.top(), left = position.left();
  if (run == c.w[2] && c.groups() == 1) {
    const int64_t begin = std::clamp<int64_t>(-left, 0, run);
    const int64_t there = std::clamp<int64_t>(c.x[2] - left, begin, run) - begin;
    const int64_t before = begin * channels, count = there * channels, after = (run - begin - there) * channels;
    for (int64_t a = 0; a < c.w[1]; ++a) {
      const int64_t h = top + a * c.dilation_h;
      if (h >= 0 && h < c.x[1])
        fn((h * c.x[2] + left + begin) * c.x[3], count, before, after);
      else
        fn(0, 0, before + count, after);
    }
    return;
  }
  for (int64_t a = 0; a < c.w[1]; ++a) {
    const int64_t h = top + a * c.dilation_h;
    for (int64_t b = 0; b < c.w[2]; ++b) {
      const int64_t w = left + b * c.dilation_w;
      const bool inside = h >= 0 && h < c.x[1] && w >= 0 && w < c.x[2];
      fn(inside ? (h * c.x[2] + w) * c.x[3] + group * channels : 0, inside ? channels : 0, inside ? 0 : channels, 0);
    }
  }
}

template <class T>
T* put_zeros(int64_t n, T* to) {
  for (; n > 0; --n) *to++ = T{};
  return to;
}

// Of few elements a call would take longer than the copy.
template <class T>
T* put_run(const T* from, int64_t n, T* to) {
  constexpr int64_t kTogether = 16 / sizeof(T), kFew = 64;
  T* const end = to + n;
  if (n > kFew) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if (n >= kTogether) {
    const T* const last = from + n - kTogether;
    for (; from < last; from += kTogether, to += kTogether) std::memcpy(to, from, kTogether * sizeof(T));
    std::memcpy(end - kTogether, last, kTogether * sizeof(T));
  } else {
    while (to < end) *to++ = *from++;
  }
  return end;
}
inline float* put_run(const Bf16* from, int64_t n, float* to) {
  loops().bf16.to_f32(n, from, to);
  return to + n;
}

// A window that lies inside the image: one run for each of its lines, all of the same length, which is looked at once.
template <class T>
T* put_lines(const T* from, int64_t lines, int64_t step, int64_t n, T* to) {
  constexpr int64_t kTogether = 16 / sizeof(T);
  if (n < kTogether || n > 2 * kTogether) {
    for (; lines > 0; --lines, from += step) to = put_run(from, n, to);
    return to;
  }
  // Two pieces, the second of which ends where the run does.
  for (; lines > 0; --lines, from += step, to += n) {
    std::memcpy(to, from, kTogether * sizeof(T));
    std::memcpy(to + n - kTogether, from + n - kTogether, kTogether * sizeof(T));
  }
  return to;
}
inline float* put_lines(const Bf16* from, int64_t lines, int64_t step, int64_t n, float* to) {
  for (; lines > 0; --lines, from += step) to = put_run(from, n, to);
  return to;
}

}  // namespace

Windows windows_of(Pass pass, const Shape& a, const Shape& b, const Shape& result, const Conv2dAttrs& attrs) {
  const Shape& x = pass == Pass::kInput ? result : a;
  const Shape& y = pass == Pass::kForward ? result : b;
  const Shape& w = pass == Pass::kForward ? b : pass == Pass::kInput ? a : result;
  return {x,
          y,
          w,
          attrs.stride[0],
          attrs.stride[1],
          attrs.dilation[0],
          attrs.dilation[1],
          attrs.padding[0],
          attrs.padding.size() == 4 ? attrs.padding[2] : attrs.padding[1]};
}

template <class T, class Col>
void gather_windows(const Windows& c, int64_t group, int64_t first, int64_t count, const T* x, Col* cols) {
  const bool whole_lines = c.groups() == 1 && taps_together(c) == c.w[2];
  // Of the top left tap, where all the others are in the image, too.
  const int64_t tops = c.x[1] - (c.w[1] - 1) * c.dilation_h, lefts = c.x[2] - c.w[2] + 1;
  const int64_t line = c.x[2] * c.x[3];
  const int64_t lines = c.w[1], step = c.dilation_h * line, run = c.w[2] * c.w[3];
  PositionOf position(c, first);
  for (int64_t i = 0; i < count; ++i, position.next()) {
    const T* const image = x + position.image() * c.x[1] * line;
    const int64_t top = position.top(), left = position.left();
    if (whole_lines && top >= 0 && top < tops && left >= 0 && left < lefts) {
      cols = put_lines(image + top * line + left * c.x[3], lines, step, run, cols);
      continue;
    }
    each_run(c, group, position, [&](int64_t at, int64_t there, int64_t before, int64_t after) {
      cols = put_zeros(after, put_run(image + at, there, put_zeros(before, cols)));
    });
  }
}

void add_windows(const Windows& c, int64_t group, int64_t first, int64_t count, const float* cols, float* image) {
  const bool whole_lines = c.groups() == 1 && taps_together(c) == c.w[2];
  const int64_t tops = c.x[1] - (c.w[1] - 1) * c.dilation_h, lefts = c.x[2] - c.w[2] + 1;
  const int64_t line = c.x[2] * c.x[3], run = c.w[2] * c.w[3];
  const auto add_lines = loops().add_lines;
  PositionOf position(c, first);
  for (int64_t i = 0; i < count; ++i, position.next()) {
    const int64_t top = position.top(), left = position.left();
    if (whole_lines && top >= 0 && top < tops && left >= 0 && left < lefts) {
      add_lines(c.w[1], run, cols, c.dilation_h * line, image + top * line + left * c.x[3]);
      cols += c.row();
      continue;
    }
    each_run(c, group, position, [&](int64_t at, int64_t there, int64_t before, int64_t after) {
      cols += before;
      for (int64_t j = 0; j < there; ++j) image[at + j] += cols[j];
      cols += there + after;
    });
  }
}

template void gather_windows(const Windows&, int64_t, int64_t, int64_t, const float*, float*);
template void gather_windows(const Windows&, int64_t, int64_t, int64_t, const Bf16*, Bf16*);
template void gather_windows(const Windows&, int64_t, int64_t, int64_t, const Bf16*, float*);

}  // namespace trireme::cpu
