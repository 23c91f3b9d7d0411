// A checkpoint's model as one safetensors file of whole tensors, for programs that know nothing of ranks.
#pragma once

#include <string>

#include "trireme/ckpt/checkpoint.h"

namespace trireme::ckpt {

// Writes the parameters, and the buffers of modules, but not the optimizer's state; atomically, with one tensor in
// memory at a time. The metadata has the step and what the checkpoint's index says of itself, but for the job's
// configuration.
void write_merged(const Reader& reader, const std::string& path, Disk& disk = trireme::disk());

}  // namespace trireme::ckpt
