#include "trireme/train/job/parallel_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/words.h"
#include "trireme/parallel/strategy/strategy_json.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

// Heads that attention may be cut by: a key head stays with the query heads that it serves.
int64_t key_heads(const JobConfig& config) {
  return model_of(config).cuttable().heads;
}

}  // namespace

int64_t ranks_of_heads(const JobConfig& config) {
  const auto& p = config.parallel;
  if (p.cp == 1) return 1;
  const int64_t heads = key_heads(config);
  const bool divide = heads % (p.tp * p.cp) == 0;
  if (p.cp_algorithm == ContextAlgorithm::kRing || (p.cp_algorithm == ContextAlgorithm::kAuto && !divide)) return 1;
  if (p.cp_algorithm != ContextAlgorithm::kHybrid) return p.cp;
  if (p.ulysses_degree > 0) return p.ulysses_degree;
  for (int64_t ranks = p.cp / 2; ranks > 1; --ranks) {
    if (p.cp % ranks == 0 && heads % (p.tp * ranks) == 0) return ranks;
  }
  fail(ErrorKind::kInvalidArgument,
       "configuration: parallel.cp_algorithm = 'hybrid' shares {} heads over parallel.tp = {} and a part of "
       "parallel.cp = {}, and no part "
       "of 2 ranks or more, and fewer than all, divides them; use {}",
       heads, p.tp, p.cp, divide ? "'ulysses', which has all ranks share the heads, or 'ring'" : "'ring'");
}

namespace {

// How positions lie. Between the products they are cut over `between`, and with sequence parallelism over `tp` too; in
// attention over `ring`, and heads over `heads` besides tp. Axes of one rank cut nothing.
struct Positions {
  std::string between, ring, heads;
};

Positions positions_of(const JobConfig& config) {
  const int64_t heads = ranks_of_heads(config);
  if (heads == config.parallel.cp) return {"cp", "-", "tp*cp"};
  if (heads == 1) return {"cp", "cp", "tp"};
  return {"cp*cph", "cp", "tp*cph"};
}

void check_degree(const JobConfig& config) {
  const auto& p = config.parallel;
  if (p.ulysses_degree == 0) return;
  require(p.cp_algorithm == ContextAlgorithm::kHybrid && p.cp > 1,
          "configuration: parallel.ulysses_degree = {} is for parallel.cp_algorithm = 'hybrid' on parallel.cp = 2 "
          "ranks or more; they are '{}' and {}",
          p.ulysses_degree, name_of(p.cp_algorithm, kContextAlgorithms), p.cp);
  std::vector<std::string> fit;
  for (int64_t ranks = 1; ranks <= p.cp; ++ranks) {
    if (p.cp % ranks == 0 && key_heads(config) % (p.tp * ranks) == 0) fit.push_back(std::to_string(ranks));
  }
  require(std::ranges::find(fit, std::to_string(p.ulysses_degree)) != fit.end(),
          "configuration: parallel.ulysses_degree = {} must divide parallel.cp = {}, and with parallel.tp = {} the {} "
          "heads of keys and "
          "values; use {}",
          p.ulysses_degree, p.cp, p.tp, key_heads(config),
          fit.empty() ? "another parallel.tp" : joined_text(fit, ", "));
}

void check_heads(const JobConfig& config, const std::string& key) {
  const auto& p = config.parallel;
  const int64_t ranks = ranks_of_heads(config);
  require(key_heads(config) % p.tp == 0,
          "configuration: {} = {} does not divide over parallel.tp = {} ranks; each rank has whole heads of keys and "
          "values",
          key, key_heads(config), p.tp);
  require(key_heads(config) % (p.tp * ranks) == 0,
          "configuration: {} = {} does not divide over parallel.tp = {} x parallel.cp = {} ranks; use "
          "parallel.cp_algorithm = "
          "'ring'",
          key, key_heads(config), p.tp, ranks);
}

void check_has_experts(const JobConfig& config) {
  const int64_t ep = config.parallel.ep;
  const nn::Cuttable model = model_of(config).cuttable();
  require(ep == 1 || !model.mixture || model.experts > 0,
          "configuration: parallel.ep = {} ranks share the experts of a mixture, and the model has none; set "
          "model.experts to {} or a multiple of it, or leave parallel.ep out",
          ep, ep);
}

void check_experts(const JobConfig& config, const nn::Cuttable& model, int64_t ranks) {
  const auto& p = config.parallel;
  if (model.experts == 0 && p.ep == 1) return;
  require(model.experts % p.ep == 0,
          "configuration: model.experts = {} does not divide over parallel.ep = {} ranks; use a multiple of {}",
          model.experts, p.ep, p.ep);
  const int64_t batches = ranks / (p.tp * p.cp);
  require(model.expert_groups == 1 || model.expert_groups % batches == 0,
          "configuration: model.expert_groups = {} does not divide over {} ranks that have parts of the batch; use a "
          "multiple of "
          "{}, or 1",
          model.expert_groups, batches, batches);
  // Places that several ranks or micro-batches fill are sums over these.
  const int64_t parts = batches * p.gradient_accumulation_steps * p.interleave;
  require(
      p.ep == 1 || config.train.step.numerics == Numerics::kFast || model.expert_groups % parts == 0,
      "configuration: train.numerics = 'invariant' with parallel.ep = {}: model.expert_groups = {}, and the batch has "
      "{} parts, which ranks and micro-batches compute; set it to {} or a multiple, or use train.numerics = 'fast'",
      p.ep, model.expert_groups, parts, parts);
}

// What is asked of the ready-made strategy must be what it has.
void check_cuttable(const JobConfig& config, const nn::Cuttable& model) {
  const auto& p = config.parallel;
  const std::pair<bool, const char*> lacking[] = {{p.tp > 1 && !model.weights, "parallel.tp"},
                                                  {p.cp > 1 && !model.positions, "parallel.cp"},
                                                  {p.sp && !model.positions, "parallel.sp"},
                                                  {p.vocabulary && model.vocabulary == 0, "parallel.vocabulary"},
                                                  {p.ep > 1 && !model.mixture, "parallel.ep"}};
  for (const auto& [lacks, key] : lacking) {
    require(!lacks,
            "configuration: {} has no ready-made strategy for model.kind '{}'; say it with parallel.mesh and "
            "parallel.ops",
            key, config.model.kind);
  }
}

std::vector<OpRule> ready_made(const JobConfig& config, int64_t ranks) {
  const auto& p = config.parallel;
  if (p.tp <= 1 && p.cp <= 1 && p.ep <= 1) return {};
  const nn::Cuttable model = model_of(config).cuttable();
  check_cuttable(config, model);
  if (model.heads > 0) check_heads(config, model.heads_key);
  if (model.mixture) check_experts(config, model, ranks);
  const Positions positions = positions_of(config);
  std::vector<OpRule> rules;
  for (nn::Cut& cut : model_of(config).cuts({.sequence = p.sp,
                      .vocabulary = p.vocabulary,
                      .between = positions.between,
                      .ring = positions.ring,
                      .heads = positions.heads})) {
    rules.push_back({cut.pattern, cut.cuts});
  }
  return rules;
}

// Every field has the batch in front. Positions are its next dimension by the dataset strategy of a model that has
// them; here are the fields that have none, or others before them.
std::vector<LayoutRule> ready_made_fields(const JobConfig& config) {
  const std::vector<FieldNeed> needs = model_of(config).needs();
  const std::vector<FieldSpec> fields = fields_of(config);
  std::vector<LayoutRule> rules;
  for (size_t i = 0; i < fields.size(); ++i) {
    const int positions = needs[i].positions;
    if (positions == 0 || fields[i].sample.shape.rank() == 0) continue;
    std::string layout = "[dp*ep";
    for (int dim = 0; dim < positions; ++dim) layout += ", -";
    if (positions > 0) layout += ", " + positions_of(config).between;
    rules.push_back({fields[i].name, layout + "]"});
  }
  return rules;
}

// Ranks of parallel.cp have as many positions of a sample each.
void check_positions(const JobConfig& config) {
  const int64_t cp = config.parallel.cp;
  const std::vector<FieldNeed> needs = model_of(config).needs();
  const std::vector<FieldSpec> fields = fields_of(config);
  for (size_t i = 0; i < fields.size(); ++i) {
    const int dim = needs[i].positions;
    if (dim < 0 || dim >= fields[i].sample.shape.rank()) continue;
    const int64_t size = fields[i].sample.shape[dim];
    require(size % cp == 0,
            "configuration: the {} positions of a sample (data.seq) do not divide over parallel.cp = {} ranks; use {} "
            "positions, or another parallel.cp",
            size, cp, size < cp ? std::to_string(cp) : fmt::format("{} or {}", size / cp * cp, (size / cp + 1) * cp));
  }
}

// The keys that are given of those that say how the compiler cuts a model.
std::vector<std::string_view> given_cuts(const JobConfig& config) {
  const auto& p = config.parallel;
  const std::pair<bool, std::string_view> keys[] = {{!p.strategy.empty(), "strategy"},
                                                    {!p.mesh.empty(), "mesh"},
                                                    {p.tp > 1, "tp"},
                                                    {p.cp > 1, "cp"},
                                                    {p.ep > 1, "ep"},
                                                    {p.sp, "sp"},
                                                    {p.vocabulary, "vocabulary"},
                                                    {!p.ops.empty(), "ops"},
                                                    {!p.parameters.empty(), "parameters"},
                                                    {!p.fields.empty(), "fields"},
                                                    {!p.dataset.is(DatasetStrategy::Named::kDataParallel), "dataset"}};
  std::vector<std::string_view> out;
  for (const auto& [is_given, key] : keys) {
    if (is_given) out.push_back(key);
  }
  return out;
}

// What is asked beside a search is single ops, parameters and fields, on a mesh; the rest is the search's to find.
void check_searched(const JobConfig& config) {
  const auto& p = config.parallel;
  require(!plans_whole_job(p.search.kind),
          "configuration: parallel.search = '{}' leaves it to a plan how the job is cut; go on with the job that "
          "auto_plan (train/plan/auto/auto_plan.h) makes of it",
          to_string(p.search.kind));
  const std::pair<bool, const char*> given[] = {{p.tp > 1, "tp"},
                                                {p.cp > 1, "cp"},
                                                {p.ep > 1, "ep"},
                                                {p.sp, "sp"},
                                                {p.vocabulary, "vocabulary"},
                                                {!p.strategy.empty(), "strategy"}};
  for (const auto& [is_given, key] : given) {
    require(!is_given,
            "configuration: parallel.{} says how the model is cut, and parallel.mode = 'auto_parallel' finds that; "
            "leave it out, or use the mode 'semi_auto_parallel'",
            key);
  }
  require(p.layerwise.empty(),
          "configuration: parallel.layerwise is for parallel.mode = 'hybrid_parallel' and 'data_parallel'; the mode is "
          "'auto_parallel'");
}

// What says how the compiler cuts a model has no place where the model's own code cuts it.
void check_mode(const JobConfig& config) {
  const auto& p = config.parallel;
  const bool hybrid = p.mode == Mode::kHybrid;
  JobConfig rest = config;
  if (hybrid) rest.parallel.mesh = {}, rest.parallel.fields.clear(), rest.parallel.dataset = {};
  if (p.mode == Mode::kAuto) return check_searched(config);
  const std::vector<std::string_view> given = given_cuts(rest);
  require(p.mode == Mode::kSemiAuto || given.empty(),
          "configuration: parallel.{} {} for parallel.mode = 'semi_auto_parallel'; the mode is '{}'. Set that mode, or "
          "leave {} out",
          joined_text(given, ", "), given.size() == 1 ? "is" : "are", to_string(p.mode),
          given.size() == 1 ? "it" : "them");
  require(!hybrid || p.zero.level == 0,
          "configuration: parallel.zero = {} slices parameters that the compiler cuts, and parallel.mode = '{}' leaves "
          "cutting to the model's code; use zero = 0, or another mode",
          p.zero.level, to_string(p.mode));
  require(
      p.layerwise.empty() || p.zero.level == 0,
      "configuration: parallel.zero = {} slices parameters that the compiler cuts, and parallel.layerwise has ranks "
      "run the model as its code cuts it; leave one out",
      p.zero.level);
  require(p.layerwise.empty() || hybrid || p.mode == Mode::kDataParallel,
          "configuration: parallel.layerwise is for parallel.mode = 'hybrid_parallel' and 'data_parallel'; the mode is "
          "'{}'",
          to_string(p.mode));
}

// `ranks`: of each part of a pipeline.
MeshSpec mesh_of(const JobConfig& config, int64_t ranks) {
  const auto& p = config.parallel;
  if (!p.mesh.empty()) {
    require(p.tp <= 1 && p.cp <= 1 && p.ep <= 1,
            "configuration: both parallel.mesh = '{}' and parallel.tp = {}, cp = {}, ep = {} are set; keep one",
            to_string(p.mesh), p.tp, p.cp, p.ep);
    return p.mesh;
  }
  const int64_t copy = p.ep * p.tp * p.cp;  // ranks that hold one copy of the model
  if (copy <= 1) return {};
  const std::string parts = fmt::format("each of the {} parts of the pipeline (parallel.pp)", p.pp);
  require(ranks >= copy,
          "configuration: parallel.tp = {} x cp = {} x ep = {} is {}, and {} has {}; start {}, or cut less", p.tp, p.cp,
          p.ep, counted(copy, "rank"), p.pp == 1 ? "the job" : parts, ranks, copy * p.pp);
  require(ranks % copy == 0,
          "configuration: parallel.tp = {} x cp = {} x ep = {} does not divide the {} ranks of {}; start {} or {}",
          p.tp, p.cp, p.ep, ranks, p.pp == 1 ? "the job" : parts, ranks / copy * copy * p.pp,
          (ranks / copy + 1) * copy * p.pp);
  const int64_t heads = ranks_of_heads(config);
  std::vector<MeshAxis> axes{{"dp", ranks / copy}, {"ep", p.ep}};
  if (heads == 1 || heads == p.cp) {
    axes.push_back({"cp", p.cp});
  } else {
    axes.insert(axes.end(), {{"cp", p.cp / heads}, {"cph", heads}});
  }
  axes.push_back({"tp", p.tp});
  return Mesh(axes);
}

Fusion fusion_of(const JobConfig& config) {
  const auto& p = config.parallel;
  Fusion out = p.communication.fusion;
  out.all_reduce.bytes = p.all_reduce_fusion_mb << 20;
  out.reduce_scatter.bytes = p.reduce_scatter_fusion_mb << 20;
  out.all_gather.bytes = p.all_gather_fusion_mb << 20;
  check(out);
  return out;
}

// Keys that say how the model is cut, beside a file that says it. Of the mesh both may speak, if they say the same.
void check_beside_strategy(const JobConfig& config, const StrategyFile& file, int64_t ranks) {
  if (file.has_parameters_only()) return;
  const MeshSpec by_keys = mesh_of(config, ranks);
  if (by_keys.empty()) return;
  const auto sizes = [](const Mesh& of) {
    std::vector<std::pair<std::string, int64_t>> out;
    for (const MeshAxis& axis : of.user_axes()) {
      if (axis.size > 1 && axis.name != kMicroBatchAxis && axis.name != kSeqChunkAxis)
        out.emplace_back(axis.name, axis.size);
    }
    return out;
  };
  require(sizes(by_keys.whole()) == sizes(file.mesh()),
          "configuration: parallel.strategy = '{}' is for the mesh '{}', and the keys beside it (parallel.mesh, tp, "
          "cp, ep) make '{}'; leave them out, or "
          "change them",
          config.parallel.strategy, to_string(file.mesh()), to_string(by_keys));
}

// What links between ranks bring: of a machine, or as a run measured.
void add_links(const JobConfig& config, int64_t ranks, Communication& out) {
  const auto& p = config.parallel;
  if (!p.machine.empty()) {
    require_file(p.machine, "configuration: parallel.machine", "name one like those in machines/");
    out.machine = read_machine(p.machine);
  }
  if (!p.rates.empty()) {
    require(p.machine.empty(),
            "configuration: parallel.rates = '{}' and parallel.machine = '{}' both say how fast links are; keep one",
            p.rates, p.machine);
    require_file(p.rates, "configuration: parallel.rates", "name rates.toml in the folder of a run over ucx or mpi");
    out.measured = read_machine(p.rates);
    require(out.measured->devices() == ranks,
            "configuration: parallel.rates: '{}' was measured on {} but the job has {}; name "
            "one of as many",
            p.rates, counted(out.measured->devices(), "rank"), ranks);
  }
}

// By its name, or what stands in a file.
ScheduleSpec schedule_of(const JobConfig& config, int64_t ranks) {
  const std::string& given = config.parallel.schedule;
  if (std::ranges::find(schedules(), given, &PipelineSchedule::name) != schedules().end()) return given;
  std::string names;
  for (const PipelineSchedule& schedule : schedules())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule.name);
  require(
      is_file(given),
      "configuration: parallel.schedule = '{}' is neither a schedule nor a file; schedules are {}, and a file is as "
      "`trireme timetable` prints it",
      given, names);
  try {
    return to_string(parse_timetable(read_file(given)));
  } catch (Error& e) {
    e.note(fmt::format("while reading '{}', the parallel.schedule", given));
    if (const int64_t of_crew = ranks / config.parallel.pp; of_crew * config.parallel.pp == ranks)
      e.note(fmt::format("a crew is {} of the {} ranks: crew 0 begins with rank 0, crew 1 with rank {}", of_crew, ranks,
                         of_crew));
    throw;
  }
}

PipelineParallel pipeline_of(const JobConfig& config, int64_t ranks) {
  const auto& p = config.parallel;
  if (p.pp == 1) return {};
  require(
      p.mode != Mode::kStandAlone,
      "configuration: parallel.pp = {} with parallel.mode = 'stand_alone', which is one rank; use 'data_parallel' or "
      "'semi_auto_parallel'",
      p.pp);
  return {.crews = p.pp,
          .stages_per_crew = p.virtual_stages,
          .schedule = schedule_of(config, ranks),
          .seq_chunks = p.seq_chunks,
          .slice_crossings = p.slice_crossings,
          .rules = p.stages};
}

}  // namespace

StrategyFile strategy_of(const JobConfig& config) {
  const std::string& path = config.parallel.strategy;
  if (path.empty()) return {};
  require_file(path, "configuration: parallel.strategy", "name one that parallel.save_strategy wrote");
  std::string text = read_file(path);
  if (text.starts_with('{')) text = strategy_from_json(text, fmt::format("strategy '{}'", path));
  require(!text.empty(), "configuration: parallel.strategy: '{}' is empty; name one that parallel.save_strategy wrote",
          path);
  try {
    return text;
  } catch (Error& e) {
    e.note(fmt::format("while reading '{}', the parallel.strategy", path));
    throw;
  }
}

Recompute recompute_of(const JobConfig& config) {
  Recompute out = config.train.passes.recompute;
  out.communication = config.parallel.recompute_communication;
  out.optimizer_communication = config.parallel.optimizer_comm_recompute;
  out.slice = config.parallel.recompute_slice_activation;
  out.rules = config.parallel.keep;
  return out;
}

Parallel parallel_of(const JobConfig& config, int64_t ranks) {
  const auto& p = config.parallel;
  check_mode(config);
  check_degree(config);
  check_has_experts(config);
  require(
      p.tier_ways.offload_to == Tier::kDevice || !p.tier_ways.auto_offload,
      "configuration: parallel.offload_to = '{}' says where parameters and state lie while nothing reads them; with "
      "parallel.auto_offload = true the plan chooses that, from the first step on: set it to false, or leave "
      "offload_to out",
      to_string(p.tier_ways.offload_to));
  require(p.device_num == -1 || p.device_num == ranks,
          "configuration: parallel.device_num = {} but the job has {}; start {}, or change the key", p.device_num,
          counted(ranks, "rank"), counted(p.device_num, "rank"));
  require(
      !p.only_trainable_params || p.zero.level < 3,
      "configuration: parallel.only_trainable_params = true with parallel.zero = 3: the file would have slices of the "
      "weights and not how they are read; save everything, or use zero = 0, 1 or 2");
  Parallel out;
  out.pipeline = pipeline_of(config, ranks);
  const int64_t of_crew = ranks_of_crew(out.pipeline, ranks);
  out.follow_requests = p.mode == Mode::kSemiAuto || p.mode == Mode::kAuto;
  if (p.mode == Mode::kAuto) out.search = p.search;
  out.by_hand = p.mode == Mode::kHybrid || (p.mode == Mode::kDataParallel && !p.layerwise.empty());
  out.layerwise = p.layerwise;
  out.homes = p.homes;
  out.on_host = p.on_host;
  out.tiers = p.tiers;
  out.tier_ways = p.tier_ways;
  out.communication = p.communication;
  out.communication.fusion = fusion_of(config);
  add_links(config, ranks, out.communication);
  out.strategy = strategy_of(config);
  if (!out.strategy.empty()) check_beside_strategy(config, out.strategy, of_crew);
  out.accumulation = p.gradient_accumulation_steps;
  out.interleave = p.interleave;
  // The bits are those of one sum order only where a rank adds up what it has before ranks do.
  if (config.train.step.numerics == Numerics::kInvariant) out.communication.shard_accumulation = false;
  out.mesh = mesh_of(config, of_crew);
  const bool has_positions = model_of(config).cuttable().positions;
  if (has_positions && !out.mesh.empty() && p.mesh.empty() && p.dataset.is(DatasetStrategy::Named::kDataParallel)) {
    check_positions(config);
    out.dataset = fmt::format("[dp*ep, {}]", positions_of(config).between);
    out.fields = ready_made_fields(config);
  } else {
    out.dataset = p.dataset;
  }
  out.fields.insert(out.fields.end(), p.fields.begin(), p.fields.end());
  out.ops = ready_made(config, of_crew);
  out.ops.insert(out.ops.end(), p.ops.begin(), p.ops.end());
  out.parameters = p.parameters;
  out.optimizer = p.zero;
  return out;
}

std::string describe_context(const JobConfig& config) {
  const auto& p = config.parallel;
  if (p.cp <= 1) return "";
  const int64_t heads = ranks_of_heads(config);
  const char* chosen = p.cp_algorithm == ContextAlgorithm::kAuto ? "chosen" : "asked for";
  if (heads == p.cp)
    return fmt::format("attention over cp = {}: ulysses ({}): {} heads over tp x cp", p.cp, chosen, key_heads(config));
  if (heads > 1)
    return fmt::format("attention over cp = {}: rings of {}, heads over the other {} ({})", p.cp, p.cp / heads, heads,
                       chosen);
  return fmt::format("attention over cp = {}: a ring ({})", p.cp, chosen);
}

int64_t data_parallel_degree(const JobConfig& config, int64_t ranks) {
  if (!config.parallel.dataset.is(DatasetStrategy::Named::kDataParallel) || !config.parallel.strategy.empty()) return 1;
  const int64_t of_crew = ranks_of_crew({.crews = config.parallel.pp}, ranks);
  const MeshSpec mesh = mesh_of(config, of_crew);
  if (mesh.empty()) return of_crew;
  int64_t degree = 1;
  for (const MeshAxis& axis : mesh.whole().user_axes()) {
    if (axis.name == "dp" || (axis.name == "ep" && config.parallel.mesh.empty())) degree *= axis.size;
  }
  return degree;
}

}  // namespace trireme
