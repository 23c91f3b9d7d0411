// A session's parameters and optimizer state to and from checkpoints, at any number of ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/step/session/session.h"

namespace trireme {

struct SaveRequest {
  std::string root;
  int64_t step = 0;
  uint64_t seed = 0;
  int64_t data_position = 0;
  int64_t keep = 2;
  std::vector<int64_t> keep_steps = {};  // stay besides
  std::map<std::string, std::string> meta = {};
};

// Collective; returns the checkpoint's folder. Each distinct piece is written once.
std::string save_session(Session& session, comm::World* world, const SaveRequest& request);

// Reads every parameter and state this rank holds. Throws when one is missing or of another type, naming it, and why a
// parameter's state is missing, which was frozen when the checkpoint was made.
void load_session(Session& session, const ckpt::Reader& reader);

// This rank's piece of one of them alone, from any source; kConvertible: elements of another type are taken in that of
// the model.
void load_input(Session& session, const ckpt::TensorSource& source, const PlanInput& input,
                ckpt::TensorSource::Types types = ckpt::TensorSource::Types::kTheSame);

// Every rank's text, in order of rank. Collective.
std::vector<std::string> gather_texts(comm::World& world, const std::string& mine);

}  // namespace trireme
