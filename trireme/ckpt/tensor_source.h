// Named tensors that are read by boxes, whoever wrote them: a checkpoint (checkpoint.h) or published weights
// (safetensors.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/layout/box.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::ckpt {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::string text() const = 0;                // for messages: "checkpoint 'runs/a/checkpoints/step-000100'"
  virtual std::vector<std::string> names() const = 0;  // sorted
  virtual bool has(std::string_view name) const = 0;
  virtual const TensorType& type(const std::string& name) const = 0;  // throws kNotFound, with the nearest name
  // Whether it is the optimizer's of a parameter, whose name its own begins with: "wte.weight.m".
  virtual bool is_state_of_parameter(const std::string& name) const = 0;
  // Of a tensor that is the values of each rank's own, one after the other along dimension 0: of how many ranks; else
  // 0.
  virtual int64_t ranks_with_own(const std::string& name) const = 0;
  // Fills `to` (of shape box.size) with the box of the tensor. Safe from several threads.
  virtual void read(const std::string& name, const Box& box, const View& to) const = 0;

  HostTensor read(const std::string& name) const;
  // Throws kInvalidArgument, with both, unless the stored tensor is `expected`, or differs from it in its element type
  // only and both types are convertible (tensor/convert.h), where that is enough.
  enum class Types { kTheSame, kConvertible };
  void require_type(const std::string& name, const TensorType& expected, Types types = Types::kTheSame) const;
};

// The parameter that a state of the optimizer is of: "wte.weight" of "wte.weight.m".
std::string owner_of_state(const std::string& name);

}  // namespace trireme::ckpt
