// A warm start: the parameters of a session begin with those that a checkpoint of another job has under their names.
#pragma once

#include <string>
#include <vector>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/step/session.h"

namespace trireme {

// What FitOptions::init_from names: a checkpoint's folder, a run's folder, or that of its checkpoints, of which the
// newest is meant; or a safetensors file of whole tensors. Throws as ckpt::Reader does.
std::string warm_start_folder(const std::string& named);

struct WarmStart {
  size_t taken = 0;
  std::vector<std::string> anew;      // of the session, in the order of the graph's inputs
  std::vector<std::string> left_out;  // of the checkpoint, sorted
};

// Reads this rank's pieces of all parameters and buffers, which the session has initialised, whatever layout and number
// of ranks the checkpoint was written by; the optimizer's state stays as it is. What one of the patterns `except` names
// (base/words.h) is not read. Throws kInvalidArgument, on all ranks alike and before anything is read, listing the
// names that only one of the two has, and those of other shapes with both; and for a pattern that names nothing.
WarmStart start_from(Session& session, const ckpt::Reader& reader, const std::vector<std::string>& except);

}  // namespace trireme
