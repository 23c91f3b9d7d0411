// run_op: infers an op's results and runs its reference kernel on host tensors. For tests of single
// ops.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/op/registry.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {

// An operand of a call, which keeps it alive.
struct Operand {
  Operand(const HostTensor& tensor) : view(tensor.view()) {}  // NOLINT: written as plain tensors
  View view;
};

inline std::vector<HostTensor> run_op(std::string_view name, std::initializer_list<Operand> in,
                                      std::string_view attrs_text = "{}", std::span<const Place> in_place = {},
                                      std::span<const Place> out_place = {},
                                      std::span<const TensorType> out_types = {}) {
  const OpDef& def = op(name);
  const Attrs attrs = def.parse_attrs(attrs_text);
  std::vector<TensorType> types;
  std::vector<View> in_views, out_views;
  for (const Operand& operand : in) {
    types.push_back(operand.view.type);
    in_views.push_back(operand.view);
  }
  // A piece of a result may be smaller than the one that the op infers from its attributes.
  const std::vector<TensorType> results =
      out_types.empty() ? def.infer.get()({types, attrs}) : std::vector<TensorType>(out_types.begin(), out_types.end());
  std::vector<HostTensor> out;
  for (const TensorType& type : results) out_views.push_back(out.emplace_back(type).view());
  def.kernel.get()({in_views, out_views, in_place, out_place, attrs, {}, nullptr, nullptr});
  return out;
}

// The text of the error that fn throws; "" when it throws none.
template <class Fn>
std::string error_text(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

inline HostTensor vec(const std::vector<float>& values) {
  return HostTensor::of<float>({static_cast<int64_t>(values.size())}, values);
}
inline HostTensor scalar_f32(float value) {
  return HostTensor::of<float>({}, {value});
}
inline HostTensor scalar_i64(int64_t value) {
  return HostTensor::of<int64_t>({}, {value});
}

inline std::vector<double> values(const HostTensor& tensor) {
  std::vector<double> out;
  if (tensor.type().dtype == DType::kF64) {
    out.assign(tensor.as<double>().begin(), tensor.as<double>().end());
  } else {
    out.assign(tensor.as<float>().begin(), tensor.as<float>().end());
  }
  return out;
}

}  // namespace trireme
