// rotary and rotary_at of f32 and bf16 tensors. The cosines and sines of rotary's positions are the same in every step:
// they are computed in the first call and kept.
#include <cmath>
#include <memory>
#include <vector>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// cos and sin [s, d/2].
struct Angles {
  std::vector<float> cos, sin;
};

// Of positions that are counted from `first` on.
std::shared_ptr<Angles> angles_of(const KernelArgs& args, int64_t first) {
  const auto& attrs = args.attrs.as<RotaryAttrs>();
  const Shape& shape = args.in[0].type.shape;
  const int64_t pairs = shape[3] / 2;
  auto angles = std::make_shared<Angles>();
  angles->cos.resize(static_cast<size_t>(shape[1] * pairs));
  angles->sin.resize(angles->cos.size());
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(attrs.theta, -2 * static_cast<double>(i) / static_cast<double>(shape[3]));
    for (int64_t row = 0; row < shape[1]; ++row) {
      const double angle = static_cast<double>(first + args.in_start(0, 1) + row) * frequency;
      const auto at = static_cast<size_t>(row * pairs + i);
      angles->cos[at] = static_cast<float>(std::cos(angle));
      angles->sin[at] = static_cast<float>(attrs.inverse ? -std::sin(angle) : std::sin(angle));
    }
  }
  return angles;
}

// b batches, s positions, h heads, d elements of a head.
template <class T>
void rotate_heads(const KernelArgs& args, const Angles& angles) {
  const Shape& shape = args.in[0].type.shape;
  const int64_t s = shape[1], h = shape[2], d = shape[3];
  const T* x = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, shape[0] * s, rows_per_task(h * d), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const int64_t angle = row % s * (d / 2);
      for (int64_t at = row * h * d; at < (row + 1) * h * d; at += d) {
        loops_on<T>().rotate(d / 2, angles.cos.data() + angle, angles.sin.data() + angle, x + at, y + at);
      }
    }
  });
}

template <class T>
void rotary(const KernelArgs& args) {
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = angles_of(args, 0);
  rotate_heads<T>(args, *static_cast<const Angles*>(state.get()));
}

template <class T>
void rotary_at(const KernelArgs& args) {
  rotate_heads<T>(args, *angles_of(args, Indices(args.in[1])[0]));
}

std::string rotary_at_why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  return reason.empty() ? operand_not_index(args, 1) : reason;
}

}  // namespace

std::span<const Kernel> rotary_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "rotary",
          .name = "rotary.simd",
          .why_not = first_not_float,
          .run = by_storage<rotary<float>, rotary<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "rotary_at",
          .name = "rotary_at.simd",
          .why_not = rotary_at_why_not,
          .run = by_storage<rotary_at<float>, rotary_at<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
