// What reading a configuration (config_toml.cpp) asks of its keys (config_keys.cpp), their values (config_checks.cpp),
// effects (config_effects.cpp) and other names (config_names.cpp).
#pragma once

#include <span>
#include <utility>

#include "trireme/train/job/config.h"

namespace trireme {

// Throws kInvalidArgument, naming the key, where a value is out of range or two do not fit together.
void check_values(const JobConfig& config);

// Throws kInvalidArgument for a key that asks for something that does not happen beside the others.
void check_effects(const JobConfig& config);

// The key that a name which is none was meant to be; "" when nothing is near.
std::span<const std::pair<std::string_view, std::string_view>> other_names_of_keys();
std::string meant_by(const std::string& name, const std::vector<ConfigKey>& keys);
// Why there is no key for a setting of other systems; "" for other names.
std::string_view why_no_key(const std::string& name);

std::string value_text(const KeyTarget& target);  // as TOML has it

// Those of [parallel] about tiers of memory (config_tiers.cpp).
std::vector<Key> keys_of_tiers(JobConfig& config);

// The rows as keys of the section.
void add_keys(std::vector<ConfigKey>& to, const char* section, const std::vector<Key>& rows);

}  // namespace trireme
