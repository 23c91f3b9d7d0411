#include "trireme/ckpt/tensor_source.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/tensor/convert.h"

namespace trireme::ckpt {

HostTensor TensorSource::read(const std::string& name) const {
  HostTensor out(type(name));
  read(name, Box::whole(out.shape()), out.view());
  return out;
}

void TensorSource::require_type(const std::string& name, const TensorType& expected, Types types) const {
  const TensorType& found = type(name);
  const bool converted = types == Types::kConvertible && found.shape == expected.shape && is_convertible(found.dtype) &&
                         is_convertible(expected.dtype);
  require(found == expected || converted, "tensor '{}' is {} in {} but {} in the model; they must be equal", name,
          trireme::to_string(found), text(), trireme::to_string(expected));
}

std::string owner_of_state(const std::string& name) {
  return name.substr(0, std::min(name.rfind('.'), name.size()));
}

}  // namespace trireme::ckpt
