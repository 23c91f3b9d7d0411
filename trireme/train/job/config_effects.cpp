// Keys that change nothing beside the others. What is asked for and does not happen is refused, or said; a key at its
// default asks for nothing.
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/plan/strategy_reuse.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/strategies.h"

namespace trireme {
namespace {

// What the keys go with, in the words of the error; "" where they do.
struct Without {
  std::string text, falling_rate, tp, cp, pp, zero, saved_strategy, trace, recompute;
};

Without without(const JobConfig& c) {
  const std::string model = fmt::format("model.kind = '{}'", c.model.kind);
  const auto unless = [](bool holds, const std::string& words) { return holds ? std::string() : words; };
  Without out;
  out.text = unless(!predicts_classes(c), model);
  out.falling_rate = unless(c.train.schedule != "constant", "train.schedule = 'constant'");
  out.tp = unless(c.parallel.tp > 1, "parallel.tp = 1");
  out.cp = unless(c.parallel.cp > 1, "parallel.cp = 1");
  out.pp = unless(c.parallel.pp > 1, "parallel.pp = 1");
  out.zero = unless(c.parallel.zero > 0, "parallel.zero = 0");
  out.recompute = unless(c.train.recompute != "none" || !c.parallel.keep.empty(), "train.recompute = 'none'");
  out.trace = unless(!c.train.trace.empty(), "no file to write, train.trace");
  out.saved_strategy = unless(!c.parallel.save_strategy.empty(), "no file to save, parallel.save_strategy");
  return out;
}

std::map<std::string, std::string> keys_without_effect(const JobConfig& c) {
  const Without w = without(c);
  std::map<std::string, std::string> all{{"train.final_ratio", w.falling_rate},
                                         {"train.sample_tokens", w.text},
                                         {"train.trace_steps", w.trace},
                                         {"parallel.sp", w.tp},
                                         {"parallel.vocabulary", w.tp},
                                         {"parallel.cp_algorithm", w.cp},
                                         {"parallel.schedule", w.pp},
                                         {"parallel.virtual_stages", w.pp},
                                         {"parallel.stages", w.pp},
                                         {"parallel.recompute_communication", w.recompute},
                                         {"parallel.zero_threshold_kb", w.zero},
                                         {"parallel.zero_shard_size", w.zero},
                                         {"parallel.zero_except", w.zero},
                                         {"parallel.gradient_accumulation_shard", w.zero},
                                         {"parallel.only_trainable_params", w.saved_strategy}};
  for (const auto& [key, reason] : effects_of_kinds(c)) all[key] = reason;
  if (!c.parallel.strategy.empty()) {
    all.erase("parallel.vocabulary");  // the loss is another one with it, whoever cuts the model
    const std::string file =
        fmt::format("parallel.strategy = '{}', which says how everything lies", c.parallel.strategy);
    const std::string text = is_file(c.parallel.strategy) ? strategy_text_of(c) : "";
    if (!text.empty() && !has_parameters_only(text)) {
      for (const char* key : {"parallel.ops", "parallel.parameters", "parallel.fields", "parallel.dataset",
                              "parallel.sp", "parallel.stages"})
        all[key] = file;
      if (knows_state(text)) all["parallel.zero"] = file;
    }
  }
  std::erase_if(all, [](const auto& each) { return each.second.empty(); });
  return all;
}

}  // namespace

namespace {

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
    if (found == all.end() || keys[i].name.starts_with("parallel.") != of_parallel) continue;
    const std::string value = value_text(keys[i]);
    const std::string default_value = value_text(defaults[i]);
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
