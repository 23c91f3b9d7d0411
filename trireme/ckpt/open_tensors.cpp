#include "trireme/ckpt/open_tensors.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt {
namespace {

bool is_of_weights(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

}  // namespace

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
