#include "trireme/ops/update/update.h"

#include "trireme/base/said.h"

namespace trireme {

void check_update(std::string_view op, std::string_view names, std::span<const TensorType> in, size_t tensors) {
  size_t from = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t end = std::min(names.find(',', from), names.size());
    const std::string_view name = names.substr(from, end - from);
    from = end + 2;
    if (i < tensors) {
      require(is_floating(in[i].dtype) && in[i] == in[0],
              "{}: {} is {}; all tensors must be of one floating type and shape, as param {}", op, name, said(in[i]),
              said(in[0]));
    } else if (name == "step") {
      require(in[i] == i64({}), "{}: step is {}; it must be i64[]", op, said(in[i]));
    } else {
      require(is_floating(in[i].dtype) && in[i].shape.rank() == 0, "{}: {} is {}; it must be a floating scalar", op,
              name, said(in[i]));
    }
  }
}

void check_adam(std::string_view op, const AdamAttrs& attrs) {
  require(attrs.beta1 >= 0 && attrs.beta1 < 1 && attrs.beta2 >= 0 && attrs.beta2 < 1,
          "{}: beta1 is {} and beta2 is {}; both must be at least 0 and below 1", op, attrs.beta1, attrs.beta2);
  require(attrs.eps >= 0 && attrs.weight_decay >= 0, "{}: eps is {} and weight_decay is {}; neither may be negative",
          op, attrs.eps, attrs.weight_decay);
}

ShardingRule update_rule(const TypeArgs& args) {
  std::string text;
  for (size_t i = 0; i < args.in.size(); ++i) {
    // A parameter may be a scalar itself: `*` then stands for no dimension at all.
    const bool tensor = args.in[i].shape == args.out[0].shape;
    text += (i > 0 ? "," : "") + std::string(tensor ? "*" : "");
  }
  text += "->";
  for (size_t i = 0; i < args.out.size(); ++i) text += i > 0 ? ",*" : "*";
  return parse_rule(text, args.in, args.out);
}

Cost update_cost(const TypeArgs& args, double flops_per_element) {
  return {.flops = flops_per_element * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

}  // namespace trireme
