// Opens tensors by the path of what holds them.
#pragma once

#include <memory>
#include <string>

#include "trireme/ckpt/tensor_source.h"

namespace trireme::ckpt {

// What a path names: a run's folder or that of its checkpoints (the newest is meant), one checkpoint, a .safetensors
// file, a .safetensors.index.json, or a folder of published weights (Weights::open). Throws kNotFound where it is none.
std::unique_ptr<TensorSource> open_tensors(const std::string& path);

// Whether a folder is a checkpoint, or holds some, whole or not.
bool holds_checkpoints(const std::string& path);

// Of a run's folder, or that of its checkpoints, the latter; anything else as it is.
std::string checkpoints_of(const std::string& path);

}  // namespace trireme::ckpt
