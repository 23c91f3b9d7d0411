// The kinds of model, data and optimizer: which there are, which keys they have, and what a job's configuration makes
// of those it chose.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/train/job/config.h"

namespace trireme {

// Those that the configuration chose.
const nn::ModelSpec& model_of(const JobConfig& config);
const data::DataSpec& data_of(const JobConfig& config);
const nn::OptimizerSpec& optimizer_of(const JobConfig& config);

// The fields of a sample, as the data give them and the model takes them.
std::vector<FieldSpec> fields_of(const JobConfig& config);

// What they make.
std::unique_ptr<nn::Module> make_model(const JobConfig& config);
LossFn make_loss(const JobConfig& config);
// Whether the loss can be taken of logits that ranks have parts of: by parallel.vocabulary, where tp cuts weights, or a
// mesh or strategy of the job's own may.
bool has_loss_in_parts(const JobConfig& config);
data::Split make_data(const JobConfig& config);
bool predicts_classes(const JobConfig& config);  // one class a sample; else one token a position
bool writes_text(const JobConfig& config);       // a language model over bytes
// The fields of a batch of so many samples.
std::vector<BatchField> batch_of(const JobConfig& config, int64_t batch);

// Makes the specs those of the kinds that the configuration names, with their defaults where they were others. Throws
// kInvalidArgument for kinds that there are not.
void choose_kinds(JobConfig& config);
// A configuration of defaults with the kinds of this one.
JobConfig with_kinds_of(const JobConfig& config);

// The keys that name the kinds: model.kind, data.kind, train.optimizer.
std::vector<ConfigKey> names_of_kinds(JobConfig& config);
// The keys of the sections [model] and [data], with their kinds.
std::vector<ConfigKey> keys_of_kinds(JobConfig& config);
// train.optimizer and the optimizer's numbers, but for its rate.
std::vector<ConfigKey> optimizer_keys(JobConfig& config);
// Keys of them that have no effect, and beside what.
std::vector<std::pair<std::string, std::string>> effects_of_kinds(const JobConfig& config);
// Throws kInvalidArgument where a value is out of range, two do not go together, or the model takes other data.
void check_kinds(const JobConfig& config);

// Keys of the kinds that a job did not choose. They may stand at their defaults, which ask for nothing.
class OtherKinds {
 public:
  explicit OtherKinds(const JobConfig& config);
  const std::vector<ConfigKey>& keys() const { return keys_; }
  // Throws kInvalidArgument for a key that was given another value.
  void check(const JobConfig& config) const;

 private:
  std::vector<std::unique_ptr<nn::ModelSpec>> models_;
  std::vector<std::unique_ptr<data::DataSpec>> data_;
  std::vector<std::unique_ptr<nn::OptimizerSpec>> optimizers_;
  std::vector<ConfigKey> keys_;
  std::vector<std::string> defaults_;  // of the keys
};

// A key as help lists it: once for all kinds that have it for the same.
struct KeyHelp {
  std::string name;
  std::string doc;    // "gpt, llama: blocks"
  Key row = {};       // its target has the type of the values and is not to be read
  std::string usual;  // the default, as a job's file has it; where kinds differ "gpt 4, llama 8"
};
std::vector<KeyHelp> all_keys();
// "[model]\nkind = "llama"\n..." of every kind of model, of data and of optimizer.
std::string defaults_of_kinds();

}  // namespace trireme
