// Keys that change nothing beside the others. What is asked for and does not happen is refused, or said; a key at its
// default asks for nothing.
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/plan/strategy_reuse.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme {
namespace {

// Whether the key's row stands beside a value that takes its effect away: "zero = 0".
bool is_beside(const ConfigKey& key, const std::vector<ConfigKey>& keys, std::string& reason) {
  const std::string_view beside = key.row.no_effect_with;
  const size_t equals = beside.find(" = ");
  if (equals == std::string_view::npos) return false;
  const std::string other = std::string(key.section()) + std::string(beside.substr(0, equals));
  const auto found = std::ranges::find(keys, other, &ConfigKey::name);
  invariant(found != keys.end(), "'{}' has no effect beside '{}', which is no key", key.name, other);
  reason = fmt::format("{} = {}", other, beside.substr(equals + 3));
  if (auto* const* text = std::get_if<std::string*>(&found->target))
    return fmt::format("'{}'", **text) == beside.substr(equals + 3);
  return value_text(found->target) == beside.substr(equals + 3);
}

std::map<std::string, std::string> keys_without_effect(const JobConfig& c) {
  std::map<std::string, std::string> all;
  JobConfig copy = c;
  const std::vector<ConfigKey> keys = config_keys(copy);
  for (const ConfigKey& key : keys) {
    if (std::string reason; is_beside(key, keys, reason)) all[key.name] = reason;
  }
  if (predicts_classes(c)) all["train.sample_tokens"] = fmt::format("model.kind = '{}'", c.model.kind);
  if (!c.train.passes.recompute.is_asked_for() && c.parallel.keep.empty())
    all["parallel.recompute_communication"] = "train.recompute = 'none'";
  for (const auto& [key, reason] : effects_of_kinds(c)) all[key] = reason;
  if (c.parallel.mode != Mode::kAuto) {
    SearchOptions options;
    const std::string mode = fmt::format("parallel.mode = '{}'", to_string(c.parallel.mode));
    all["parallel.search"] = mode;
    for (const Key& key : keys_of(options)) all[fmt::format("parallel.{}", key.name)] = mode;
  }
  if (!c.parallel.strategy.empty()) {
    all.erase("parallel.vocabulary");  // the loss is another one with it, whoever cuts the model
    const std::string file =
        fmt::format("parallel.strategy = '{}', which says how everything lies", c.parallel.strategy);
    const StrategyFile given = is_file(c.parallel.strategy) ? strategy_of(c) : StrategyFile();
    if (!given.empty() && !given.has_parameters_only()) {
      for (const char* key : {"parallel.ops", "parallel.parameters", "parallel.fields", "parallel.dataset",
                              "parallel.sp", "parallel.stages"})
        all[key] = file;
      if (knows_state(given)) all["parallel.zero"] = file;
    }
  }
  return all;
}

// Of the keys at other values than their defaults: "parallel.sp = true has no effect with parallel.tp = 1".
std::vector<std::string> without_effect(const JobConfig& config, bool of_parallel) {
  JobConfig given = config;
  JobConfig usual = with_kinds_of(config);
  const std::vector<ConfigKey> keys = config_keys(given);
  const std::vector<ConfigKey> defaults = config_keys(usual);
  const std::map<std::string, std::string> all = keys_without_effect(config);
  std::vector<std::string> out;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = all.find(keys[i].name);
    if (found == all.end() || (keys[i].section() == "parallel.") != of_parallel) continue;
    const std::string value = value_text(keys[i].target);
    const std::string default_value = value_text(defaults[i].target);
    if (value == default_value) continue;
    out.push_back(fmt::format("{} = {} has no effect with {}; leave it out, or at its default of {}", keys[i].name,
                              value, found->second, default_value));
  }
  return out;
}

}  // namespace

void check_effects(const JobConfig& config) {
  for (const std::string& each : without_effect(config, false))
    fail(ErrorKind::kInvalidArgument, "configuration: {}", each);
}

// Apart from the others: a flag like --zero 0 switches off what the file's further keys go with.
std::vector<std::string> remarks(const JobConfig& config) {
  return without_effect(config, true);
}

}  // namespace trireme
