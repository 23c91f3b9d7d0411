// What identifies a job. Its checkpoints contain it, so that no other job continues from them unnoticed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/data/source.h"
#include "trireme/train/job/config.h"
#include "trireme/train/step/assembly.h"

namespace trireme {

// For a checkpoint's meta: the configuration ("config"), the optimizer's kind, the model's ops, what its data look
// like and, where bits depend on it, the device's processor.
std::map<std::string, std::string> identity_of(const Assembly& assembly, const data::Source& train,
                                               const data::Source* held_out, const Device& device);

// "216 samples, tokens i32[24], ... (hash of some: ...)": of some samples, spread over the source, and how many it has.
std::string describe_samples(const data::Source& source);

// Throws kInvalidArgument if the checkpoint belongs to another model, optimizer or division of the data, naming the key
// and both values. Returns in words what else has changed: different rates or another text are a choice, but should not
// go unnoticed.
std::vector<std::string> check_same_job(const std::map<std::string, std::string>& saved,
                                        const std::map<std::string, std::string>& now, const std::string& checkpoint);

// Throws kInvalidArgument where a reader of the checkpoint, which trains nothing, would take it for another model: with
// other keys of the section [model], or another meaning of what it makes. Other data are fine.
void check_same_model(const JobConfig& trained, const JobConfig& now, const std::string& checkpoint);

// Whether the samples that `now` holds out are those that the run held out: no if it holds out none, or has other data.
// Throws kInvalidArgument, naming the key, if they are different samples of the same data, since the run was trained on
// some of them.
bool holds_out_the_same(const JobConfig& trained, const JobConfig& now, const std::string& checkpoint);

}  // namespace trireme
