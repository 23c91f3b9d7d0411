#include "cli/model_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/step/graphs/compute_type.h"

namespace trireme::cli {

namespace {

// The keys that some kind of model has, each once, with what it is for all kinds that have it, and their defaults.
std::vector<KeyHelp> keys_of_models() {
  std::vector<KeyHelp> out;
  for (KeyHelp& key : all_keys()) {
    if (!key.name.starts_with("model.") || key.name == "model.kind") continue;
    key.doc += fmt::format(" (default {})", key.usual);
    out.push_back(std::move(key));
  }
  return each_once(std::move(out));
}

// Vocabularies go by their short name too.
void add_keys_of_models(CLI::App& command, KeyFlags& flags) {
  for (const KeyHelp& key : keys_of_models()) {
    const std::string names = flag_names("--" + key.name.substr(6), key.row.target);
    flags.add(command, names == "--vocabulary" ? "--vocab,--vocabulary" : names, key.name, key.row.target, key.doc);
  }
}

std::vector<std::string> models_of_bench() {
  std::vector<std::string> out = nn::model_kinds();
  for (const PublishedModel& model : published_models()) out.emplace_back(model.name);
  return out;
}

// Square images of as many channels as they had.
void set_image(JobConfig& config, int64_t size, std::string_view command) {
  const std::vector<FieldSpec> fields = fields_of(config);
  require(fields.front().sample.shape.rank() == 3, "{}: --image {}: the model '{}' does not take images", command, size,
          config.model.kind);
  set_keys(config, {fmt::format("data.image=[{0},{0},{1}]", size, fields.front().sample.shape[2])});
}

}  // namespace

void add_shape_flags(CLI::App& command, ModelFlags& flags) {
  KeyFlags& keys = flags.keys;
  command
      .add_option("--model", flags.model,
                  fmt::format("{}, or a model by its name (`trireme models`)", joined_text(nn::model_kinds(), ", ")))
      ->capture_default_str();
  add_keys_of_models(command, keys);
  keys.add(command, "--seq", "data.seq", static_cast<int64_t*>(nullptr),
           "For models that take rows of any length: tokens in a sample, or numbers in a row")
      ->default_str("256");
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  KeyFlags& keys = flags.keys;
  add_shape_flags(command, flags);
  command.add_option("--batch", flags.batch, "Samples of a data parallel rank in a step")->capture_default_str();
  command.add_option("--image", flags.image, "For models of images: height and width")
      ->default_str("224 for published models, else 28");
  add_flags_of_keys(command, keys, FlagsOf::kBench);
  command.get_option("--clip")->default_str("0");  // of these commands
}

JobConfig config_of(const ModelFlags& flags, int64_t ranks, std::string_view command) {
  const std::vector<std::string> models = models_of_bench();
  require(std::ranges::count(models, flags.model) > 0, "{}: no model '{}'.{}", command, flags.model,
          suggestion(flags.model, models));
  if (const std::string* dtype = flags.keys.given("train.dtype"))
    parse_compute_type(*dtype, fmt::format("{}: --dtype", command));
  require(flags.image >= 0, "{}: --image {}; an image is at least 1 pixel wide", command, flags.image);
  require(flags.batch >= 1, "{}: --batch {}; it must be 1 or more", command, flags.batch);
  JobConfig config;
  config.name = flags.model;
  if (find_published_model(flags.model) != nullptr) {
    set_published_model(config, flags.model);
  } else {
    set_keys(config, {"model.kind=" + flags.model, "data.kind=synthetic"});
  }
  if (flags.image > 0) set_image(config, flags.image, command);
  config.data.validation = 0;
  config.train.step.seed = 0;
  config.train.fit.steps = 1;
  config.train.step.clip_norm = 0;
  override_keys(config, flags.keys.overrides());
  ask_implied(flags.keys, config);
  config.train.fit.batch = flags.batch * data_parallel_degree(config, ranks);
  set_keys(config, {fmt::format("data.samples={}", config.train.fit.batch)});
  return config;
}

}  // namespace trireme::cli
