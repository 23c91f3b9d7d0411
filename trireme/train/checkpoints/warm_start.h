// A warm start: the parameters of a session begin with those that a checkpoint of another job, or a file of published
// weights, has under their names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/ckpt/tensor_source.h"
#include "trireme/train/step/session/session.h"

namespace trireme {

// Parameters and buffers: what a model has without its optimizer.
std::vector<const Input*> inputs_of_model(const Graph& graph);

// What FitOptions::init_from names, as ckpt::open_tensors (ckpt/open_tensors.h) takes it. Throws as that does.
std::unique_ptr<ckpt::TensorSource> warm_start_source(const std::string& named);

struct WarmStart {
  size_t taken = 0;
  std::vector<std::string> anew;        // of the session, in the order of the graph's inputs
  std::vector<std::string> left_out;    // of the source, sorted
  size_t converted = 0;                 // of those taken, from another element type
  std::vector<std::string> not_finite;  // of those taken, parameters with NaN or infinite values in this rank's piece
};

// Reads this rank's pieces of all parameters and buffers, which the session has initialised, whatever layout, number
// of ranks and floating-point type they were written in; the optimizer's state stays as it is. What one of the patterns
// `except` names (base/words.h) is not read. Throws kInvalidArgument, on all ranks alike and before anything is read,
// listing the names that only one of the two has, and those of other shapes with both; and for a pattern that names
// nothing.
WarmStart start_from(Session& session, const ckpt::TensorSource& source, const std::vector<std::string>& except);

}  // namespace trireme
