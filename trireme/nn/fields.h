// Fields: tensors by name, in an order: the fields of a batch, or what a model predicts of them.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/ir/tensor.h"

namespace trireme::nn {

class Fields {
 public:
  using Field = std::pair<std::string, Tensor>;

  Fields() = default;
  Fields(std::initializer_list<Field> fields) : fields_(fields) {}

  // Throws kInvalidArgument for a name that is there already.
  void add(std::string name, const Tensor& tensor);
  // The tensor of that name; throws kNotFound with the names that there are.
  const Tensor& operator[](std::string_view name) const;
  bool contains(std::string_view name) const;

  size_t size() const { return fields_.size(); }
  const Field& front() const { return fields_.front(); }
  const Field& back() const { return fields_.back(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }
  std::string names() const;  // "dense, ids, label"

 private:
  std::vector<Field> fields_;
};

// What a model of one result predicts, by name.
inline constexpr const char* kPrediction = "prediction";

}  // namespace trireme::nn
