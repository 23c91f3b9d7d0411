#include "trireme/train/job/config.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
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
      {"parallel.pp", &c.parallel.pp,
       "equal parts of the ranks that the model's stages are given to, one after the other (pipeline parallel)"},
      {"parallel.schedule", &c.parallel.schedule,
       "the order in which stages work on micro-batches: a name, of those that `trireme timetable` "
       "lists, or a file as it prints them"},
      {"parallel.virtual_stages", &c.parallel.virtual_stages,
       "stages of each part of the ranks; 0: as few as the schedule takes"},
      {"parallel.stages", &c.parallel.stages,
       "stages of modules, \"scope = stage\", like \"h.0..5 = 0\"; none: stages that take about as long as each other"},
      {"parallel.keep", &c.parallel.keep,
       "what of modules and ops is kept for the backward pass, \"scope = again\" (not: it is computed again), or "
       "\"scope/op = memory\" (it is, whatever train.recompute says)"},
      {"parallel.recompute_communication", &c.parallel.recompute_communication,
       "false: what ranks exchange inside recomputed modules is kept, so that it is not exchanged again"},
      {"parallel.gradient_accumulation_steps", &c.parallel.gradient_accumulation_steps,
       "micro-batches that a rank's part of the batch is worked through in, one after the other, or stage by stage in "
       "a "
       "pipeline; the step stays the same"},
      {"parallel.gradient_accumulation_shard", &c.parallel.gradient_accumulation_shard,
       "with zero: a rank adds up its slice of the gradients only, summed over ranks for each micro-batch (not with "
       "numerics = 'invariant')"},
      {"parallel.dataset", &c.parallel.dataset,
       "data_parallel, full_batch, a layout like [dp, sp], or numbers like {{4, 1}, {4}}"},
      {"parallel.fields", &c.parallel.fields,
       "layouts of fields of the batch, \"name = layout\", like \"tokens = [dp, sp]\"; others lie as parallel.dataset "
       "has it"},
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

std::vector<ConfigKey> step_keys(JobConfig& c) {
  return {
      {"train.steps", &c.train.steps, "how many; or set train.epochs"},
      {"train.epochs", &c.train.epochs, "passes over the training samples; train.steps goes first"},
      {"train.batch", &c.train.batch, "samples of a step over all ranks"},
      {"train.dtype", &c.train.dtype,
       "f32 or bf16: what layers compute in; parameters, their state and the loss are f32"},
      {"train.numerics", &c.train.numerics,
       "fast, or invariant: the same bits however the job is cut over ranks and threads; what cannot keep them is "
       "refused"},
      {"train.device", &c.train.device,
       "where kernels run: cpu; guarded, which finds mistakes of the code around kernels; or described:FILE, a "
       "machine's "
       "file, for which a job is planned and not run"},
      {"train.trace", &c.train.trace,
       "file for a trace of all ranks and lanes, which ui.perfetto.dev and chrome://tracing show"},
      {"train.trace_steps", &c.train.trace_steps, "steps that the trace has, from the run's second on"},
      {"train.recompute", &c.train.recompute,
       "what the backward pass computes again instead of finding it kept, with the same bits: none, selective "
       "(activation functions and norms), full (all that is inside a block), or a number, of the first blocks"},
      {"train.loss_pieces", &c.train.loss_pieces,
       "the last product and the loss are worked through in so many pieces of a rank's positions, forward and "
       "backward, so that the logits of one piece are there at a time: less memory, other last bits"},
  };
}

std::vector<ConfigKey> run_keys(JobConfig& c) {
  return {
      {"train.lr", &c.train.lr, "peak learning rate"},
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
  std::vector<ConfigKey> keys{{"name", &c.name, "of the run, in its report"}};
  for (ConfigKey& key : keys_of_kinds(c)) keys.push_back(std::move(key));
  for (ConfigKey& key : step_keys(c)) keys.push_back(std::move(key));
  for (ConfigKey& key : optimizer_keys(c)) keys.push_back(std::move(key));
  for (ConfigKey& key : run_keys(c)) keys.push_back(std::move(key));
  for (ConfigKey& key : parallel_keys(c)) keys.push_back(std::move(key));
  return keys;
}

Optimizer make_optimizer(const JobConfig& config) {
  std::unique_ptr<nn::OptimizerSpec> spec = optimizer_of(config).copy();
  spec->set_learning_rate(config.train.lr);
  return spec;
}

namespace {

Mode parse_mode(const std::string& mode) {
  if (mode == "stand_alone") return Mode::kStandAlone;
  if (mode == "hybrid_parallel") return Mode::kHybrid;
  return mode == "semi_auto_parallel" ? Mode::kSemiAuto : Mode::kDataParallel;
}

// The parts in which ranks that are cut by hand have the batch, whatever the axes of their mesh are called.
int64_t parts_of_batch(const JobConfig& config, const Parallel& parallel, int64_t ranks) {
  const std::vector<BatchField> whole = batch_of(config, config.train.batch);
  const std::vector<BatchField> of_rank = batch_of_rank(whole, parallel, ranks);
  const auto parts = [&](size_t i) { return whole[i].type.shape[0] / of_rank[i].type.shape[0]; };
  for (size_t i = 1; i < whole.size(); ++i) {
    require(parts(i) == parts(0),
            "configuration: parallel.gradients_mean = false sums over the parts of the batch, and '{}' is cut in {} "
            "parts, '{}' in {}; cut the samples of both alike",
            whole[0].name, parts(0), whole[i].name, parts(i));
  }
  require(parts(0) > 1 || ranks == 1,
          "configuration: parallel.gradients_mean = false has no effect where every rank has the whole batch; leave it "
          "out, or cut the batch by parallel.dataset");
  return parts(0);
}

// Ranks that each train on a part of the batch add up the gradients of their own means. Where the compiler cuts the
// model, there is one loss, the mean over the whole batch, and its gradient is that sum without a division
// (docs/guide/02).
double gradient_scale(const JobConfig& config, const Parallel& parallel, int64_t ranks) {
  if (config.parallel.gradients_mean || config.parallel.mode == "semi_auto_parallel") return 1;
  const int64_t of_crew = ranks_of_crew(parallel.pipeline, ranks);
  return static_cast<double>(parallel.by_hand ? parts_of_batch(config, parallel, ranks) : of_crew);
}

}  // namespace

TrainerOptions trainer_options(const JobConfig& config, int64_t ranks) {
  const bool classes = predicts_classes(config);
  const Parallel parallel = parallel_of(config, ranks);
  return {.name = config.name,
          .mode = parse_mode(config.parallel.mode),
          .seed = static_cast<uint64_t>(config.train.seed),
          .clip_norm = config.train.clip,
          .compute = parse_compute_type(config.train.dtype, "configuration: train.dtype ="),
          .numerics = parse_numerics(config.train.numerics),
          .device = config.train.device,
          .schedule = {.kind = parse_schedule(config.train.schedule),
                       .warmup_steps = config.train.warmup,
                       .final_ratio = config.train.final_ratio},
          .accuracy = classes,
          .tokens_per_sample = classes ? 1 : fields_of(config)[0].sample.elements(),
          .unit = classes ? "samples" : "tokens",
          .config_text = to_toml(config),
          .parallel = parallel,
          .passes = {.recompute = recompute_of(config), .loss_pieces = config.train.loss_pieces},
          .save_strategy = config.parallel.save_strategy,
          .only_trained_parameters = config.parallel.only_trainable_params,
          .trace = config.train.trace,
          .trace_steps = config.train.trace_steps,
          .gradient_scale = gradient_scale(config, parallel, ranks),
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
  return {.model = [&model](const nn::Fields& batch) { return model(batch); },
          .loss = make_loss(config),
          .optimizer = make_optimizer(config),
          .batch = batch_of(config, config.train.batch),
          .evaluation_batch = config.data.validation > 0 ? batch_of(config, evaluation_batch_of(fit_options(config)))
                                                         : std::vector<BatchField>{},
          .options = trainer_options(config, ranks)};
}

}  // namespace trireme
