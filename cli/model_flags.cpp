#include "cli/model_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/parallel_flags.h"
#include "trireme/base/error.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/strategies.h"
#include "trireme/train/step/precision.h"

namespace trireme::cli {

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  KeyFlags& keys = flags.keys;
  command.add_option("--model", flags.model, "gpt, llama, mlp, lenet or resnet50")->capture_default_str();
  keys.add_whole(command, "--layers", "model.layers", "gpt, llama: blocks")->default_str("4");
  keys.add_whole(command, "--width", "model.width", "gpt, llama: width of the residual stream")->default_str("256");
  keys.add_whole(command, "--heads", "model.heads", "gpt, llama: attention heads")->default_str("4");
  keys.add_whole(command, "--kv-heads", "model.kv_heads", "llama: heads of keys and values; 0: as many as heads")
      ->default_str("0");
  keys.add_whole(command, "--experts", "model.experts", "gpt, llama: experts of every block; 0: one plain MLP")
      ->default_str("0");
  keys.add_whole(command, "--expert-groups", "model.expert_groups",
                 "gpt, llama: parts of the batch with their own places at every expert")
      ->default_str("1");
  keys.add_whole(command, "--mlp-width", "model.mlp_width", "llama: of the MLP; 0: 8/3 of the width")->default_str("0");
  keys.add_whole(command, "--seq", "data.seq", "gpt, llama: tokens of a sample")->default_str("256");
  add_parallel_flags(command, keys);
  command.add_option("--batch", flags.batch, "Samples of one data parallel rank")->capture_default_str();
  keys.add_whole(command, "--vocab", "model.vocabulary", "gpt, llama: size of the vocabulary")->default_str("256");
  command.add_option("--image", flags.image, "resnet50: height and width of an image")->capture_default_str();
  keys.add_list(command, "--hidden", "model.hidden", "mlp: sizes of the hidden layers")->default_str("512,512");
  keys.add_text(command, "--dtype", "train.dtype", "f32 or bf16: what layers compute in")->default_str("f32");
  keys.add_text(command, "--numerics", "train.numerics", "fast, or invariant: the same bits however the job is cut")
      ->default_str("fast");
  keys.add_switch(command, "--recompute,!--no-recompute", "train.recompute",
                  "The backward pass computes activation functions and norms again instead of keeping them");
  keys.add_whole(command, "--loss-pieces", "train.loss_pieces",
                 "The last product and the loss are computed in this many pieces of the positions, forward and "
                 "backward; the logits of one are kept at a time")
      ->check(CLI::Range(1, 4096))
      ->default_str("1");
  keys.add_text(command, "--optimizer", "train.optimizer", "sgd, adam, adamw or lamb")->default_str("adamw");
  keys.add_real(command, "--clip", "train.clip", "Largest gradient norm; 0 does not clip")->default_str("0");
}

JobConfig config_of(const ModelFlags& flags, int64_t ranks, std::string_view command) {
  const std::vector<std::string> models{"gpt", "llama", "mlp", "lenet", "resnet50"};
  require(std::find(models.begin(), models.end(), flags.model) != models.end(), "{}: no model '{}'.{}", command,
          flags.model, suggestion(flags.model, models));
  if (const std::string* dtype = flags.keys.given("train.dtype"))
    parse_compute_type(*dtype, fmt::format("{}: --dtype", command));
  require(flags.image >= 1, "{}: --image {}; an image is at least 1 pixel wide", command, flags.image);
  require(flags.batch >= 1, "{}: --batch {}; it must be 1 or more", command, flags.batch);
  JobConfig config;
  config.name = flags.model;
  config.model.kind = flags.model == "resnet50" ? "resnet" : flags.model;
  config.model.classes = flags.model == "resnet50" ? 1000 : 10;
  if (flags.model == "resnet50") config.data.image = {flags.image, flags.image, 3};
  config.data.kind = "synthetic";
  config.data.validation = 0;
  config.train.seed = 0;
  config.train.steps = 1;
  config.train.clip = 0;
  override_keys(config, with_mode(flags.keys));
  config.train.batch = flags.batch * data_parallel_degree(config, ranks);
  config.data.samples = config.train.batch;
  return config;
}

}  // namespace trireme::cli
