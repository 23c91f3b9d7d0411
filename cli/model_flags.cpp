#include "cli/model_flags.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/parallel_flags.h"
#include "trireme/base/error.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/strategies.h"
#include "trireme/train/step/precision.h"

namespace trireme::cli {

namespace {

// "--kv-heads" of "kv_heads". Vocabularies go by their short name too.
std::string flag_of(std::string_view key) {
  std::string out = "--" + std::string(key);
  std::ranges::replace(out, '_', '-');
  return out == "--vocabulary" ? "--vocab,--vocabulary" : out;
}

// The keys that some kind of model has, each once, with what it is for all kinds that have it, and their defaults.
std::vector<KeyHelp> keys_of_models() {
  std::vector<KeyHelp> out;
  for (KeyHelp& key : all_keys()) {
    if (!key.name.starts_with("model.") || key.name == "model.kind") continue;
    key.doc += fmt::format(" (default {})", key.usual);
    if (!out.empty() && out.back().name == key.name) {
      out.back().doc += "; " + key.doc;
    } else {
      out.push_back(std::move(key));
    }
  }
  return out;
}

void add_keys_of_models(CLI::App& command, KeyFlags& flags) {
  for (const KeyHelp& key : keys_of_models()) {
    const std::string names = flag_of(key.name.substr(6));
    const auto add = [&]([[maybe_unused]] auto* of_type) {
      using T = std::remove_pointer_t<decltype(of_type)>;
      if constexpr (std::is_same_v<T, bool>) {
        flags.add_switch(command, fmt::format("{},!--no-{}", names, names.substr(2)), key.name, key.doc);
      } else if constexpr (std::is_same_v<T, int64_t>) {
        flags.add_whole(command, names, key.name, key.doc);
      } else if constexpr (std::is_same_v<T, double>) {
        flags.add_real(command, names, key.name, key.doc);
      } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
        flags.add_list(command, names, key.name, key.doc);
      } else {
        flags.add_text(command, names, key.name, key.doc);
      }
    };
    std::visit(add, key.target);
  }
}

std::string doc_of_key(std::string_view name) {
  const std::vector<KeyHelp> keys = all_keys();
  const auto found = std::ranges::find(keys, name, &KeyHelp::name);
  invariant(found != keys.end(), "no key '{}'", name);
  return found->doc;
}

std::vector<std::string> models_of_bench() {
  std::vector<std::string> out = nn::model_kinds();
  out.emplace_back("resnet50");  // of 1,000 classes, on images of --image
  return out;
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  KeyFlags& keys = flags.keys;
  command.add_option("--model", flags.model, fmt::format("{}", fmt::join(models_of_bench(), ", ")))
      ->capture_default_str();
  add_keys_of_models(command, keys);
  keys.add_whole(command, "--seq", "data.seq",
                 "For models that take rows of any length: tokens in a sample, or numbers in a row")
      ->default_str("256");
  add_parallel_flags(command, keys);
  command.add_option("--batch", flags.batch, "Samples of a data parallel rank in a step")->capture_default_str();
  command.add_option("--image", flags.image, "resnet50: height and width of an image")->capture_default_str();
  keys.add_text(command, "--dtype", "train.dtype", "f32 or bf16: what layers compute in")->default_str("f32");
  keys.add_text(command, "--numerics", "train.numerics", "fast, or invariant: the same bits however the job is cut")
      ->default_str("fast");
  keys.add_text(command, "--recompute", "train.recompute", recompute_help())->default_str("none");
  keys.add_whole(command, "--loss-pieces", "train.loss_pieces",
                 "The last product and the loss are computed in this many pieces of the positions, forward and "
                 "backward; only one piece's logits are kept at a time")
      ->check(CLI::Range(1, 4096))
      ->default_str("1");
  keys.add_text(command, "--optimizer", "train.optimizer", doc_of_key("train.optimizer"))->default_str("adamw");
  keys.add_real(command, "--clip", "train.clip", "Largest gradient norm; 0: no clipping")->default_str("0");
}

JobConfig config_of(const ModelFlags& flags, int64_t ranks, std::string_view command) {
  const std::vector<std::string> models = models_of_bench();
  require(std::ranges::count(models, flags.model) > 0, "{}: no model '{}'.{}", command, flags.model,
          suggestion(flags.model, models));
  if (const std::string* dtype = flags.keys.given("train.dtype"))
    parse_compute_type(*dtype, fmt::format("{}: --dtype", command));
  require(flags.image >= 1, "{}: --image {}; an image is at least 1 pixel wide", command, flags.image);
  require(flags.batch >= 1, "{}: --batch {}; it must be 1 or more", command, flags.batch);
  JobConfig config;
  config.name = flags.model;
  const bool resnet50 = flags.model == "resnet50";
  set_keys(config, {fmt::format("model.kind={}", resnet50 ? "resnet" : flags.model), "data.kind=synthetic"});
  if (resnet50) set_keys(config, {"model.classes=1000", fmt::format("data.image=[{0},{0},3]", flags.image)});
  config.data.validation = 0;
  config.train.seed = 0;
  config.train.steps = 1;
  config.train.clip = 0;
  override_keys(config, flags.keys.overrides());
  ask_for_mode(flags.keys, config);
  config.train.batch = flags.batch * data_parallel_degree(config, ranks);
  set_keys(config, {fmt::format("data.samples={}", config.train.batch)});
  return config;
}

}  // namespace trireme::cli
