#include "trireme/train/job/same_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/base/joined_text.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
#include "trireme/version.h"

namespace trireme {
namespace {

OnResume on_resume(const ConfigKey& key) {
  if (key.row.on_resume != OnResume::kBySection) return key.row.on_resume;
  if (key.section() == "parallel.") return OnResume::kFree;
  return key.section() == "model." ? OnResume::kRefused : OnResume::kTold;
}

std::string of(const std::map<std::string, std::string>& meta, const char* key) {
  const auto found = meta.find(key);
  return found == meta.end() ? "" : found->second;
}

// Of the model alone, whatever it computes in. What one that is cut by hand has depends on the ranks.
std::string hash_of_model(const Assembly& assembly) {
  if (assembly.options.mode == Mode::kHybrid) return "";
  Assembly plain = assembly;
  plain.options = {.mode = Mode::kSemiAuto};
  const Graph graph = inference_of(plain, 1);
  if (std::ranges::any_of(graph.inputs(), [](const Input& input) { return !input.piece.empty(); })) return "";
  return fmt::format("{:016x}", hash64(to_string(graph)));
}

// Of configurations that both can be read: what differs, a word on each.
void compare_configurations(const std::string& saved, const std::string& now, const std::string& checkpoint,
                            std::vector<std::string>& said) {
  JobConfig before, after;
  try {
    before = parse_config(saved, checkpoint);
    after = parse_config(now, "this run");
  } catch (const Error& e) {
    said.push_back(
        fmt::format("its configuration cannot be read ({}), so what has changed since is not known", e.text()));
    return;
  }
  const std::vector<ConfigKey> new_keys = config_keys(after);
  for (const ConfigKey& old_key : config_keys(before)) {
    const auto same = std::ranges::find(new_keys, old_key.name, &ConfigKey::name);
    if (same == new_keys.end()) continue;  // of another kind, which the section's first key has told
    const std::string old_value = value_text(old_key.target);
    const std::string new_value = value_text(same->target);
    const std::string& key = old_key.name;
    if (old_value == new_value || on_resume(old_key) == OnResume::kFree) continue;
    require(on_resume(old_key) == OnResume::kTold,
            "checkpoint '{}' was trained with {} = {}, and this run has {}: it is another job; go on with {} = {}, or "
            "start a new run in "
            "another --out",
            checkpoint, key, old_value, new_value, key, old_value);
    said.push_back(fmt::format("{} = {}, which was {}", key, new_value, old_value));
  }
  const std::vector<FieldSpec> had = fields_of(before);
  const std::vector<FieldSpec> has = fields_of(after);
  require(had == has,
          "checkpoint '{}' was trained on samples of {}, and this run's have {}: it is another job; go on with the "
          "same, or "
          "start a new run in another --out",
          checkpoint, to_string(had), to_string(has));
}

}  // namespace

std::string describe_samples(const data::Source& source) {
  std::string fields;
  std::vector<HostTensor> held;
  std::vector<View> views;
  for (const data::FieldSpec& field : source.fields()) {
    fields += fmt::format(", {} {}", field.name, to_string(field.sample));
    views.push_back(held.emplace_back(field.sample).view());
  }
  constexpr int64_t kSamples = 8;
  uint64_t seen = 0;
  for (int64_t i = 0; i < std::min(kSamples, source.size()); ++i) {
    source.read(i * (source.size() - 1) / std::max<int64_t>(1, std::min(kSamples, source.size()) - 1), views);
    for (const View& view : views) seen = hash64(view.raw(), seen);
  }
  return fmt::format("{} samples{} (hash of some: {:016x})", source.size(), fields, seen);
}

std::map<std::string, std::string> identity_of(const Assembly& assembly, const data::Source& train,
                                               const data::Source* held_out, const Device& device) {
  return {{"name", assembly.options.step.name},
          {"config", assembly.options.config_text},
          {"optimizer", std::string(assembly.optimizer.spec().kind())},
          {"model", hash_of_model(assembly)},
          {"made_by", std::string(kVersion)},
          {"processor", assembly.options.step.numerics == Numerics::kInvariant ? "" : device.processor()},
          {"data", describe_samples(train)},
          {"held_out", held_out == nullptr ? "none" : describe_samples(*held_out)}};
}

std::vector<std::string> check_same_job(const std::map<std::string, std::string>& saved,
                                        const std::map<std::string, std::string>& now, const std::string& checkpoint) {
  std::vector<std::string> said;
  const bool by_keys = !of(saved, "config").empty() && !of(now, "config").empty();
  if (by_keys) compare_configurations(of(saved, "config"), of(now, "config"), checkpoint, said);
  const auto differs = [&](const char* key) {
    return !of(saved, key).empty() && !of(now, key).empty() && of(saved, key) != of(now, key);
  };
  require(!differs("optimizer"),
          "checkpoint '{}' has the state of the optimizer '{}', and this run's is '{}'; go on with '{}', or start a "
          "new run",
          checkpoint, of(saved, "optimizer"), of(now, "optimizer"), of(saved, "optimizer"));
  if (!by_keys && differs("model")) {  // keys would have told what
    require(of(saved, "made_by") != of(now, "made_by"),
            "checkpoint '{}' is of a model with other ops than this run's, {} and not {}; go on with the model that it "
            "was made with, or start a "
            "new run",
            checkpoint, of(saved, "model"), of(now, "model"));
    said.push_back(fmt::format("the ops of the model, as version {} makes them, are not those of version {}",
                               of(now, "made_by"), of(saved, "made_by")));
  }
  if (differs("data")) said.push_back(fmt::format("data of {}, which were {}", of(now, "data"), of(saved, "data")));
  if (differs("held_out"))
    said.push_back(fmt::format("held out {}, which was {}", of(now, "held_out"), of(saved, "held_out")));
  if (differs("processor")) {
    said.push_back(fmt::format(
        "the processor '{}', which was '{}': they may round differently, so that last bits differ from those of a "
        "run on one of them; on the device cpu, --numerics invariant keeps all bits the same",
        of(now, "processor"), of(saved, "processor")));
  }
  return said;
}

void check_same_model(const JobConfig& trained, const JobConfig& now, const std::string& checkpoint) {
  JobConfig before = trained, after = now;
  const std::vector<ConfigKey> new_keys = config_keys(after);
  for (const ConfigKey& old_key : config_keys(before)) {
    const bool counts =
        old_key.row.is_meaning || (old_key.section() == "model." && on_resume(old_key) == OnResume::kRefused);
    const auto same = std::ranges::find(new_keys, old_key.name, &ConfigKey::name);
    if (!counts || same == new_keys.end()) continue;  // data of another kind
    const std::string old_value = value_text(old_key.target), new_value = value_text(same->target);
    require(old_value == new_value,
            "checkpoint '{}' was trained with {} = {}; with {} it would be taken for another model. Leave {} out",
            checkpoint, old_key.name, old_value, new_value, old_key.name);
  }
}

bool holds_out_the_same(const JobConfig& trained, const JobConfig& now, const std::string& checkpoint) {
  static constexpr std::string_view kOfTheSplit[] = {"data.validation", "data.validation_blocks", "train.seed"};
  JobConfig before = trained, after = now;
  if (after.data.validation == 0) return false;
  const std::vector<ConfigKey> new_keys = config_keys(after);
  std::vector<std::string> others;  // of the split
  for (const ConfigKey& old_key : config_keys(before)) {
    const bool is_of_split = std::ranges::find(kOfTheSplit, old_key.name) != std::end(kOfTheSplit);
    if (!is_of_split && old_key.section() != "data.") continue;
    const auto same = std::ranges::find(new_keys, old_key.name, &ConfigKey::name);
    const std::string old_value = value_text(old_key.target);
    if (same != new_keys.end() && value_text(same->target) == old_value) continue;
    if (!is_of_split) return false;
    others.push_back(fmt::format("{} = {}", old_key.name, old_value));
  }
  require(
      others.empty(),
      "the run of checkpoint '{}' held out by {}; others that are held out of the same data are samples that it was "
      "trained on. Leave that key out, or set data.validation=0 to take all samples",
      checkpoint, joined_text(others, ", "));
  return true;
}

}  // namespace trireme
