// Keys that change nothing beside the others. What is asked for and does not happen is refused, or said; a key at its
// default asks for nothing.
#include <fmt/format.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/parallel/strategy_reuse.h"
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

using Keep = Recompute::Rule::Keep;
using Reasons = std::map<std::string, std::string>;  // by key

bool any_keeps(const JobConfig& c, Keep how) {
  return std::ranges::any_of(c.parallel.keep, [&](const Recompute::Rule& rule) { return rule.keep == how; });
}

bool chooses_what_leaves(const JobConfig& c) {
  return chooses_homes(c.parallel.tiers, c.parallel.tier_ways, c.parallel.on_host.is_asked_for());
}

// How what lies elsewhere than in the device's memory comes and goes, where nothing does.
void add_effects_of_tiers(const JobConfig& c, Reasons& all) {
  const auto& p = c.parallel;
  const Tier offload_to = p.tier_ways.offload_to;
  const auto any_home = [&](Tier tier) {
    return offload_to == tier || std::ranges::any_of(p.homes, [&](const HomeRule& rule) { return rule.home == tier; });
  };
  const bool chooses = chooses_what_leaves(c);
  const bool any_homes = chooses || any_home(Tier::kHost) || any_home(Tier::kDisk);
  const bool any_on_disk =
      any_home(Tier::kDisk) || any_keeps(c, Keep::kDisk) || (chooses && p.tiers.disk != DiskSpace());
  if (!any_homes && !p.on_host.updates) {
    all["parallel.update_part"] =
        "no parameters or state on the host or the disk (parallel.home, offload_to, device_memory, optimizer_on)";
  }
  if (!any_homes && !any_on_disk && !any_keeps(c, Keep::kHost) && p.on_host.rules.empty()) {
    all["parallel.prefetch"] = "nothing on the host or the disk (parallel.home, keep, offload_to, device_memory)";
  }
  if (!any_on_disk) {
    all["parallel.disk_block"] = all["parallel.disk_queue"] =
        "nothing on the disk (parallel.home, keep, offload_to, or device_memory with disk)";
  }
  TierWays usual;
  if (!chooses_homes(p.tiers, usual, p.on_host.is_asked_for()) && offload_to == Tier::kDevice)
    all["parallel.auto_offload"] = "parallel.device_memory = '' and offload_to = 'device'";
}

// What is kept for the backward pass, where all is.
void add_effects_of_recompute(const JobConfig& c, Reasons& all) {
  const Recompute& asked = c.train.passes.recompute;
  const bool again = asked.rows || asked.blocks != 0 || any_keeps(c, Keep::kAgain);
  if (!again) all["parallel.recompute_communication"] = "train.recompute = 'none'";
  const bool others = any_keeps(c, Keep::kSlice) || any_keeps(c, Keep::kHost) || any_keeps(c, Keep::kDisk) ||
                      c.parallel.recompute_slice_activation || chooses_what_leaves(c);
  if (!again && !others) all["parallel.keep"] = "train.recompute = 'none', with which all is kept in memory";
}

// How sums over ranks are taken, where each is as asked anyway.
void add_effects_of_sums(const JobConfig& c, Reasons& all) {
  const auto& p = c.parallel;
  if (c.train.step.compute == DType::kF32) {
    all["parallel.gradient_fp32_sync"] = all["parallel.force_fp32_communication"] =
        "train.dtype = 'f32', with which all sums are";
  }
  if (p.mode != Mode::kDataParallel && p.mode != Mode::kHybrid)
    all["parallel.gradients_mean"] = fmt::format("parallel.mode = '{}'", to_string(p.mode));
  const bool is_whole = p.gradient_accumulation_steps == 1 && p.interleave == 1 && p.pp == 1 &&
                        p.mesh.micro_batches() == 1 && p.strategy.empty();
  if (is_whole) all["parallel.gradient_accumulation_shard"] = "parallel.gradient_accumulation_steps = 1";
  all["parallel.loss_repeated_mean"] = "any others: a loss that several ranks compute alike counts once";
}

// Where nobody says how many ranks there are, 0.
Reasons keys_without_effect(const JobConfig& c, int64_t ranks = 0) {
  Reasons all;
  JobConfig copy = c;
  const std::vector<ConfigKey> keys = config_keys(copy);
  for (const ConfigKey& key : keys) {
    if (std::string reason; is_beside(key, keys, reason)) all[key.name] = reason;
  }
  if (predicts_classes(c)) {
    all["train.sample_tokens"] = fmt::format("model.kind = '{}'", c.model.kind);
  } else if (!writes_text(c) && c.train.sample_tokens > 0) {
    all["train.sample_tokens"] =
        fmt::format("model.kind = '{}', which here is no language model over bytes", c.model.kind);
  }
  if (c.train.step.numerics == Numerics::kInvariant && c.train.tuning.is_named())
    all["train.tuning"] = "train.numerics = 'invariant', whose kernels are not measured";
  for (const auto& [key, reason] : effects_of_kinds(c)) all[key] = reason;
  add_effects_of_tiers(c, all);
  add_effects_of_recompute(c, all);
  add_effects_of_sums(c, all);
  if (ranks > 1 && ranks == c.parallel.pp)
    all.emplace("parallel.gradients_mean", fmt::format("parallel.pp = {}, by which each part has one rank", ranks));
  if (c.parallel.mode != Mode::kAuto) {
    SearchOptions options;
    const std::string mode = fmt::format("parallel.mode = '{}'", to_string(c.parallel.mode));
    all["parallel.search"] = mode;
    for (const Key& key : keys_of(options)) all[fmt::format("parallel.{}", key.name)] = mode;
  } else if (c.parallel.search.kind != SearchKind::kRecursiveProgramming) {
    all["parallel.search_cost"] = fmt::format("parallel.search = '{}'", to_string(c.parallel.search.kind));
  }
  if (has_loss_in_parts(c)) all.erase("parallel.vocabulary");
  if (!c.parallel.strategy.empty()) {
    const std::string file =
        fmt::format("parallel.strategy = '{}', which says how everything lies", c.parallel.strategy);
    const StrategyFile given = is_file(c.parallel.strategy) ? strategy_of(c) : StrategyFile();
    if (!given.empty() && !given.has_parameters_only()) {
      for (const char* key : {"parallel.ops", "parallel.parameters", "parallel.fields", "parallel.dataset",
                              "parallel.sp", "parallel.stages"})
        all[key] = file;
      if (lays_out_state(given)) all["parallel.zero"] = file;
      if (given.lines().sums_each) all["parallel.gradient_accumulation_shard"] = file;
    }
  }
  return all;
}

// A key at another value than its default.
struct GivenKey {
  std::string name, value, usual;
  bool of_ranks = false;
};
std::vector<GivenKey> given_keys(const JobConfig& config) {
  JobConfig given = config;
  JobConfig usual = with_kinds_of(config);
  const std::vector<ConfigKey> keys = config_keys(given), defaults = config_keys(usual);
  std::vector<GivenKey> out;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::string value = value_text(keys[i].target), default_value = value_text(defaults[i].target);
    if (value != default_value)
      out.push_back({keys[i].name, std::move(value), std::move(default_value), keys[i].row.of_ranks});
  }
  return out;
}

// "parallel.sp = true has no effect with parallel.tp = 1".
std::vector<std::string> without_effect(const JobConfig& config, bool of_parallel, int64_t ranks = 0) {
  const Reasons all = keys_without_effect(config, ranks);
  std::vector<std::string> out;
  for (const GivenKey& key : given_keys(config)) {
    const auto found = all.find(key.name);
    if (found == all.end() || key.name.starts_with("parallel.") != of_parallel) continue;
    out.push_back(fmt::format("{} = {} has no effect with {}; leave it out, or at its default of {}", key.name,
                              key.value, found->second, key.usual));
  }
  return out;
}

// What is asked of several ranks, in one line.
std::string without_effect_on_one_rank(const JobConfig& config) {
  const Reasons all = keys_without_effect(config);
  std::vector<std::string> asked;
  for (const GivenKey& key : given_keys(config)) {
    if (key.of_ranks && !all.contains(key.name)) asked.push_back(fmt::format("{} = {}", key.name, key.value));
  }
  if (asked.empty()) return "";
  return fmt::format("{} {} no effect on one rank, which exchanges nothing", joined_text(asked, ", "),
                     asked.size() == 1 ? "has" : "have");
}

}  // namespace

void check_effects(const JobConfig& config) {
  for (const std::string& each : without_effect(config, false))
    fail(ErrorKind::kInvalidArgument, "configuration: {}", each);
}

// Apart from the others: a flag like --zero 0 switches off what the file's further keys go with.
std::vector<std::string> remarks(const JobConfig& config, int64_t ranks) {
  std::vector<std::string> out = without_effect(config, true, ranks);
  if (std::string text = ranks == 1 ? without_effect_on_one_rank(config) : ""; !text.empty())
    out.push_back(std::move(text));
  return out;
}

std::vector<std::string> keys_unlike(JobConfig config, JobConfig other) {
  const std::vector<ConfigKey> keys = config_keys(config), others = config_keys(other);
  invariant(keys.size() == others.size(), "configurations of {} and of {} keys", keys.size(), others.size());
  std::vector<std::string> out;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string value = value_text(keys[i].target);
    if (value != value_text(others[i].target)) out.push_back(fmt::format("{} = {}", keys[i].name, value));
  }
  return out;
}

}  // namespace trireme
