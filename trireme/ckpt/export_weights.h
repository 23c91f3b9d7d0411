// Tensors of a source as safetensors files of whole tensors, for programs that know nothing of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ckpt/safetensors.h"
#include "trireme/ckpt/selection.h"

namespace trireme::ckpt {

class Reader;

struct ExportOptions {
  Selection selection = {};
  std::optional<DType> dtype = {};  // of the floating-point tensors; none: as they are
  int64_t max_file_bytes = 0;       // of a file's tensors, where the path is a folder; 0: one file
  TextMap metadata = {};            // of each file, besides "format"
  std::function<void(int64_t bytes, int64_t of)> on_tensor = {};  // told when one is written, if anybody is
};

struct Exported {
  std::vector<std::string> files;  // in order, the index last where there is one
  int64_t tensors = 0;
  int64_t bytes = 0;  // of tensors
  // Elements that are infinite now and were not: too large for the type. By name, those with any.
  std::vector<std::pair<std::string, int64_t>> overflowed;
};

// A path that ends with .safetensors is one file, anything else a folder, which is made: model.safetensors, or
// model-00001-of-00003.safetensors and so on with model.safetensors.index.json, as Hugging Face names them, tensors in
// order of their names and a tensor above the limit in a file of its own. Each file is written beside its place and
// renamed, the index last; files of a folder's earlier export that this one does not have are removed then. One tensor
// is in memory at a time. Throws as select() does, and kInvalidArgument for max_file_bytes with a single file.
Exported export_weights(const TensorSource& source, const std::string& path, const ExportOptions& options = {},
                        Disk& disk = trireme::disk());

// What a file made of a checkpoint says of it: the step ("trireme_step") and what the index says, but for the job's
// configuration.
TextMap metadata_of(const Reader& reader);

}  // namespace trireme::ckpt
