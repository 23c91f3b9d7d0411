// The keys of a job's file: the rows of the job's own settings, and those of the structs that it has them from, in the
// order in which they are written.
#include <algorithm>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/rules.h"

namespace trireme {
namespace {

constexpr NameOf<SliceCrossings> kSliceCrossings[] = {
    {"auto", SliceCrossings::kAuto}, {"always", SliceCrossings::kAlways}, {"never", SliceCrossings::kNever}};

constexpr int64_t kMostFusionMb = int64_t{1} << 20;
constexpr std::string_view kSemiAuto = "mode=semi_auto_parallel";

void check_transport(const std::string&, const KeyTarget& target) {
  const std::vector<std::string> names{"auto", "shm", "ucx", "mpi"};
  const std::string& value = *std::get<std::string*>(target);
  if (std::ranges::count(names, value) == 0) fail_not_one_of("parallel.transport", value, names);
}

// What the job itself has of [train].
std::vector<Key> keys_of_run(JobConfig& c) {
  static const std::string kDoc = fmt::format("where kernels run: {}", joined_text(device_docs(), "; "));
  return {
      {.name = "device", .target = &c.train.device, .doc = kDoc, .flag = "--device", .in_bench = true},
      {.name = "tuning",
       .target = TextOf{.text = [place = &c.train.tuning] { return to_string(*place); },
                        .set =
                            [place = &c.train.tuning](const std::string& name, const std::string& text) {
                              require(!text.empty(), "configuration: {} is empty; it must be auto, off or a file",
                                      name);
                              *place = text;
                            }},
       .doc = "which kernels are the quickest on this machine is measured when a shape is first met, for a tenth of "
              "a second (longer where it is very large), and kept in a file: its path, or auto for one in the user's "
              "cache "
              "folder; off takes the usual kernels, whose last bits do not depend on what was measured",
       .flag = "--tuning",
       .in_bench = true,
       .on_resume = OnResume::kTold},
      {.name = "label_smoothing",
       .target = &c.train.label_smoothing,
       .doc = "share of the target that is spread over all classes, at least 0 and below 1",
       .check = check_share,
       .flag = "--label-smoothing"},
      {.name = "sample_tokens",
       .target = &c.train.sample_tokens,
       .doc =
           "tokens of sample text that a language model over bytes writes at the end, in at most ten seconds; 0: none",
       .check = check_not_below_0,
       .flag = "--sample-tokens",
       .of_run = true,
       .on_resume = OnResume::kFree},
      {.name = "trace",
       .target = &c.train.trace,
       .doc = "file for a trace of a few steps, all ranks and lanes, for ui.perfetto.dev or chrome://tracing",
       .flag = "--trace",
       .on_resume = OnResume::kFree},
      {.name = "trace_steps",
       .target = &c.train.trace_steps,
       .doc = "steps that the trace has, from the run's second on",
       .check = check_size,
       .flag = "--trace-steps",
       .of_run = true,
       .no_effect_with = "trace = ''",
       .on_resume = OnResume::kFree}};
}

// How ranks are started and what they are asked as a whole.
std::vector<Key> keys_of_ranks(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "mode",
       .target = one_of(&p.mode, kModes),
       .doc = "data_parallel, semi_auto_parallel, auto_parallel, hybrid_parallel or stand_alone",
       .flag = "--mode"},
      {.name = "search",
       .target = one_of(&p.search.kind, kSearchKinds),
       .doc =
           "with mode = 'auto_parallel', how the cuts that nobody asks for are found: recursive_programming (one "
           "prime axis of the ranks after the other), dynamic_programming (all at once, for few ranks), "
           "sharding_propagation (from the ops that cuts are asked for to their neighbours); exact and compiled plan "
           "what is not set of the whole job, with stages, micro-batches, recomputation and homes, as `trireme plan` "
           "does",
       .flag = "--search",
       .of_ranks = true,
       .implies = "mode=auto_parallel"},
      {.name = "transport",
       .target = &p.transport,
       .doc = "auto, shm, ucx or mpi: how ranks exchange tensors",
       .check = check_transport,
       .flag = "--transport",
       .of_ranks = true},
      {.name = "device_num",
       .target = &p.device_num,
       .doc = "number of ranks that the job must be started with, 1 to 4096; -1: any number",
       .check =
           [](const std::string& name, const KeyTarget& target) {
             const int64_t ranks = *std::get<int64_t*>(target);
             require(ranks == -1 || (ranks >= 1 && ranks <= 4096),
                     "{} = {}; it must be from 1 to 4096, or -1 for as many ranks as are started", name, ranks);
           }},
      {.name = "gradients_mean",
       .target = &p.gradients_mean,
       .doc = "data_parallel, hybrid_parallel: false: each rank's mean gradients are summed over the data parallel "
              "ranks instead of averaged",
       .of_ranks = true,
       .on_resume = OnResume::kTold,
       .of_training = true},
      {.name = "parameter_broadcast",
       .target = &p.parameter_broadcast,
       .doc = "every rank takes the starting values from the first rank that holds them",
       .of_ranks = true,
       .of_training = true},
      {.name = "loss_repeated_mean",
       .target = &p.loss_repeated_mean,
       .doc = "accepted, but changes nothing: a loss that several ranks compute alike counts once"},
      {.name = "machine",
       .target = &p.machine,
       .doc = "file that describes a machine, like machines/h100x8.toml; its links decide how layouts are changed "
              "and which sums are taken together"},
      {.name = "rates",
       .target = &p.rates,
       .doc = "file of rates that an earlier run measured, rates.toml in its folder; they decide which sums are "
              "taken together, and nothing is measured again"}};
}

// Which collectives are taken together, beside what keys_of(Fusion&) has.
std::vector<Key> keys_of_fusion(JobConfig& c) {
  auto& p = c.parallel;
  return {{.name = "all_reduce_fusion_mb",
           .target = &p.all_reduce_fusion_mb,
           .doc = "MiB of gradients that are summed over ranks in one operation; 0: chosen by a model of the step",
           .check = check_from_to<0, kMostFusionMb>,
           .of_ranks = true},
          {.name = "reduce_scatter_fusion_mb",
           .target = &p.reduce_scatter_fusion_mb,
           .doc = "MiB of gradients that are summed over ranks and sliced in one operation; 0: chosen by the model",
           .check = check_from_to<0, kMostFusionMb>,
           .of_ranks = true},
          {.name = "all_gather_fusion_mb",
           .target = &p.all_gather_fusion_mb,
           .doc = "MiB of whole weights that are gathered from their slices in one operation; 0: chosen by the model",
           .check = check_from_to<0, kMostFusionMb>,
           .of_ranks = true},
          {.name = "fusion",
           .target = as_texts(&p.communication.fusion.ids),
           .doc = "rules \"name = number\" for parameters and what is in modules, like [\"h.* = 2\", \"head = 0\"]: "
                  "the collectives of all that have one number are one operation for each kind, element type, group of "
                  "ranks, dimension that ranks cut and micro-batch; 0: each is taken alone; the last that matches "
                  "counts",
           .of_ranks = true}};
}

// "gpt, llama: ..." of the kinds of model whose ready-made strategy has that, as they are by default.
std::string for_kinds_that(bool (*has)(const nn::Cuttable&), std::string_view doc) {
  std::vector<std::string> kinds;
  for (const std::string& kind : nn::model_kinds()) {
    if (has(nn::model_spec(kind)->cuttable())) kinds.push_back(kind);
  }
  return fmt::format("{}: {}", joined_text(kinds, ", "), doc);
}

struct ReadyMadeDocs {
  std::string tp =
      for_kinds_that([](const nn::Cuttable& cuttable) { return cuttable.weights; },
                     "ranks that each layer's weights are cut over (tensor parallel); the rest are data parallel");
  std::string cp = for_kinds_that([](const nn::Cuttable& cuttable) { return cuttable.positions; },
                                  "ranks that positions are cut over (context parallel)");
  std::string vocabulary = for_kinds_that([](const nn::Cuttable& cuttable) { return cuttable.vocabulary > 0; },
                                          "the ranks of tp also cut the embedding, the head and the loss by tokens");
  std::string sp = for_kinds_that([](const nn::Cuttable& cuttable) { return cuttable.positions; },
                                  "the ranks of tp also cut the positions between the products (sequence parallel)");
  std::string ep = for_kinds_that([](const nn::Cuttable& cuttable) { return cuttable.mixture; },
                                  "data parallel ranks that share the experts of a block (expert parallel)");
};

// The ready-made strategies (train/job/parallel_settings.h).
std::vector<Key> keys_of_ready_made(JobConfig& c) {
  static const ReadyMadeDocs kDocs;
  auto& p = c.parallel;
  return {{.name = "tp",
           .target = &p.tp,
           .doc = kDocs.tp,
           .check = check_count,
           .flag = "--tp",
           .in_bench = true,
           .implies = kSemiAuto},
          {.name = "cp",
           .target = &p.cp,
           .doc = kDocs.cp,
           .check = check_count,
           .flag = "--cp",
           .in_bench = true,
           .implies = kSemiAuto},
          {.name = "cp_algorithm",
           .target = one_of(&p.cp_algorithm, kContextAlgorithms),
           .doc = "attention over cp: ulysses (an all-to-all to heads and back), ring (keys and values travel around), "
                  "hybrid (both), or auto: ulysses where the heads divide, otherwise ring",
           .flag = "--cp-algorithm",
           .in_bench = true,
           .no_effect_with = "cp = 1"},
          {.name = "ulysses_degree",
           .target = &p.ulysses_degree,
           .doc = "with cp_algorithm = 'hybrid': ranks that share the heads, while the others form rings; it must "
                  "divide cp and the heads; 0: the largest number that does",
           .check = check_not_below_0,
           .flag = "--ulysses-degree",
           .in_bench = true},
          {.name = "vocabulary",
           .target = &p.vocabulary,
           .doc = kDocs.vocabulary,
           .flag = "--vocab-parallel",
           .in_bench = true,
           .no_effect_with = "tp = 1",
           .implies = kSemiAuto},
          {.name = "sp",
           .target = &p.sp,
           .doc = kDocs.sp,
           .flag = "--sp",
           .in_bench = true,
           .no_effect_with = "tp = 1",
           .implies = kSemiAuto},
          {.name = "ep",
           .target = &p.ep,
           .doc = kDocs.ep,
           .check = check_count,
           .flag = "--ep",
           .in_bench = true,
           .implies = kSemiAuto}};
}

// Stages, who has them when, and what they keep.
std::vector<Key> keys_of_pipeline(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "pp",
       .target = &p.pp,
       .doc = "equal parts of the ranks that the model's stages are given to, one after the other (pipeline "
              "parallel); tp, cp and ep cut each part",
       .check = check_from_to<1, 4096>,
       .flag = "--pp",
       .in_bench = true},
      {.name = "schedule",
       .target = &p.schedule,
       .doc = "the order in which stages work on micro-batches: a name, of those that `trireme timetable` "
              "lists, or a file as `trireme timetable` prints it",
       .flag = "--schedule",
       .in_bench = true,
       .no_effect_with = "pp = 1"},
      {.name = "virtual_stages",
       .target = &p.virtual_stages,
       .doc = "stages of each part of the ranks, for schedules that take several; 0: as few as the schedule takes",
       .check = check_from_to<0, 4096>,
       .flag = "--virtual-stages",
       .in_bench = true,
       .no_effect_with = "pp = 1"},
      {.name = "seq_chunks",
       .target = &p.seq_chunks,
       .doc = "chunks of a micro-batch's positions that stages work on one by one, for the schedule seq-1f1b; 0: two "
              "there",
       .check = check_from_to<0, 4096>,
       .flag = "--seq-chunks",
       .in_bench = true,
       .no_effect_with = "pp = 1"},
      {.name = "stages",
       .target = as_texts(&p.stages),
       .doc = "stages of modules, \"scope = stage\", like \"h.0..5 = 0\"; none: stages that take about as long as "
              "each other",
       .no_effect_with = "pp = 1"},
      {.name = "slice_crossings",
       .target = one_of(&p.slice_crossings, kSliceCrossings),
       .doc = "what several ranks of a stage have whole and another stage reads goes there in slices, one from each "
              "rank, and is gathered there: auto (where that is quicker by the links), always, or never",
       .no_effect_with = "pp = 1"}};
}

// What is kept from one use to the next, and where.
std::vector<Key> keys_of_kept(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "keep",
       .target = as_texts(&p.keep),
       .doc = "what of modules and ops is kept for the backward pass, \"scope = again\" (not: it is computed "
              "again; a scope like \"h.3\", \"h.*\" or \"h.0..5\"), \"scope/op = device\" (it is, whatever "
              "train.recompute says), \"scope = slices\" (ranks "
              "that have the same keep slices of it), \"scope = host\" (in the host's memory, until it is read), or "
              "\"scope = disk\"",
       .of_training = true},
      {.name = "recompute_communication",
       .target = &p.recompute_communication,
       .doc = "false: what ranks exchange inside recomputed modules is kept, so that it is not exchanged again",
       .of_ranks = true,
       .of_training = true},
      {.name = "optimizer_comm_recompute",
       .target = &p.optimizer_comm_recompute,
       .doc = "false: weights that are gathered from their slices stay whole from the forward to the backward "
              "pass, instead of being gathered again",
       .of_training = true},
      {.name = "recompute_slice_activation",
       .target = &p.recompute_slice_activation,
       .doc = "true: what is kept for the backward pass lies in slices on ranks that have the same, and is "
              "gathered where it is read",
       .of_training = true}};
}

// What is said of the cuts themselves, and files of them.
std::vector<Key> keys_of_cuts(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "strategy",
       .target = &p.strategy,
       .doc = "file with the layout of everything, as `trireme explain --stage plan` prints it",
       .flag = "--strategy",
       .implies = kSemiAuto},
      {.name = "save_strategy",
       .target = &p.save_strategy,
       .doc = "file to write the whole strategy to, before the first step",
       .flag = "--save-strategy",
       .of_run = true,
       .of_training = true},
      {.name = "only_trainable_params",
       .target = &p.only_trainable_params,
       .doc = "true: save_strategy has the layouts of trained parameters only",
       .no_effect_with = "save_strategy = ''",
       .of_training = true},
      {.name = "mesh", .target = as_text(&p.mesh), .doc = "named axes of the ranks, like dp=2,tp=2"},
      {.name = "gradient_accumulation_steps",
       .target = &p.gradient_accumulation_steps,
       .doc = "micro-batches that a rank's part of the batch is divided into and computed in, one after the other, "
              "or stage by stage in a pipeline; the step stays the same",
       .check = check_from_to<1, 4096>,
       .flag = "--micro-batches,--gradient-accumulation-steps",
       .in_bench = true},
      {.name = "interleave",
       .target = &p.interleave,
       .doc = "copies that each micro-batch is divided into; ranks compute one while they exchange what another "
              "reads next. The step stays the same",
       .check = check_from_to<1, 64>,
       .flag = "--interleave",
       .in_bench = true},
      {.name = "sum_micro_batch_losses",
       .target = &p.sum_micro_batch_losses,
       .doc = "true: the loss is the sum of the micro-batches' losses, as MindSpore's PipelineCell, GradAccumulation "
              "and MicroBatchInterleaved have it, and gradients are those of the sum; false: the mean over the batch",
       .on_resume = OnResume::kTold,
       .of_training = true},
      {.name = "dataset",
       .target = as_text(&p.dataset),
       .doc = "data_parallel, full_batch, a layout like [dp, sp], or numbers like {{4, 1}, {4}}"},
      {.name = "fields",
       .target = as_texts(&p.fields),
       .doc = "layouts of fields of the batch, \"name = layout\", like \"tokens = [dp, sp]\"; the others are laid "
              "out as parallel.dataset says"},
      {.name = "ops",
       .target = as_texts(&p.ops),
       .doc = "cuts of ops, \"scope = cuts\", like \"h.*.mlp.c_fc = [dp, -, -], [-, tp]\""},
      {.name = "parameters",
       .target = as_texts(&p.parameters),
       .doc = "layouts of parameters, \"name = layout\", like \"wte.weight = [tp, -]\""},
      {.name = "layerwise",
       .target = as_texts(&p.layerwise),
       .doc = "data_parallel, hybrid_parallel: parameters of which each rank has values of its own, \"name\", or "
              "pieces of larger ones, \"name = [tp, -]\""}};
}

}  // namespace

void add_keys(std::vector<ConfigKey>& to, const char* section, const std::vector<Key>& rows) {
  for (const Key& row : rows) {
    std::string name(section);
    name += '.';
    name += row.name;
    to.push_back({std::move(name), row.target, row.doc, row});
  }
}

std::vector<ConfigKey> config_keys(JobConfig& c) {
  std::vector<ConfigKey> keys{
      {"name", &c.name, "name of the run, shown in its report", {.target = &c.name, .on_resume = OnResume::kFree}}};
  for (ConfigKey& key : keys_of_kinds(c)) keys.push_back(std::move(key));
  for (const std::vector<Key>& rows : {keys_of(c.train.fit), keys_of(c.train.step), keys_of(c.train.passes)})
    add_keys(keys, "train", rows);
  for (ConfigKey& key : optimizer_keys(c)) keys.push_back(std::move(key));
  for (const std::vector<Key>& rows : {keys_of(c.train.schedule), keys_of_run(c)}) add_keys(keys, "train", rows);
  for (const std::vector<Key>& rows :
       {keys_of_ranks(c), keys_of_ready_made(c), keys_of_pipeline(c), keys_of_kept(c), keys_of_tiers(c),
        keys_of_cuts(c), keys_of(c.parallel.zero), keys_of(c.parallel.search), keys_of(c.parallel.communication),
        keys_of(c.parallel.communication.fusion), keys_of_fusion(c)})
    add_keys(keys, "parallel", rows);
  return keys;
}

}  // namespace trireme
