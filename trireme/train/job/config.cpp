#include "trireme/train/job/config.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/llama.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/ops/ops.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/strategies.h"
#include "trireme/train/step/precision.h"

namespace trireme {
namespace {

std::vector<ConfigKey> parallel_keys(JobConfig& c) {
  return {
      {"parallel.mode", &c.parallel.mode, "data_parallel, semi_auto_parallel, hybrid_parallel or stand_alone"},
      {"parallel.transport", &c.parallel.transport, "auto, shm, ucx or mpi"},
      {"parallel.device_num", &c.parallel.device_num, "ranks the job must be started with, 1 to 4096; -1: any number"},
      {"parallel.gradients_mean", &c.parallel.gradients_mean,
       "false: gradients are sums over the data parallel ranks, of each one's mean"},
      {"parallel.parameter_broadcast", &c.parallel.parameter_broadcast,
       "starting values come from the first rank that holds them"},
      {"parallel.gradient_fp32_sync", &c.parallel.gradient_fp32_sync,
       "false: gradients of layers in bf16 are summed over ranks in bf16"},
      {"parallel.force_fp32_communication", &c.parallel.force_fp32_communication,
       "every sum over ranks is taken in f32"},
      {"parallel.loss_repeated_mean", &c.parallel.loss_repeated_mean,
       "accepted, changes nothing: a loss that ranks repeat counts once"},
      {"parallel.enable_alltoall", &c.parallel.enable_alltoall,
       "false: an exchange between ranks is an all-gather and a slice"},
      {"parallel.machine", &c.parallel.machine,
       "file of a machine, like machines/h100x8.toml: its links decide how layouts are changed and which sums go "
       "together"},
      {"parallel.rates", &c.parallel.rates,
       "file of rates that a run measured, rates.toml of its folder: which sums go together is by them, instead of by "
       "measuring again"},
      {"parallel.all_reduce_fusion", &c.parallel.all_reduce_fusion,
       "false: every gradient is summed over ranks in an operation of its own"},
      {"parallel.all_reduce_fusion_mb", &c.parallel.all_reduce_fusion_mb,
       "MiB of gradients that are summed over ranks in one operation; 0: chosen by a model of the step"},
      {"parallel.all_reduce_fusion_config", &c.parallel.all_reduce_fusion_config,
       "instead: after how many gradients, in the order they are ready, an operation ends, like [20, 35]"},
      {"parallel.strategy", &c.parallel.strategy,
       "file with the layout of everything, as `trireme explain --stage plan` prints it"},
      {"parallel.save_strategy", &c.parallel.save_strategy,
       "file to write the strategy of everything to, before the first step"},
      {"parallel.only_trainable_params", &c.parallel.only_trainable_params,
       "true: save_strategy has the layouts of trained parameters only"},
      {"parallel.mesh", &c.parallel.mesh, "axes of the ranks, like dp=2,tp=2"},
      {"parallel.tp", &c.parallel.tp, "ranks a layer's weights are cut over (gpt, llama, mlp)"},
      {"parallel.cp", &c.parallel.cp, "gpt, llama: ranks that positions are cut over"},
      {"parallel.cp_algorithm", &c.parallel.cp_algorithm,
       "attention over cp: ulysses (an all-to-all to heads and back), ring, hybrid, or auto: ulysses where the heads "
       "divide, else ring"},
      {"parallel.ulysses_degree", &c.parallel.ulysses_degree,
       "hybrid attention over cp: ranks that share the heads, the others form rings; it divides cp and the heads; 0: "
       "as many as do"},
      {"parallel.vocabulary", &c.parallel.vocabulary,
       "gpt, llama: the ranks of tp also cut the embedding, the head and the loss by tokens"},
      {"parallel.sp", &c.parallel.sp, "gpt, llama: the ranks of tp also cut the positions between the products"},
      {"parallel.ep", &c.parallel.ep, "gpt, llama: data parallel ranks that share the experts of a block"},
      {"parallel.gradient_accumulation_steps", &c.parallel.gradient_accumulation_steps,
       "micro-batches that a rank's part of the batch is worked through in, one after the other; the step stays the "
       "same"},
      {"parallel.gradient_accumulation_shard", &c.parallel.gradient_accumulation_shard,
       "with zero: a rank adds up its slice of the gradients only, summed over ranks for each micro-batch (not with "
       "numerics = 'invariant')"},
      {"parallel.dataset", &c.parallel.dataset,
       "data_parallel, full_batch, a layout like [dp, sp], or numbers like {{4, 1}, {4}}"},
      {"parallel.ops", &c.parallel.ops, "cuts of ops, \"scope = cuts\", like \"h.*.mlp.c_fc = [dp, -, -], [-, tp]\""},
      {"parallel.parameters", &c.parallel.parameters,
       "layouts of parameters, \"name = layout\", like \"wte.weight = [tp, -]\""},
      {"parallel.layerwise", &c.parallel.layerwise,
       "data_parallel, hybrid_parallel: parameters of which each rank has values of its own, \"name\", or pieces of "
       "larger ones, \"name = [tp, -]\""},
      {"parallel.zero", &c.parallel.zero, "optimizer parallelism: 1 state, 2 and gradients, 3 and weights are sliced"},
      {"parallel.zero_threshold_kb", &c.parallel.zero_threshold_kb, "smaller parameters are not sliced"},
      {"parallel.zero_shard_size", &c.parallel.zero_shard_size, "ranks that share one copy; -1: all"},
      {"parallel.zero_except", &c.parallel.zero_except, "patterns of parameters that are not sliced"},
  };
}

std::vector<ConfigKey> train_keys(JobConfig& c) {
  return {
      {"train.steps", &c.train.steps, "how many; or set train.epochs"},
      {"train.epochs", &c.train.epochs, "passes over the training samples; train.steps goes first"},
      {"train.batch", &c.train.batch, "samples of a step over all ranks"},
      {"train.dtype", &c.train.dtype,
       "f32 or bf16: what layers compute in; parameters, their state and the loss are f32"},
      {"train.numerics", &c.train.numerics,
       "fast, or invariant: the same bits however the job is cut over ranks and threads; what cannot keep them is "
       "refused"},
      {"train.recompute", &c.train.recompute,
       "the backward pass computes activation functions and norms again instead of keeping them: less memory, the same "
       "bits"},
      {"train.loss_pieces", &c.train.loss_pieces,
       "the last product and the loss are worked through in so many pieces of a rank's positions, forward and "
       "backward, so that the logits of one piece are there at a time: less memory, other last bits"},
      {"train.optimizer", &c.train.optimizer, "sgd, adam, adamw or lamb"},
      {"train.lr", &c.train.lr, "peak learning rate"},
      {"train.momentum", &c.train.momentum, "sgd"},
      {"train.beta1", &c.train.beta1, "adam, adamw, lamb"},
      {"train.beta2", &c.train.beta2, "adam, adamw, lamb"},
      {"train.weight_decay", &c.train.weight_decay,
       "share of a parameter by which a step shrinks it, times the rate (adamw, lamb); sgd and adam add it to the "
       "gradient"},
      {"train.schedule", &c.train.schedule, "constant, linear or cosine"},
      {"train.warmup", &c.train.warmup, "steps in which the rate rises from 0"},
      {"train.final_ratio", &c.train.final_ratio, "the last step's rate as a share of the peak"},
      {"train.clip", &c.train.clip, "largest global norm of the gradients; 0 does not clip"},
      {"train.label_smoothing", &c.train.label_smoothing,
       "share of the target that is spread over all classes, from 0 to below 1"},
      {"train.eval_every", &c.train.eval_every, "steps between validations; 0: at the end only"},
      {"train.eval_batches", &c.train.eval_batches, "batches of a validation; 0: all samples that are held out"},
      {"train.eval_batch", &c.train.eval_batch,
       "samples of a batch of a validation, over all ranks; 0: train.batch. What is left of the held-out samples after "
       "whole batches is counted too, with its own weight"},
      {"train.save_every", &c.train.save_every, "steps between checkpoints; 0: at the end only"},
      {"train.save_every_minutes", &c.train.save_every_minutes,
       "minutes between checkpoints by the first rank's clock, besides train.save_every; 0: none"},
      {"train.measure", &c.train.measure,
       "loss or accuracy: what of a validation train.keep_best and train.patience go by"},
      {"train.keep_best", &c.train.keep_best,
       "what a validation finds better than all before is saved and stays, besides the newest; checkpoints/best leads "
       "to it"},
      {"train.patience", &c.train.patience,
       "validations in a row that find nothing better after which the run ends; 0: it goes on to its last step"},
      {"train.min_improvement", &c.train.min_improvement, "a validation that is better by this or less is not better"},
      {"train.merged_save", &c.train.merged_save,
       "with each checkpoint its parameters are also written whole to model.safetensors of the run's folder"},
      {"train.sample_tokens", &c.train.sample_tokens,
       "tokens that a language model over bytes writes at the end, within ten seconds; 0: none"},
      {"train.keep", &c.train.keep,
       "newest checkpoints of the run that stay, and with 1 also the one before until a step from the newest was "
       "finite; 0: all. An earlier run's files in the same folder are moved to earlier-1, -2 and so on, and all stay"},
      {"train.seed", &c.train.seed, "of starting values, dropout and the order of samples"},
  };
}

}  // namespace

std::vector<ConfigKey> config_keys(JobConfig& c) {
  std::vector<ConfigKey> keys{
      {"name", &c.name, "of the run, in its report"},
      {"model.kind", &c.model.kind, "gpt, llama, mlp, lenet or resnet"},
      {"model.layers", &c.model.layers, "gpt, llama: blocks"},
      {"model.width", &c.model.width, "gpt, llama: of the residual stream"},
      {"model.heads", &c.model.heads, "gpt, llama: attention heads; they divide the width"},
      {"model.kv_heads", &c.model.kv_heads, "llama: heads of keys and values, which divide the heads; 0: as many"},
      {"model.mlp_width", &c.model.mlp_width, "llama: of the MLP; 0: 8/3 of the width, rounded up to a multiple of 64"},
      {"model.rope_theta", &c.model.rope_theta, "llama: base of the rotary angles"},
      {"model.tied", &c.model.tied, "llama: the head is the embedding's table"},
      {"model.vocabulary", &c.model.vocabulary, "gpt, llama: tokens; bytes have 256"},
      {"model.experts", &c.model.experts, "gpt, llama: experts of every block's MLP; 0: one plain MLP"},
      {"model.top_k", &c.model.top_k, "gpt, llama: experts a token goes to, 1 or 2"},
      {"model.capacity_factor", &c.model.capacity_factor,
       "gpt, llama: places of an expert, as a multiple of its even share of tokens; inf: a place for every token"},
      {"model.aux_loss_factor", &c.model.aux_loss_factor,
       "gpt, llama: of the loss that keeps the experts evenly used, which is added to what is trained and not to the "
       "loss that is told; 0: none"},
      {"model.expert_groups", &c.model.expert_groups,
       "gpt, llama: equal parts of the batch, each with its own places at every expert; ranks that divide them "
       "exchange tokens by all-to-all"},
      {"model.dropout", &c.model.dropout, "gpt: probability, from 0 to below 1"},
      {"model.hidden", &c.model.hidden, "mlp: sizes of the hidden layers"},
      {"model.classes", &c.model.classes, "mlp, lenet, resnet: of the labels"},
      {"model.depth", &c.model.depth, "resnet: 50, 101 or 152 layers"},
      {"model.blocks", &c.model.blocks, "resnet: of each stage, instead of those of the depth"},
      {"model.stem", &c.model.stem, "resnet: channels of the first convolution"},
      {"data.kind", &c.data.kind, "text, idx or synthetic"},
      {"data.paths", &c.data.paths, "text: files and folders"},
      {"data.extensions", &c.data.extensions, "text: of the files taken from folders, like \".txt\"; none takes all"},
      {"data.images", &c.data.images, "idx: the images' file, plain or gzip"},
      {"data.labels", &c.data.labels, "idx: the labels' file, plain or gzip"},
      {"data.mean", &c.data.mean,
       "idx: of the pixels from 0 to 1, which it is taken from; the default is that of MNIST's training images"},
      {"data.std", &c.data.std, "idx: standard deviation that pixels are divided by then; the default is MNIST's"},
      {"data.image", &c.data.image, "idx, synthetic: height, width and channels of an image"},
      {"data.seq", &c.data.seq, "text: tokens of a sample"},
      {"data.samples", &c.data.samples, "synthetic: how many"},
      {"data.validation", &c.data.validation, "share of the samples that is held out"},
      {"data.validation_blocks", &c.data.validation_blocks,
       "text: hold out the ends of this many equal parts; 1: the end of the text"},
  };
  for (ConfigKey& key : train_keys(c)) keys.push_back(std::move(key));
  for (ConfigKey& key : parallel_keys(c)) keys.push_back(std::move(key));
  return keys;
}

namespace {

Shape image_of(const JobConfig& config) {
  return Shape(std::span<const int64_t>(config.data.image));
}

}  // namespace

std::unique_ptr<nn::Module> make_model(const JobConfig& config) {
  const auto& m = config.model;
  if (m.kind == "gpt") {
    return std::make_unique<nn::Gpt>(nn::GptConfig{.vocabulary = m.vocabulary,
                                                   .context = config.data.seq,
                                                   .layers = m.layers,
                                                   .width = m.width,
                                                   .heads = m.heads,
                                                   .dropout = m.dropout,
                                                   .experts = m.experts,
                                                   .top_k = m.top_k,
                                                   .capacity_factor = m.capacity_factor,
                                                   .aux_loss_factor = m.aux_loss_factor,
                                                   .expert_groups = m.expert_groups});
  }
  if (m.kind == "llama") {
    return std::make_unique<nn::Llama>(nn::LlamaConfig{.vocabulary = m.vocabulary,
                                                       .context = config.data.seq,
                                                       .layers = m.layers,
                                                       .width = m.width,
                                                       .heads = m.heads,
                                                       .kv_heads = m.kv_heads,
                                                       .hidden = m.mlp_width,
                                                       .rope_theta = m.rope_theta,
                                                       .tied = m.tied,
                                                       .experts = m.experts,
                                                       .top_k = m.top_k,
                                                       .capacity_factor = m.capacity_factor,
                                                       .aux_loss_factor = m.aux_loss_factor,
                                                       .expert_groups = m.expert_groups});
  }
  if (m.kind == "lenet") return std::make_unique<nn::LeNet>(m.classes);
  if (m.kind == "resnet") {
    return std::make_unique<nn::ResNet>(
        nn::ResNetConfig{.blocks = m.blocks.empty() ? nn::resnet_blocks(m.depth) : m.blocks,
                         .width = m.stem,
                         .channels = config.data.image[2],
                         .classes = m.classes});
  }
  std::vector<int64_t> sizes{image_of(config).elements()};
  sizes.insert(sizes.end(), m.hidden.begin(), m.hidden.end());
  sizes.push_back(m.classes);
  return std::make_unique<nn::Mlp>(sizes);
}

LossFn make_loss(const JobConfig& config) {
  if (config.parallel.vocabulary) {
    return [](const Tensor& prediction, const Tensor& target) { return cross_entropy_in_parts(prediction, target); };
  }
  const double smoothing = config.train.label_smoothing;
  return [smoothing](const Tensor& prediction, const Tensor& target) {
    return cross_entropy(prediction, target, MeanLossOptions{}.ignore_index, smoothing);
  };
}

namespace {

// The caller's mistake, not the disk's.
void require_there(const char* key, const std::string& path) {
  if (is_file(path) || is_directory(path)) return;
  fail(ErrorKind::kNotFound,
       "configuration: {}: there is no '{}'; paths are taken from the folder that the command is started in", key,
       path);
}

data::SourcePtr make_source(const JobConfig& config) {
  const auto& d = config.data;
  if (d.kind == "text") {
    for (const std::string& path : d.paths) require_there("data.paths", path);
    return data::text(d.paths, {.seq = d.seq, .extensions = d.extensions});
  }
  if (d.kind == "idx") {
    require_there("data.images", d.images);
    require_there("data.labels", d.labels);
    data::SourcePtr images = data::idx(
        d.images, d.labels,
        {.mean = static_cast<float>(d.mean), .std = static_cast<float>(d.std), .classes = config.model.classes});
    const Shape found = images->fields()[0].sample.shape;
    require(found == image_of(config), "'{}' holds images of {} and data.image says {}; they must be equal", d.images,
            to_string(found), to_string(image_of(config)));
    return images;
  }
  if (!predicts_classes(config)) {
    return data::synthetic_tokens({.samples = d.samples, .seq = d.seq, .vocabulary = config.model.vocabulary});
  }
  return data::synthetic_images({.samples = d.samples, .image = image_of(config), .classes = config.model.classes});
}

}  // namespace

data::Split make_data(const JobConfig& config) {
  data::SourcePtr source;
  try {
    source = make_source(config);
  } catch (Error& e) {
    e.note(config.data.kind == "text" ? "while reading data.paths of the configuration"
                                      : "while reading data.images and data.labels of the configuration");
    throw;
  }
  const double share = config.data.validation;
  if (share == 0) return {source, nullptr};
  data::Split split =
      data::split_fraction(source, share, static_cast<uint64_t>(config.train.seed), config.data.validation_blocks);
  require(
      split.train->size() >= config.train.batch,
      "data: {} samples are {} to train on and {} held out (data.validation = {}), too few for a batch of {}; use a "
      "smaller train.batch or more data, or data.validation = 0 to hold none out",
      source->size(), split.train->size(), split.validation->size(), share, config.train.batch);
  require(split.validation->size() >= 1,
          "data: of {} samples data.validation = {} holds out none; use a larger share, or 0 to hold none out",
          source->size(), share);
  return split;
}

Optimizer make_optimizer(const JobConfig& config) {
  const auto& t = config.train;
  if (t.optimizer == "sgd") return Sgd{.lr = t.lr, .momentum = t.momentum, .weight_decay = t.weight_decay};
  if (t.optimizer == "adam") {
    return Adam{.lr = t.lr, .beta1 = t.beta1, .beta2 = t.beta2, .weight_decay = t.weight_decay};
  }
  if (t.optimizer == "lamb") {
    return Lamb{.lr = t.lr, .beta1 = t.beta1, .beta2 = t.beta2, .weight_decay = t.weight_decay};
  }
  return AdamW{.lr = t.lr, .beta1 = t.beta1, .beta2 = t.beta2, .weight_decay = t.weight_decay};
}

bool predicts_classes(const JobConfig& config) {
  return config.model.kind != "gpt" && config.model.kind != "llama";
}

namespace {

Mode parse_mode(const std::string& mode) {
  if (mode == "stand_alone") return Mode::kStandAlone;
  if (mode == "hybrid_parallel") return Mode::kHybrid;
  return mode == "semi_auto_parallel" ? Mode::kSemiAuto : Mode::kDataParallel;
}

// Ranks that each train on a part of the batch add up the gradients of their own means. Where the compiler cuts the
// model, there is one loss, the mean over the whole batch, and its gradient is that sum without a division
// (docs/guide/02).
double gradient_scale(const JobConfig& config, int64_t ranks) {
  if (config.parallel.gradients_mean || config.parallel.mode == "semi_auto_parallel") return 1;
  return static_cast<double>(data_parallel_degree(config, ranks));
}

}  // namespace

TrainerOptions trainer_options(const JobConfig& config, int64_t ranks) {
  const bool classes = predicts_classes(config);
  return {.name = config.name,
          .mode = parse_mode(config.parallel.mode),
          .seed = static_cast<uint64_t>(config.train.seed),
          .clip_norm = config.train.clip,
          .compute = parse_compute_type(config.train.dtype, "configuration: train.dtype ="),
          .numerics = parse_numerics(config.train.numerics),
          .schedule = {.kind = parse_schedule(config.train.schedule),
                       .warmup_steps = config.train.warmup,
                       .final_ratio = config.train.final_ratio},
          .accuracy = classes,
          .tokens_per_sample = classes ? 1 : config.data.seq,
          .unit = classes ? "samples" : "tokens",
          .config_text = to_toml(config),
          .parallel = parallel_of(config, ranks),
          .passes = {.recompute = config.train.recompute, .loss_pieces = config.train.loss_pieces},
          .save_strategy = config.parallel.save_strategy,
          .only_trained_parameters = config.parallel.only_trainable_params,
          .gradient_scale = gradient_scale(config, ranks),
          .parameter_broadcast = config.parallel.parameter_broadcast};
}

FitOptions fit_options(const JobConfig& config) {
  const auto& t = config.train;
  return {.epochs = t.epochs,
          .steps = t.steps,
          .batch = t.batch,
          .eval_every = t.eval_every,
          .eval_batches = t.eval_batches,
          .eval_batch = t.eval_batch,
          .save_every = t.save_every,
          .save_every_minutes = t.save_every_minutes,
          .keep = static_cast<int>(t.keep),
          .measure = t.measure == "loss" ? Measure::kLoss : Measure::kAccuracy,
          .keep_best = t.keep_best,
          .patience = t.patience,
          .min_improvement = t.min_improvement,
          .merged_save = t.merged_save};
}

Assembly assembly_of(const JobConfig& config, nn::Module& model, int64_t ranks) {
  return {.model = [&model](const Tensor& x) { return model(x); },
          .loss = make_loss(config),
          .optimizer = make_optimizer(config),
          .batch = batch_of(config, config.train.batch),
          .evaluation_batch = config.data.validation > 0 ? batch_of(config, evaluation_batch_of(fit_options(config)))
                                                         : std::vector<BatchField>{},
          .options = trainer_options(config, ranks)};
}

std::vector<BatchField> batch_of(const JobConfig& config, int64_t batch) {
  if (!predicts_classes(config)) {
    return {{"tokens", {DType::kI32, {batch, config.data.seq}}}, {"targets", {DType::kI32, {batch, config.data.seq}}}};
  }
  TensorType image{DType::kF32, {batch}};
  for (const int64_t size : config.data.image) image.shape.push_back(size);
  return {{"image", image}, {"label", {DType::kI32, {batch}}}};
}

}  // namespace trireme
