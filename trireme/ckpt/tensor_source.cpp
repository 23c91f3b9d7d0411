#include "trireme/ckpt/tensor_source.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/tensor/convert.h"

namespace trireme::ckpt {
namespace {

bool is_of_weights(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

}  // namespace

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

bool holds_checkpoints(const std::string& path) {
  return is_directory(path) && std::ranges::any_of(list_directory(path), [](const std::string& name) {
           return name == kCommitName || name == kIndexName || parse_step_name(name).has_value();
         });
}

std::string checkpoints_of(const std::string& path) {
  const std::string of_run = join_path(path, "checkpoints");
  return is_directory(of_run) ? of_run : path;
}

std::unique_ptr<TensorSource> open_tensors(const std::string& path) {
  const std::string at = checkpoints_of(path);
  if (is_directory(at)) {
    if (!holds_checkpoints(at) && std::ranges::any_of(list_directory(at), is_of_weights)) {
      return std::make_unique<Weights>(Weights::open(at));
    }
    return std::make_unique<Reader>(at);
  }
  if (is_file(at)) {
    if (is_of_weights(at)) return std::make_unique<Weights>(Weights::open(at));
    fail(ErrorKind::kNotFound,
         "'{}' is neither a folder of checkpoints nor published weights, whose names end with .safetensors or "
         ".safetensors.index.json",
         path);
  }
  fail(ErrorKind::kNotFound, "there is no checkpoint '{}', and no file of weights", path);
}

}  // namespace trireme::ckpt
