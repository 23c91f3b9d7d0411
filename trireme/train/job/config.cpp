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
      {"parallel.device_num", &c.parallel.device_num,
       "number of ranks that the job must be started with, 1 to 4096; -1: any number"},
      {"parallel.gradients_mean", &c.parallel.gradients_mean,
       "data_parallel, hybrid_parallel: false: each rank's mean gradients are summed over the data parallel ranks "
       "instead of averaged"},
      {"parallel.parameter_broadcast", &c.parallel.parameter_broadcast,
       "every rank takes the starting values from the first rank that holds them"},
      {"parallel.gradient_fp32_sync", &c.parallel.gradient_fp32_sync,
       "false: gradients of layers in bf16 are summed over ranks in bf16"},
      {"parallel.force_fp32_communication", &c.parallel.force_fp32_communication,
       "every sum over ranks is taken in f32"},
      {"parallel.loss_repeated_mean", &c.parallel.loss_repeated_mean,
       "accepted, but changes nothing: a loss that several ranks compute alike counts once"},
      {"parallel.enable_alltoall", &c.parallel.enable_alltoall,
       "false: where ranks would exchange pieces, an all-gather and a slice are used instead"},
      {"parallel.machine", &c.parallel.machine,
       "file that describes a machine, like machines/h100x8.toml; its links decide how layouts are changed and which "
       "sums are taken together"},
      {"parallel.rates", &c.parallel.rates,
       "file of rates that an earlier run measured, rates.toml in its folder; they decide which sums are taken "
       "together, and nothing is measured again"},
      {"parallel.all_reduce_fusion", &c.parallel.all_reduce_fusion,
       "false: every gradient is summed over ranks in an operation of its own"},
      {"parallel.all_reduce_fusion_mb", &c.parallel.all_reduce_fusion_mb,
       "MiB of gradients that are summed over ranks in one operation; 0: chosen by a model of the step"},
      {"parallel.all_reduce_fusion_config", &c.parallel.all_reduce_fusion_config,
       "instead of a size: after which gradients, counted in the order they become ready, an operation ends, like [20, "
       "35]"},
      {"parallel.strategy", &c.parallel.strategy,
       "file with the layout of everything, as `trireme explain --stage plan` prints it"},
      {"parallel.save_strategy", &c.parallel.save_strategy,
       "file to write the whole strategy to, before the first step"},
      {"parallel.only_trainable_params", &c.parallel.only_trainable_params,
       "true: save_strategy has the layouts of trained parameters only"},
      {"parallel.mesh", &c.parallel.mesh, "named axes of the ranks, like dp=2,tp=2"},
      {"parallel.tp", &c.parallel.tp, "ranks a layer's weights are cut over (gpt, llama, mlp)"},
      {"parallel.cp", &c.parallel.cp, "gpt, llama: ranks that positions are cut over"},
      {"parallel.cp_algorithm", &c.parallel.cp_algorithm,
       "attention over cp: ulysses (an all-to-all to heads and back), ring, hybrid, or auto: ulysses where the heads "
       "divide, else ring"},
      {"parallel.ulysses_degree", &c.parallel.ulysses_degree,
       "with cp_algorithm = 'hybrid': ranks that share the heads, while the others form rings; it must divide cp and "
       "the heads; 0: the largest number that does"},
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
       "micro-batches that a rank's part of the batch is divided into and computed in, one after the other, or stage "
       "by stage in "
       "a "
       "pipeline; the step stays the same"},
      {"parallel.gradient_accumulation_shard", &c.parallel.gradient_accumulation_shard,
       "with zero: a rank accumulates only its slice of the gradients, which are summed over ranks for every "
       "micro-batch (not with numerics = 'invariant')"},
      {"parallel.dataset", &c.parallel.dataset,
       "data_parallel, full_batch, a layout like [dp, sp], or numbers like {{4, 1}, {4}}"},
      {"parallel.fields", &c.parallel.fields,
       "layouts of fields of the batch, \"name = layout\", like \"tokens = [dp, sp]\"; the others are laid out as "
       "parallel.dataset says"},
      {"parallel.ops", &c.parallel.ops, "cuts of ops, \"scope = cuts\", like \"h.*.mlp.c_fc = [dp, -, -], [-, tp]\""},
      {"parallel.parameters", &c.parallel.parameters,
       "layouts of parameters, \"name = layout\", like \"wte.weight = [tp, -]\""},
      {"parallel.layerwise", &c.parallel.layerwise,
       "data_parallel, hybrid_parallel: parameters of which each rank has values of its own, \"name\", or pieces of "
       "larger ones, \"name = [tp, -]\""},
      {"parallel.zero", &c.parallel.zero,
       "ZeRO: slice over data parallel ranks 1: the optimizer's state, 2: also gradients, 3: also weights; 0: nothing"},
      {"parallel.zero_threshold_kb", &c.parallel.zero_threshold_kb, "parameters of fewer KiB than this are not sliced"},
      {"parallel.zero_shard_size", &c.parallel.zero_shard_size,
       "number of ranks that one copy is sliced over; -1: all"},
      {"parallel.zero_except", &c.parallel.zero_except, "patterns of the names of parameters that are not sliced"},
  };
}

std::vector<ConfigKey> step_keys(JobConfig& c) {
  return {
      {"train.steps", &c.train.steps, "number of steps; or set train.epochs"},
      {"train.epochs", &c.train.epochs, "passes over the training samples; train.steps takes precedence"},
      {"train.batch", &c.train.batch, "samples in a step, over all ranks"},
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
       "the last product and the loss are computed in this many pieces of a rank's positions, forward and backward, so "
       "that only one piece's logits exist at a time: less memory, different last bits"},
  };
}

std::vector<ConfigKey> run_keys(JobConfig& c) {
  return {
      {"train.lr", &c.train.lr, "peak learning rate"},
      {"train.schedule", &c.train.schedule, "constant, linear or cosine"},
      {"train.warmup", &c.train.warmup, "steps over which the rate rises from 0"},
      {"train.final_ratio", &c.train.final_ratio, "the last step's rate as a share of the peak"},
      {"train.clip", &c.train.clip, "largest global norm of the gradients; 0: no clipping"},
      {"train.label_smoothing", &c.train.label_smoothing,
       "share of the target that is spread over all classes, at least 0 and below 1"},
      {"train.eval_every", &c.train.eval_every, "steps between validations; 0: at the end only"},
      {"train.eval_batches", &c.train.eval_batches, "batches in a validation; 0: all samples that are held out"},
      {"train.eval_batch", &c.train.eval_batch,
       "samples in a validation batch, over all ranks; 0: train.batch. Samples that are left over after whole batches "
       "count too, with their own weight"},
      {"train.save_every", &c.train.save_every, "steps between checkpoints; 0: at the end only"},
      {"train.save_every_minutes", &c.train.save_every_minutes,
       "minutes between checkpoints by the first rank's clock, besides train.save_every; 0: none"},
      {"train.measure", &c.train.measure,
       "loss or accuracy: the result of a validation that train.keep_best and train.patience go by"},
      {"train.keep_best", &c.train.keep_best,
       "save and keep the checkpoint with the best validation so far, besides the newest; checkpoints/best points to "
       "it"},
      {"train.patience", &c.train.patience,
       "the run ends after this many validations in a row without an improvement; 0: never"},
      {"train.min_improvement", &c.train.min_improvement,
       "a validation must be better by more than this to count as an improvement"},
      {"train.merged_save", &c.train.merged_save,
       "with each checkpoint, also write its parameters as whole tensors to model.safetensors in the run's folder"},
      {"train.sample_tokens", &c.train.sample_tokens,
       "tokens of sample text that a language model over bytes writes at the end, in at most ten seconds; 0: none"},
      {"train.keep", &c.train.keep,
       "how many of the newest checkpoints to keep; 1 keeps the one before too until a step from the newest was "
       "finite; 0: all. An earlier run's files in the same folder are moved to earlier-1, -2 and so on, and are all "
       "kept"},
      {"train.seed", &c.train.seed, "seed of the starting values, of dropout and of the order of samples"},
  };
}

}  // namespace

std::vector<ConfigKey> config_keys(JobConfig& c) {
  std::vector<ConfigKey> keys{{"name", &c.name, "name of the run, shown in its report"}};
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
