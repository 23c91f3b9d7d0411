// conv2d and the gradient of its weight where channels are so few that they fill no vector of 16, as in the first
// layers for images of one colour. Lanes are positions of a line, for which channels are brought to planes. An image at
// a time stays in the caches, with zeros around it, so that no window reaches over an edge.
#include <algorithm>

#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_windows.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kPartsOfImages = 8;  // of images, one a task
constexpr int64_t kHalfOfLanes = kMostLanes / 2;
constexpr int64_t kTileOfPositions = 2 * kMostLanes;      // past the end of an image as much is read
constexpr int64_t kMostFloatsOfImage = int64_t{1} << 16;  // with its result

constexpr double kShareOfLanes = 0.7;  // that are of use, at least

// How much of the vectors is of use, where `n` numbers are taken `step` at a time.
double share_in_use(int64_t n, int64_t step) {
  return static_cast<double>(n) / static_cast<double>(rounded_up(n, step));
}

// How the images are taken, by sizes alone, and where what is needed beside the tensors lies: for each thread, an image
// with zeros around it and, in planes, its result or dy, and sums of lanes; for all, sums of parts of the images.
struct FewChannelPlan {
  Windows c;
  Pass pass;
  ImageWindows image;
  int64_t per_part, parts;

  FewChannelPlan(Pass p, const Windows& windows) : c(windows), pass(p) {
    image = {.lines = c.y[1],
             .columns = c.y[2],
             .inputs = c.w[3],
             .outputs = c.w[0],
             .taps_down = c.w[1],
             .taps_across = c.w[2],
             .x_line = c.y[2] + c.w[2] - 1,
             .x_plane = (c.y[1] + c.w[1] - 1) * (c.y[2] + c.w[2] - 1)};
    per_part = std::max<int64_t>(1, parts_of(c.x[0], kPartsOfImages));
    parts = parts_of(c.x[0], per_part);
  }

  double lanes_in_use() const {
    if (pass == Pass::kForward) return share_in_use(image.columns, kTileOfPositions);
    return share_in_use(image.columns, kMostLanes) * share_in_use(image.row(), kTapsTogether) *
           share_in_use(image.outputs, kOutputsTogether);
  }

  int64_t x_floats() const { return image.inputs * image.x_plane + kTileOfPositions; }
  int64_t y_floats() const { return image.positions() * image.outputs; }
  int64_t lane_floats() const { return pass == Pass::kWeight ? lane_sums(image) : 0; }
  int64_t thread_floats() const {
    return rounded_up(x_floats(), kMostLanes) + rounded_up(y_floats(), kMostLanes) + lane_floats();
  }
  int64_t sum_floats() const { return pass == Pass::kWeight ? rounded_up(c.w.elements(), kMostLanes) : 0; }
  int64_t scratch_bytes(int threads) const {
    const int64_t floats = std::max<int64_t>(0, parts - 1) * sum_floats() + threads * thread_floats();
    return kAlign + floats * static_cast<int64_t>(sizeof(float));
  }
};

template <Pass pass>
FewChannelPlan plan_of_call(const KernelArgs& args) {
  return {pass, windows_of(pass, args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape,
                           args.attrs.as<Conv2dAttrs>())};
}

template <Pass pass>
FewChannelPlan plan_of_call(const TypeArgs& args) {
  return {pass, windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>())};
}

// A thread's room.
struct FewChannelRoom {
  float *x, *y, *lanes;

  FewChannelRoom(const FewChannelPlan& plan, const KernelArgs& args, int thread) {
    x = reinterpret_cast<float*>(align(args.scratch.data())) +
        std::max<int64_t>(0, plan.parts - 1) * plan.sum_floats() + thread * plan.thread_floats();
    y = x + rounded_up(plan.x_floats(), kMostLanes);
    lanes = y + rounded_up(plan.y_floats(), kMostLanes);
    std::fill_n(x, plan.x_floats(), 0.0F);
    std::fill_n(lanes, plan.lane_floats(), 0.0F);
  }
};

// What the windows of an image see, into a room whose other numbers stay zero.
void put_image(const FewChannelPlan& plan, const float* from, float* room) {
  const Windows& c = plan.c;
  const int64_t lines = std::min(c.x[1], c.y[1] + c.w[1] - 1 - c.top);
  const int64_t columns = std::min(c.x[2], c.y[2] + c.w[2] - 1 - c.left);
  for (int64_t line = 0; line < lines; ++line, from += c.x[2] * c.x[3]) {
    float* const to = room + (line + c.top) * plan.image.x_line + c.left;
    if (c.x[3] > 1) {
      loops().part_channels(columns, c.x[3], from, plan.image.x_plane, to);
    } else {
      std::copy_n(from, columns, to);
    }
  }
}

// fn(part, a thread's room, its first image, the end of its images).
template <class Fn>
void each_part_of_images(const FewChannelPlan& plan, const KernelArgs& args, Fn&& fn) {
  run_tasks(args.pool, plan.parts, [&](int64_t part, int thread) {
    const FewChannelRoom room(plan, args, thread);
    fn(part, room, part * plan.per_part, std::min(plan.c.x[0], (part + 1) * plan.per_part));
  });
}

void forward_by_planes(const KernelArgs& args) {
  const FewChannelPlan plan = plan_of_call<Pass::kForward>(args);
  const float* const x = args.in[0].as<float>().data();
  const float* const w = args.in[1].as<float>().data();
  float* const y = args.out[0].as<float>().data();
  const int64_t x_step = plan.c.x[1] * plan.c.x[2] * plan.c.x[3], positions = plan.image.positions();
  each_part_of_images(plan, args, [&](int64_t, const FewChannelRoom& room, int64_t image, int64_t end) {
    for (; image < end; ++image) {
      put_image(plan, x + image * x_step, room.x);
      loops().planes_forward(plan.image, room.x, w, room.y);
      loops().join_channels(positions, plan.image.outputs, room.y, positions,
                            y + image * plan.image.outputs * positions);
    }
  });
}

void weight_grad_by_planes(const KernelArgs& args) {
  const FewChannelPlan plan = plan_of_call<Pass::kWeight>(args);
  const float* const x = args.in[0].as<float>().data();
  const float* const dy = args.in[1].as<float>().data();
  float* const dw = args.out[0].as<float>().data();
  auto* const sums = reinterpret_cast<float*>(align(args.scratch.data()));
  const auto sum_of = [&](int64_t part) { return part == 0 ? dw : sums + (part - 1) * plan.sum_floats(); };
  const int64_t x_step = plan.c.x[1] * plan.c.x[2] * plan.c.x[3];
  const int64_t outputs = plan.image.outputs, positions = plan.image.positions();
  each_part_of_images(plan, args, [&](int64_t part, const FewChannelRoom& room, int64_t image, int64_t end) {
    for (; image < end; ++image) {
      put_image(plan, x + image * x_step, room.x);
      loops().part_channels(positions, outputs, dy + image * outputs * positions, positions, room.y);
      loops().planes_weight(plan.image, room.x, room.y, room.lanes);
    }
    loops().sum_planes_weight(plan.image, room.lanes, sum_of(part));
  });
  for (int64_t part = 1; part < plan.parts; ++part) loops().f32.accumulate(plan.c.w.elements(), sum_of(part), dw);
}

template <Pass pass>
std::string why_not_few_channels(const TypeArgs& args) {
  if (isa() < Isa::kAvx512) return fmt::format("vectors of {} are short", to_string(isa()));
  if (std::string reason = not_all_f32(args); !reason.empty()) return reason;
  const FewChannelPlan plan = plan_of_call<pass>(args);
  const Windows& c = plan.c;
  if (c.x.elements() == 0 || c.y.elements() == 0 || c.w.elements() == 0) return "a tensor is empty";
  if (c.groups() != 1) return "channels are in groups";
  if (c.stride_h != 1 || c.stride_w != 1 || c.dilation_h != 1 || c.dilation_w != 1)
    return "windows do not move by one position, or their taps lie apart";
  if (plan.x_floats() + plan.y_floats() > kMostFloatsOfImage) return "an image is too large for the caches";
  if (c.w[0] > kHalfOfLanes || c.w[3] > kHalfOfLanes) return "channels fill half of a vector";
  if (plan.lanes_in_use() < kShareOfLanes) return "lines leave much of their vectors empty";
  return "";
}

template <Pass pass>
int64_t few_channels_scratch(const TypeArgs& args, int threads) {
  return plan_of_call<pass>(args).scratch_bytes(threads);
}

template <Pass pass>
constexpr Kernel of_few_channels(std::string_view op, std::string_view name, KernelFn* run) {
  return {
      .op = op,
      .name = name,
      .why_not = why_not_few_channels<pass>,
      .scratch = few_channels_scratch<pass>,
      .run = run,
      .bits = Bits::kShape,
  };
}

}  // namespace

std::span<const Kernel> conv_few_channels_kernels() {
  static constexpr Kernel kAll[] = {
      of_few_channels<Pass::kForward>("conv2d", "conv2d.few_channels", forward_by_planes),
      of_few_channels<Pass::kWeight>("conv2d_grad_weight", "conv2d_grad_weight.few_channels", weight_grad_by_planes),
  };
  return kAll;
}

}  // namespace trireme::cpu
