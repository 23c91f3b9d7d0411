// Flags that are keys of the configuration under a shorter name. A flag that is given overrides its key with any value,
// also with the default. Of a flag given twice the last counts (cli/main.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/keys.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme {
struct JobConfig;
struct KeyHelp;
}  // namespace trireme

namespace trireme::cli {

class KeyFlags {
 public:
  // A flag of these names, "--sp,!--no-sp" of a key that is true or false, for the key of this type of values.
  CLI::Option* add(CLI::App& command, const std::string& names, const std::string& key, const KeyTarget& type,
                   const std::string& help);

  // A flag without a value, for the key at this value.
  void add_switch(CLI::App& command, const std::string& name, const std::string& key, const std::string& value,
                  const std::string& help);

  // What was given, as "key=value". Throws where a key and its switch, --mode and --auto, differ: which of them came
  // last is not known.
  std::vector<std::string> overrides() const;
  // The value given for the key; null: none was.
  const std::string* given(const std::string& key) const;

 private:
  using Given = std::vector<std::pair<std::string, std::string>>;
  std::shared_ptr<Given> given_ = std::make_shared<Given>();  // filled as the command line is read, shared by copies
};

// Throws kInvalidArgument where a flag, "key=value", and --set give a key two values, or say in two ways how long a job
// trains: which of them came last is not known.
void refuse_contradictions(const std::vector<std::string>& of_flags, const std::vector<std::string>& set);

// --set, "key=value" as plain_override (train/job/config.h) writes it, any number of times.
void add_set(CLI::App& command, std::vector<std::string>& set, const std::string& help);

// The flags that rows of keys have: of a job's, or of those alone that say what `trireme bench step` times.
enum class FlagsOf { kJob, kBench };
void add_flags_of_keys(CLI::App& command, KeyFlags& flags, FlagsOf which);

// What flags at other values than their defaults imply (base/keys.h), where neither a flag nor `set` nor the job's file
// says otherwise: --tp asks for the mode in which the compiler cuts the model.
void ask_implied(const KeyFlags& flags, JobConfig& config, const std::vector<std::string>& set = {});

// Keys that kinds have for different things, as train.weight_decay of optimizers, joined: each once, with all that it
// is for.
std::vector<KeyHelp> each_once(std::vector<KeyHelp> keys);

// "--kv-heads" of "kv_heads"; with "!--no-..." where values are true or false.
std::string flag_names(const std::string& flag, const KeyTarget& type);

}  // namespace trireme::cli
