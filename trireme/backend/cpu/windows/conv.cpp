// conv2d and its two gradients of f32 and bf16 tensors by oneDNN, on [n,h,w,c] tensors where they
// lie; weights are brought into oneDNN's own order and back. Images are cut into parts of fixed
// size, one part a task on one thread; the weight gradient adds its parts in order.
//
// The input's gradient of a convolution of stride 1 is itself one, of dy with the weight's inputs
// and outputs exchanged and its taps in reverse; oneDNN's forward kernels are the better ones.
#include <algorithm>
#include <array>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_rivals.h"
#include "trireme/backend/cpu/windows/conv_windows.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

using dnnl::memory;
using Pairs = memory::dims;

constexpr int64_t kParts = 8;
// Of a weight gradient: adding up the parts, each as large as the weight, must take little of the
// time, so a part has so many positions at least.
constexpr int64_t kPositionsOfPart = 1024;

// The three tensors of a convolution, whichever is the result.
struct Problem {
  Shape x, w, y;
  int64_t groups;
  Pairs stride, dilation, before, after;
  memory::data_type type;
  // A gradient of the input, written as the forward convolution that gives it: x is dy, y is dx, and w has
  // the sizes of the exchanged weight [i,kh,kw,o].
  bool mirrored = false;
};

// The gradient of x as a forward convolution, where it is one.
void mirror(Problem& c) {
  Pairs before, after;
  for (size_t dim = 0; dim < 2; ++dim) {
    const int64_t reach = (c.w[static_cast<int>(dim) + 1] - 1) * (c.dilation[dim] + 1);
    before.push_back(reach - c.before[dim]);
    after.push_back(reach - c.after[dim]);
    if (c.stride[dim] != 1 || before[dim] < 0 || after[dim] < 0) return;
  }
  if (c.groups > 1) return;
  std::swap(c.x, c.y);
  std::swap(c.w[0], c.w[3]);
  c.before = before;
  c.after = after;
  c.mirrored = true;
}

Problem problem_of(Pass pass, const TensorType& a, const TensorType& b, const TensorType& result,
                   const Conv2dAttrs& attrs) {
  const bool four = attrs.padding.size() == 4;  // [top,bottom,left,right], else [h,w]
  const auto& p = attrs.padding;
  Problem c{.x = a.shape,
            .w = b.shape,
            .y = result.shape,
            .groups = 1,
            .stride = {attrs.stride[0], attrs.stride[1]},
            .dilation = {attrs.dilation[0] - 1, attrs.dilation[1] - 1},
            .before = {p[0], four ? p[2] : p[1]},
            .after = {four ? p[1] : p[0], four ? p[3] : p[1]},
            .type = a.dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32};
  if (pass == Pass::kInput) c.x = result.shape, c.w = a.shape, c.y = b.shape;
  if (pass == Pass::kWeight) c.w = result.shape, c.y = b.shape;
  c.groups = c.x[3] / c.w[3];  // those of this piece: the attribute counts the whole tensor's
  if (pass == Pass::kInput) mirror(c);
  return c;
}

memory::desc image_desc(const Problem& c, const Shape& s, int64_t images) {
  return {{images, s[3], s[1], s[2]}, c.type, memory::format_tag::nhwc};
}

// The weight [o,h,w,i] as oneDNN's [o,i,h,w] or [g,o,i,h,w]. Its gradient is f32.
memory::desc weight_desc(const Problem& c, Pass pass) {
  const int64_t o = c.w[0] / c.groups, h = c.w[1], w = c.w[2], i = c.w[3];
  Pairs sizes{o, i, h, w};
  Pairs strides{h * w * i, 1, w * i, i};
  if (c.mirrored) strides = {1, h * w * o, w * o, o};
  if (c.groups > 1) {
    sizes.insert(sizes.begin(), c.groups);
    strides.insert(strides.begin(), o * h * w * i);
  }
  return {sizes, pass == Pass::kWeight ? memory::data_type::f32 : c.type, strides};
}

// In the order that oneDNN likes.
memory::desc weight_desc(const Problem& c, memory::data_type type) {
  return {weight_desc(c, Pass::kForward).dims(), type, memory::format_tag::any};
}

// One convolution of `images` images.
struct Step {
  dnnl::primitive run;
  memory::desc x, w, y, scratchpad;
  std::string way;  // oneDNN's name for how it computes it
};

template <class Backward, class Desc>
Step backward_step(const Desc& desc, const dnnl::convolution_forward::primitive_desc& forward, bool weight) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const typename Backward::primitive_desc pd(desc, attr, onednn_engine(), forward);
  const auto md = [&](dnnl::query what, int index) { return pd.query_md(what, index); };
  Step step;
  step.run = Backward(pd);
  step.x = weight ? md(dnnl::query::src_md, 0) : md(dnnl::query::diff_src_md, 0);
  step.w = weight ? md(dnnl::query::diff_weights_md, 0) : md(dnnl::query::weights_md, 0);
  step.y = md(dnnl::query::diff_dst_md, 0);
  step.scratchpad = pd.scratchpad_desc();
  step.way = pd.impl_info_str();
  return step;
}

Step make_step(Pass pass, const Problem& c, int64_t images, const memory::desc& w) {
  using dnnl::algorithm;
  const memory::desc x = image_desc(c, c.x, images);
  const memory::desc y = image_desc(c, c.y, images);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc forward_w = pass == Pass::kWeight ? weight_desc(c, c.type) : w;
  const dnnl::convolution_forward::desc forward(dnnl::prop_kind::forward_training, algorithm::convolution_direct, x,
                                                forward_w, y, c.stride, c.dilation, c.before, c.after);
  const dnnl::convolution_forward::primitive_desc pd(forward, attr, onednn_engine());
  if (pass == Pass::kForward) {
    return {dnnl::convolution_forward(pd), pd.src_desc(),     pd.weights_desc(), pd.dst_desc(),
            pd.scratchpad_desc(),          pd.impl_info_str()};
  }
  if (pass == Pass::kInput) {
    const dnnl::convolution_backward_data::desc desc(algorithm::convolution_direct, x, w, y, c.stride, c.dilation,
                                                     c.before, c.after);
    return backward_step<dnnl::convolution_backward_data>(desc, pd, false);
  }
  const dnnl::convolution_backward_weights::desc desc(algorithm::convolution_direct, x, w, y, c.stride, c.dilation,
                                                      c.before, c.after);
  return backward_step<dnnl::convolution_backward_weights>(desc, pd, true);
}

// The primitives of one call and where their memory lies in its scratch:
//   the weight in oneDNN's order, or, of a weight gradient, one sum a part; a scratchpad a thread.
struct ConvPlan {
  Pass pass;
  Problem problem;
  int64_t images, parts, per_part;
  Step whole, last;  // of per_part images, and of those of the last part
  memory::desc w_user;
  int64_t w_bytes, pad_bytes;
  dnnl::reorder weight_order;

  ConvPlan(Pass p, const Problem& c) : pass(c.mirrored ? Pass::kForward : p), problem(c), images(c.x[0]) {
    prepare_onednn();
    int64_t most = kParts;
    if (pass == Pass::kWeight) {
      most = std::clamp<int64_t>(images * c.y[1] * c.y[2] / kPositionsOfPart, 2, kParts);
    }
    per_part = std::max<int64_t>(1, (images + most - 1) / most);
    parts = (images + per_part - 1) / per_part;
    // Sums of gradients stay f32.
    const auto type = pass == Pass::kWeight ? memory::data_type::f32 : c.type;
    whole = make_step(pass, c, per_part, weight_desc(c, type));
    last = make_step(pass, c, images - (parts - 1) * per_part, whole.w);
    w_user = weight_desc(c, pass);
    w_bytes = aligned(static_cast<int64_t>(whole.w.get_size()));
    pad_bytes = aligned(static_cast<int64_t>(std::max(whole.scratchpad.get_size(), last.scratchpad.get_size())));
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    weight_order = pass == Pass::kWeight ? dnnl::reorder({onednn_engine(), whole.w, onednn_engine(), w_user, attr})
                                         : dnnl::reorder({onednn_engine(), w_user, onednn_engine(), whole.w, attr});
  }

  int64_t weights() const { return pass == Pass::kWeight ? parts : 1; }
  // The exchanged weight with its taps in reverse, before it is brought into order.
  int64_t reversed_bytes() const {
    if (!problem.mirrored || problem.w[1] * problem.w[2] == 1) return 0;
    return aligned(problem.w.elements() * static_cast<int64_t>(memory::data_type_size(problem.type)));
  }
  int64_t scratch_bytes(int threads) const {
    return kAlign + weights() * w_bytes + reversed_bytes() + threads * pad_bytes;
  }
};

template <Pass pass>
int64_t conv_scratch(const TypeArgs& args, int threads) {
  const Problem c = problem_of(pass, args.in[0], args.in[1], args.out[0], args.attrs.as<Conv2dAttrs>());
  return ConvPlan(pass, c).scratch_bytes(threads);
}

void reorder_weight(const ConvPlan& plan, const memory::desc& from_desc, void* from, const memory::desc& to_desc,
                    void* to) {
  dnnl::stream stream(onednn_engine());
  memory source(from_desc, onednn_engine(), from);
  memory target(to_desc, onednn_engine(), to);
  plan.weight_order.execute(stream, {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, target}});
}

// Weight [o,taps,i] with the taps from last to first.
void reverse_taps(const ConvPlan& plan, const std::byte* from, std::byte* to) {
  const Shape& w = plan.problem.w;  // [i,kh,kw,o]
  const int64_t taps = w[1] * w[2];
  const auto bytes = w[0] * static_cast<int64_t>(memory::data_type_size(plan.problem.type));
  for (int64_t o = 0; o < w[3]; ++o) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      std::copy_n(from + (o * taps + tap) * bytes, bytes, to + ((o + 1) * taps - 1 - tap) * bytes);
    }
  }
}

void run_part(const ConvPlan& plan, int64_t part, std::byte* x, void* w, std::byte* y, void* scratchpad) {
  prepare_onednn();
  const Step& step = part + 1 == plan.parts ? plan.last : plan.whole;
  const auto item = static_cast<int64_t>(memory::data_type_size(plan.problem.type));
  const auto image = [&](const Shape& s) { return part * plan.per_part * s[1] * s[2] * s[3] * item; };
  dnnl::stream stream(onednn_engine());
  const memory xm(step.x, onednn_engine(), x + image(plan.problem.x));
  const memory wm(step.w, onednn_engine(), w);
  const memory ym(step.y, onednn_engine(), y + image(plan.problem.y));
  const memory pad(step.scratchpad, onednn_engine(), scratchpad);
  const bool weight = plan.pass == Pass::kWeight;
  if (plan.pass == Pass::kForward) {
    step.run.execute(stream,
                     {{DNNL_ARG_SRC, xm}, {DNNL_ARG_WEIGHTS, wm}, {DNNL_ARG_DST, ym}, {DNNL_ARG_SCRATCHPAD, pad}});
  } else {
    step.run.execute(stream, {{weight ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, xm},
                              {weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, wm},
                              {DNNL_ARG_DIFF_DST, ym},
                              {DNNL_ARG_SCRATCHPAD, pad}});
  }
}

template <Pass pass>
void run_conv(const KernelArgs& args) {
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) {
    state = std::make_shared<ConvPlan>(
        pass, problem_of(pass, args.in[0].type, args.in[1].type, args.out[0].type, args.attrs.as<Conv2dAttrs>()));
  }
  const ConvPlan& plan = *static_cast<const ConvPlan*>(state.get());
  std::byte* a = args.in[0].data;
  std::byte* b = args.in[1].data;
  std::byte* result = args.out[0].data;
  std::byte* x = pass == Pass::kInput ? result : a;
  std::byte* w = pass == Pass::kForward ? b : pass == Pass::kInput ? a : result;
  std::byte* y = pass == Pass::kForward ? result : b;
  if (plan.problem.mirrored) std::swap(x, y);
  std::byte* weights = align(args.scratch.data());
  std::byte* reversed = weights + plan.weights() * plan.w_bytes;
  std::byte* pads = reversed + plan.reversed_bytes();
  if (plan.reversed_bytes() > 0) {
    reverse_taps(plan, w, reversed);
    w = reversed;
  }
  if (pass != Pass::kWeight) reorder_weight(plan, plan.w_user, w, plan.whole.w, weights);
  run_tasks(args.pool, plan.parts, [&](int64_t part, int thread) {
    std::byte* weight = weights + (pass == Pass::kWeight ? part * plan.w_bytes : 0);
    run_part(plan, part, x, weight, y, pads + thread * plan.pad_bytes);
  });
  if (pass != Pass::kWeight) return;
  const auto floats = static_cast<int64_t>(plan.whole.w.get_size() / sizeof(float));
  for (int64_t part = 1; part < plan.parts; ++part) {
    loops().f32.accumulate(floats, reinterpret_cast<const float*>(weights + part * plan.w_bytes),
                           reinterpret_cast<float*>(weights));
  }
  reorder_weight(plan, plan.whole.w, weights, plan.w_user, w);
}

template <Pass pass>
std::string conv_why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  if (!reason.empty()) return reason;
  // Without instructions for bf16, oneDNN widens it itself, but not below avx512.
  if (args.in[0].dtype == DType::kBF16 && !(isa() >= Isa::kAvx512 && onednn_has(Isa::kAvx512)))
    return fmt::format("oneDNN has no convolutions of bf16 for {}", to_string(isa()));
  for (const TensorType& type : {args.in[0], args.in[1], args.out[0]}) {
    if (type.elements() == 0) return fmt::format("{} is empty", to_string(type));
  }
  return why_no_onednn_sizes(pass, args);
}

}  // namespace

std::string why_no_onednn_sizes(Pass pass, const TypeArgs& args) {
  const Problem c = problem_of(pass, args.in[0], args.in[1], args.out[0], args.attrs.as<Conv2dAttrs>());
  for (size_t dim = 0; dim < 2; ++dim) {
    const int at = static_cast<int>(dim) + 1;
    const int64_t reach = (c.w[at] - 1) * (c.dilation[dim] + 1) + 1;
    const int64_t made = (c.x[at] - reach + c.before[dim] + c.after[dim]) / c.stride[dim] + 1;
    if (made != c.y[at])
      return fmt::format("oneDNN makes {} positions of {}, and {} are asked for", made, c.x[at], c.y[at]);
  }
  return "";
}

std::string onednn_way_of(Pass pass, const TypeArgs& args) {
  return ConvPlan(pass, problem_of(pass, args.in[0], args.in[1], args.out[0], args.attrs.as<Conv2dAttrs>())).whole.way;
}

std::span<const Kernel> conv_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "conv2d",
          .name = "conv2d.onednn",
          .why_not = conv_why_not<Pass::kForward>,
          .scratch = conv_scratch<Pass::kForward>,
          .run = run_conv<Pass::kForward>,
          .bits = Bits::kShape,
          .rivals = &kConvRivals<Pass::kForward>,
      },
      {
          .op = "conv2d_grad_input",
          .name = "conv2d_grad_input.onednn",
          .why_not = conv_why_not<Pass::kInput>,
          .scratch = conv_scratch<Pass::kInput>,
          .run = run_conv<Pass::kInput>,
          .bits = Bits::kShape,
          .rivals = &kConvRivals<Pass::kInput>,
      },
      {
          .op = "conv2d_grad_weight",
          .name = "conv2d_grad_weight.onednn",
          .why_not = conv_why_not<Pass::kWeight>,
          .scratch = conv_scratch<Pass::kWeight>,
          .run = run_conv<Pass::kWeight>,
          .bits = Bits::kShape,
          .rivals = &kConvRivals<Pass::kWeight>,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
