#include "cli/model_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/config.h"
#include "trireme/train/precision.h"
#include "trireme/train/strategies.h"

namespace trireme::cli {

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("--model", flags.model, "gpt, llama, mlp, lenet or resnet50")->capture_default_str();
  command.add_option("--layers", flags.layers, "gpt, llama: blocks")->capture_default_str();
  command.add_option("--width", flags.width, "gpt, llama: width of the residual stream")->capture_default_str();
  command.add_option("--heads", flags.heads, "gpt, llama: attention heads")->capture_default_str();
  command.add_option("--kv-heads", flags.kv_heads, "llama: heads of keys and values; 0: as many")->capture_default_str();
  command.add_option("--experts", flags.experts, "gpt, llama: experts of every block; 0: one plain MLP")->capture_default_str();
  command.add_option("--expert-groups", flags.expert_groups, "gpt, llama: parts of the batch with their own places at every expert")
      ->capture_default_str();
  command.add_option("--mlp-width", flags.mlp_width, "llama: of the MLP; 0: 8/3 of the width")->capture_default_str();
  command.add_option("--seq", flags.seq, "gpt, llama: tokens of a sample")->capture_default_str();
  add_parallel_flags(command, flags.parallel);
  command.add_option("--batch", flags.batch, "Samples of one data parallel rank")->capture_default_str();
  command.add_option("--vocab", flags.vocab, "gpt, llama: tokens known")->capture_default_str();
  command.add_option("--image", flags.image, "resnet50: height and width of an image")->capture_default_str();
  command.add_option("--hidden", flags.hidden, "mlp: sizes of the hidden layers")->delimiter(',')->capture_default_str();
  command.add_option("--dtype", flags.dtype, "f32 or bf16: what layers compute in")->capture_default_str();
  command.add_option("--numerics", flags.numerics, "fast, or invariant: the same bits however the job is cut")
      ->capture_default_str();
  command.add_flag("--recompute", flags.recompute, "The backward pass computes activation functions and norms again instead of keeping them");
  command.add_option("--loss-pieces", flags.loss_pieces, "The last product and the loss are worked through in so many pieces of the positions, forward and backward; logits of one are kept at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--optimizer", flags.optimizer, "sgd, adam, adamw or lamb")->capture_default_str();
  command.add_option("--clip", flags.clip, "Largest gradient norm; 0 does not clip")->capture_default_str();
}

void check(const ModelFlags& flags, std::string_view command) {
  const std::vector<std::string> models{"gpt", "llama", "mlp", "lenet", "resnet50"};
  require(std::find(models.begin(), models.end(), flags.model) != models.end(), "{}: no model '{}'.{}", command, flags.model,
          suggestion(flags.model, models));
  parse_compute_type(flags.dtype, fmt::format("{}: --dtype", command));
  require(flags.numerics == "fast" || flags.numerics == "invariant", "{}: --numerics {}; fast or invariant", command, flags.numerics);
  require(flags.numerics == "fast" || flags.dtype == "f32", "{}: --numerics invariant is for --dtype f32, not {}", command, flags.dtype);
  require(flags.image >= 1, "{}: --image {}; an image is 1 pixel wide at least", command, flags.image);
}

JobConfig config_of(const ModelFlags& flags, int64_t ranks) {
  JobConfig config;
  config.name = flags.model;
  config.train.seed = 0;
  config.model.kind = flags.model == "resnet50" ? "resnet" : flags.model;
  config.model.classes = flags.model == "resnet50" ? 1000 : 10;
  if (flags.model == "resnet50") config.data.image = {flags.image, flags.image, 3};
  config.model.layers = flags.layers;
  config.model.width = flags.width;
  config.model.heads = flags.heads;
  config.model.kv_heads = flags.kv_heads;
  config.model.mlp_width = flags.mlp_width;
  config.model.vocabulary = flags.vocab;
  config.model.experts = flags.experts;
  config.model.expert_groups = flags.expert_groups;
  config.model.hidden = flags.hidden;
  config.data.kind = "synthetic";
  config.data.seq = flags.seq;
  config.parallel.mode = flags.parallel.cuts_the_model() ? "semi_auto_parallel" : "data_parallel";
  config.parallel.tp = flags.parallel.tp;
  config.parallel.cp = flags.parallel.cp;
  config.parallel.cp_algorithm = flags.parallel.cp_algorithm;
  config.parallel.ep = flags.parallel.ep;
  config.parallel.sp = flags.parallel.sp;
  config.parallel.vocabulary = flags.parallel.vocabulary;
  config.parallel.zero = flags.parallel.zero;
  config.parallel.gradient_accumulation_steps = flags.parallel.accumulation;
  config.train.batch = flags.batch * data_parallel_degree(config, ranks);
  config.data.samples = config.train.batch;
  config.train.optimizer = flags.optimizer;
  config.train.clip = flags.clip;
  config.train.dtype = flags.dtype;
  config.train.numerics = flags.numerics;
  config.train.recompute = flags.recompute;
  config.train.loss_pieces = flags.loss_pieces;
  return config;
}

}  // namespace trireme::cli
