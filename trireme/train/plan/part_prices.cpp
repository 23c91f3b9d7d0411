#include "trireme/train/plan/part_prices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/cost/crew_links.h"
#include "trireme/cost/price.h"
#include "trireme/op/message.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

using PartField = int64_t PartPrice::*;
constexpr std::array kPartPasses{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                                 &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward};
constexpr std::array kPartComputed{&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad,
                                   &PartPrice::again, &PartPrice::update};
constexpr std::array kPartMoved{&PartPrice::moving_forward, &PartPrice::moving_backward, &PartPrice::sync};

// Whether a message to another crew needs the node: what crosses back are gradients of what came.
std::vector<char> input_grads_of(const Graph& graph) {
  std::vector<char> needed(graph.nodes().size(), 0);
  for (size_t i = needed.size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kBackward) continue;
    if (is_message(def_of(node)) && !node.inputs.empty()) needed[i] = 1;
    if (needed[i] == 0) continue;
    for (const ValueId id : node.inputs) {
      const NodeId producer = graph.value(id).producer;
      if (producer >= 0) needed[static_cast<size_t>(producer)] = 1;
    }
  }
  return needed;
}

// Bytes that weight gradients read and something before them makes: what is left of micro-batches for which only these
// are to be computed.
int64_t waiting_bytes(const Graph& graph, const std::vector<char>& input_grads) {
  const auto is_put_off = [&](NodeId id) {
    const auto i = static_cast<size_t>(id);
    return graph.nodes()[i].phase == Phase::kBackward && input_grads[i] == 0 && !is_message(def_of(graph.nodes()[i]));
  };
  std::set<ValueId> read;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!is_put_off(static_cast<NodeId>(i))) continue;
    for (const ValueId id : graph.nodes()[i].inputs) {
      if (const NodeId producer = graph.value(id).producer; producer >= 0 && !is_put_off(producer)) read.insert(id);
    }
  }
  int64_t out = 0;
  for (const ValueId id : read) out += graph.type(id).bytes();
  return out;
}

// Of all micro-batches that the crew's program has.
PartPrice sums_of(const CompiledCrew& crew, const Rates& rates) {
  const Graph& graph = crew.program.graph;
  const CostModel model(crew.program.mesh, rates);
  const std::vector<int64_t> prices = node_prices_ps(crew.program, model);
  const std::vector<char> input_grads = input_grads_of(graph);
  PartPrice out;
  for (size_t i = 0; i < prices.size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (is_message(def_of(node))) continue;
    const bool moves = is_communication(def_of(node)) || is_move(def_of(node));
    PartField field = &PartPrice::update;
    if (node.phase == Phase::kForward) {
      field = node.again ? (moves ? &PartPrice::moving_backward : &PartPrice::again)
                         : (moves ? &PartPrice::moving_forward : &PartPrice::forward);
    } else if (node.phase == Phase::kBackward) {
      field = moves ? &PartPrice::moving_backward
                    : (input_grads[i] != 0 ? &PartPrice::input_grad : &PartPrice::weight_grad);
    } else if (is_move(def_of(node))) {
      field = move_of(node.attrs).to == Tier::kDevice ? &PartPrice::coming : &PartPrice::going;
    } else if (moves) {
      field = &PartPrice::sync;
    }
    out.*field += prices[i];
  }
  const std::vector<int64_t> held = bytes_by_holding(crew.plan);
  const auto of = [&](Holding holding) { return held[static_cast<size_t>(holding)]; };
  out.persistent = crew.plan.arena().persistent;
  out.gradients = of(Holding::kGradient);
  out.kept = of(Holding::kActivation) + of(Holding::kData);
  out.waiting = waiting_bytes(graph, input_grads);
  out.host = crew.plan.arena(Tier::kHost).bytes;
  out.disk = crew.plan.arena(Tier::kDisk).bytes;
  out.work = std::max<int64_t>(0, crew.plan.arena().bytes - out.persistent - out.gradients - out.kept);
  return out;
}

void count_messages(const CompiledCrew& crew, int64_t& messages, int64_t& bytes) {
  for (const Node& node : crew.program.graph.nodes()) {
    if (!is_message(def_of(node)) || node.inputs.empty()) continue;
    ++messages;
    for (const ValueId id : node.inputs) bytes += crew.program.graph.type(id).bytes();
  }
}

struct JobSums {
  std::vector<PartPrice> crews;             // those that were asked for
  int64_t messages = 0, message_bytes = 0;  // that the first block's crew sends
};

// From so many micro-batches, and one more, what each takes and what the step takes once.
PartPrice per_micro_batch(const PartPrice& few, const PartPrice& more, int64_t count) {
  PartPrice out;
  int64_t update = 0, sync = 0;
  const auto split = [&](PartField field, int64_t& once) {
    out.*field = more.*field - few.*field;
    once += few.*field - count * (out.*field);
  };
  for (const PartField field : kPartComputed) split(field, update);
  for (const PartField field : kPartMoved) split(field, sync);
  // What updates do for each micro-batch is part of its backward pass.
  out.weight_grad += out.update;
  out.moving_backward += out.sync;
  out.update = update;
  out.sync = sync;
  out.coming = std::max(few.coming, more.coming);
  out.going = std::max(few.going, more.going);
  out.host = std::max(few.host, more.host);
  out.disk = std::max(few.disk, more.disk);
  out.persistent = few.persistent;
  out.gradients = std::max(few.gradients, more.gradients);
  out.kept = std::max<int64_t>(0, more.kept - few.kept);
  out.waiting = std::max(out.kept, more.waiting - few.waiting);  // never less: it is a sum of values, without moments
  const auto rest = [&](const PartPrice& of, int64_t micro_batches) {
    return std::max<int64_t>(0, of.work + of.kept + of.gradients - out.gradients - micro_batches * out.kept);
  };
  out.work = std::max(rest(few, count), rest(more, count + 1));
  return out;
}

// What other ranks add to a pass is never less than nothing: bounds rest on it.
// Where slices hide what a micro-batch keeps it is in `work`, as often as there are micro-batches.
void add_difference(PartPrice& to, PartPrice with, const PartPrice& without, int64_t micro_batches) {
  const int64_t hidden = std::max<int64_t>(0, without.kept - with.kept);
  with.work = std::max<int64_t>(0, with.work - micro_batches * hidden);
  with.kept += hidden;
  for (const PartField field : kPartPasses) to.*field += std::max<int64_t>(0, with.*field - without.*field);
  for (const PartField field : {&PartPrice::update, &PartPrice::sync, &PartPrice::persistent, &PartPrice::gradients,
                                &PartPrice::kept, &PartPrice::waiting, &PartPrice::work, &PartPrice::coming,
                                &PartPrice::going, &PartPrice::host, &PartPrice::disk})
    to.*field = std::max<int64_t>(0, to.*field + with.*field - without.*field);
}

// Nor is what is computed again.
void raise_passes(PartPrices& to, const PartPrices& least) {
  for (size_t i = 0; i < to.parts.size(); ++i) {
    for (const PartField field : kPartPasses) to.parts[i].*field = std::max(to.parts[i].*field, least.parts[i].*field);
  }
}

// With the state nearer no time is longer.
void raise_times(PartPrices& to, const PartPrices& nearer) {
  raise_passes(to, nearer);
  for (size_t i = 0; i < to.parts.size(); ++i) {
    for (const PartField field : {&PartPrice::update, &PartPrice::sync, &PartPrice::coming, &PartPrice::going})
      to.parts[i].*field = std::max(to.parts[i].*field, nearer.parts[i].*field);
  }
}

void raise_prices(PartPrices& to, const PartPrices& least) {
  for (size_t i = 0; i < to.parts.size(); ++i) raise_part(to.parts[i], least.parts[i]);
}

}  // namespace

std::vector<std::string> one_block_keys(const JobConfig& job) {
  std::vector<std::string> out{"data.validation=0"};
  for (const std::string& key : job.model.spec->one_block_of_each_kind()) out.push_back("model." + key);
  return out;
}

InnerWay alone_of(InnerWay way) {
  way.dp = 1;
  way.zero = 0;
  way.state = Tier::kDevice;
  return way;
}

InnerWay with_most_rows(const InnerWay& way) {
  InnerWay out = alone_of(way);
  out.rows = kMostRows;
  return out;
}

std::optional<InnerWay> with_few_ranks(const InnerWay& way) {
  if (way.dp <= kFewRanks || way.dp % kFewRanks != 0) return std::nullopt;
  InnerWay out = way;
  out.dp = kFewRanks;
  out.state = Tier::kDevice;
  return out;
}

void raise_moved(PartPrices& to, const PartPrices& of_few) {
  for (size_t i = 0; i < to.parts.size(); ++i) raise_moved(to.parts[i], of_few.parts[i]);
}

PartPrices least_of(const PartPrices& alone, const InnerWay& known, const InnerWay& way, const StepFigures& figures) {
  const LeastPartOf of{.rows = way.rows,
                       .rows_of_table = known.rows,
                       .is_own = known == alone_of(way),
                       .ranks = way.ranks(),
                       .zero = way.zero,
                       .state_elsewhere = way.state != Tier::kDevice,
                       .parameter_bytes = figures.parameter_bytes,
                       .state_bytes = figures.state_bytes};
  PartPrices out;
  for (const PartPrice& part : alone.parts) out.parts.push_back(least_part(part, of));
  return out;
}

Way InnerWay::way() const {
  return {.tp = tp,
          .cp = cp,
          .ep = ep,
          .sp = sp,
          .vocabulary = vocabulary,
          .zero = zero,
          .recompute = recompute,
          .state = state};
}

struct PartPricer::Impl {
  Impl(const JobConfig& job, const ModelParts& model_parts, const StepFigures& of_step, int of_rank)
      : parts(model_parts), figures(of_step), threads(of_rank) {
    reduced = job;
    set_keys(reduced, one_block_keys(job));
    batch = job.train.fit.batch;
    of_model = model_of(reduced).cuttable();
    parts.kinds.resize(static_cast<size_t>(parts.kind_count()));
    std::iota(parts.kinds.begin(), parts.kinds.end(), int64_t{0});
    if (parts.kind_count() > 1) check_reduced();
  }

  // Crews of the reduced job: the parts.
  int64_t crews() const { return parts.count(); }

  // A reduced job: its crews are the parts.
  struct Reduced {
    std::unique_ptr<nn::Module> model;
    int64_t ranks = 1;
    Assembly assembly;
  };
  Reduced reduced_job(const InnerWay& inner, int64_t micro_batches, std::string_view schedule) const {
    Way way = inner.way();
    way.pp = crews();
    way.micro_batches = micro_batches;
    way.schedule = schedule;
    std::vector<std::string> keys = way.keys();
    std::vector<int64_t> begins(static_cast<size_t>(crews()));
    std::iota(begins.begin(), begins.end(), int64_t{0});
    keys.push_back(parts.stages_key(begins));
    const int64_t samples = inner.rows * inner.dp * micro_batches;
    keys.push_back(fmt::format("train.batch={}", samples));
    if (const int64_t groups = of_model.expert_groups; groups > 1) {
      require(groups * samples % batch == 0,
              "plan: {} groups of a batch of {} samples are no whole number of groups in {} samples; let "
              "model.expert_groups be a multiple of train.batch",
              groups, batch, samples);
      keys.push_back(fmt::format("model.expert_groups={}", groups * samples / batch));
    }
    JobConfig job = reduced;
    set_keys(job, keys);
    const int64_t ranks = crews() * inner.ranks();
    auto model = make_model(job);
    Assembly assembly = assembly_of(job, *model, ranks);
    return {std::move(model), ranks, std::move(assembly)};
  }

  // Whether micro-batches depend on each other. Of models without a mixture they do not.
  bool is_joined(const InnerWay& inner) {
    if (!of_model.mixture || of_model.experts == 0) return false;
    InnerWay before_passes = inner;
    before_passes.recompute = "none";
    before_passes.vocabulary = false;
    before_passes.state = Tier::kDevice;
    const auto known = joined.find(before_passes);
    if (known != joined.end()) return known->second;
    const Reduced job = reduced_job(before_passes, crews(), "1f1b");
    JobGraphs graphs = graphs_of(job.assembly, job.ranks);
    bool out = false;
    try {
      crew_programs(std::move(graphs.step), options_of(job.assembly, graphs.parallel, job.ranks));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidArgument) throw;
      out = true;
    }
    return joined.emplace(before_passes, out).first->second;
  }

  JobSums compiled(const InnerWay& inner, int64_t micro_batches, const std::vector<size_t>& wanted) {
    const Reduced job = reduced_job(inner, micro_batches, "gpipe");  // keeps what all micro-batches keep
    const int64_t ranks = job.ranks;
    const Assembly& assembly = job.assembly;
    Begun from = programs_of(inner, micro_batches, assembly, ranks);
    from.parallel.homes = assembly.options.parallel.homes;
    const Rates of_crew = from.programs.whole.rates;
    JobSums out;
    const CompileOptions options = options_of(assembly, from.parallel, ranks);
    const std::vector<CompiledCrew> compiled = compile_crews(std::move(from.programs), options, wanted).crews;
    for (size_t i = 0; i < wanted.size(); ++i) {
      out.crews.push_back(sums_of(compiled[i], of_crew));
      if (inner.state == Tier::kDevice)
        out.crews.back().host = out.crews.back().disk = 0;  // no way says what they hold
      if (wanted[i] == 1) count_messages(compiled[i], out.messages, out.message_bytes);
    }
    rates.insert_or_assign(inner.ranks(), of_crew);
    return out;
  }

  // Before passes.
  struct Begun {
    CrewPrograms programs;
    Parallel parallel;
  };

  // What is computed again, and what lies elsewhere, is a matter of passes: programs before them are the same, and kept
  // for that.
  Begun programs_of(const InnerWay& inner, int64_t micro_batches, const Assembly& assembly, int64_t ranks) {
    InnerWay before_passes = inner;
    before_passes.recompute = "none";
    before_passes.state = Tier::kDevice;
    const auto known = begun.find({before_passes, micro_batches});
    if (known != begun.end()) return known->second;
    JobGraphs graphs = graphs_of(assembly, ranks);
    const CompileOptions options = options_of(assembly, graphs.parallel, ranks);
    Begun out{crew_programs(std::move(graphs.step), options), std::move(graphs.parallel)};
    out.programs.whole.partitioned = Program();
    const auto made = static_cast<int64_t>(out.programs.programs.size());
    invariant(made == crews(), "a job of {} parts has {} crews", crews(), made);
    if (inner.dp == 1 && inner.zero == 0)  // others are compiled without what is computed again
      begun.emplace(std::pair(before_passes, micro_batches), out);
    return out;
  }

  // Whether the reduced job has a block of each kind of the whole one.
  void check_reduced() const {
    const auto model = make_model(reduced);
    const ModelParts made = parts_of(graphs_of(assembly_of(reduced, *model, 1), 1).step);
    if (made.signatures == parts.signatures && made.kinds == parts.kinds) return;
    fail(ErrorKind::kUnsupported,
         "plan: the exact search prices one block of each kind, and the model '{}' with {} has others than the blocks "
         "'{}'; use --search compiled",
         reduced.model.kind, fmt::join(one_block_keys(reduced), ", "), parts.blocks);
  }

  // Of many programs that are priced one is trained, which is verified then.
  CompileOptions options_of(const Assembly& assembly, const Parallel& parallel, int64_t ranks) const {
    CompileOptions out = compile_options(assembly, parallel, ranks, threads);
    out.passes.verify = false;
    return out;
  }

  // Between crews of so many ranks that follow each other.
  int64_t crossing(int64_t ranks, int64_t messages, int64_t bytes) const {
    const Rates& by = rates.at(ranks);
    const CollectiveWork work{.rounds = static_cast<double>(messages), .bytes = static_cast<double>(bytes)};
    return static_cast<int64_t>(std::round(seconds(work, link_between_crews(1, ranks, by), by.links) * 1e12));
  }

  ModelParts parts;
  StepFigures figures;
  int threads;
  JobConfig reduced;
  nn::Cuttable of_model;
  int64_t batch = 1;                                    // of the whole job
  std::map<InnerWay, bool> joined;                      // by way before passes
  std::map<int64_t, Rates> rates;                       // by the ranks of a crew
  std::map<std::pair<InnerWay, int64_t>, Begun> begun;  // by way and micro-batches
};

PartPricer::PartPricer(const JobConfig& job, const ModelParts& parts, const StepFigures& figures, int threads)
    : impl_(std::make_unique<Impl>(job, parts, figures, threads)) {}
PartPricer::~PartPricer() = default;

std::optional<PartPrices> PartPricer::compiled(const InnerWay& way) {
  try {
    return compiled_or_throw(way);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    if (refusal_.empty()) refusal_ = error.what();
    return std::nullopt;
  }
}

// A vocabulary that is cut is a matter of what stands before and after the blocks.
std::optional<PartPrices> PartPricer::compiled_or_throw(const InnerWay& way) {
  const int64_t crews = impl_->crews();
  std::vector<size_t> wanted{0};
  for (size_t crew = 1; !way.vocabulary && crew + 1 < static_cast<size_t>(crews); ++crew) wanted.push_back(crew);
  wanted.push_back(static_cast<size_t>(crews) - 1);
  PartPrices out;
  if (way.vocabulary) {
    InnerWay whole = way;
    whole.vocabulary = false;
    const std::optional<PartPrices>& of_blocks = compiled_once(whole);
    if (!of_blocks) return std::nullopt;
    out = *of_blocks;
  }
  jobs_compiled_ += 2;
  const JobSums few = impl_->compiled(way, crews, wanted), more = impl_->compiled(way, crews + 1, wanted);
  out.parts.resize(static_cast<size_t>(crews));
  for (size_t i = 0; i < wanted.size(); ++i) out.parts[wanted[i]] = per_micro_batch(few.crews[i], more.crews[i], crews);
  if (!way.vocabulary) {
    out.messages = more.messages - few.messages;
    out.message_bytes = more.message_bytes - few.message_bytes;
  }
  out.crossing = impl_->crossing(way.ranks(), out.messages, out.message_bytes);
  return out;
}

const std::optional<PartPrices>& PartPricer::compiled_once(const InnerWay& way) {
  const auto found = compiled_.find(way);
  if (found != compiled_.end()) return found->second;
  std::optional<PartPrices> out = compiled(way);  // which may add others
  return compiled_.emplace(way, std::move(out)).first->second;
}

const std::optional<PartPrices>& PartPricer::alone(const InnerWay& way) {
  const InnerWay key = alone_of(way), most = with_most_rows(way);
  const auto found = alone_.find(key);
  if (found != alone_.end()) return found->second;
  std::optional<PartPrices> out = compiled_once(key);
  if (out) out->is_joined = impl_->is_joined(key);
  // What a step does once is a difference of two that are large.
  if (out) {
    for (PartPrice& part : out->parts) {
      part.update = std::max<int64_t>(0, part.update);
      part.sync = std::max<int64_t>(0, part.sync);
    }
  }
  InnerWay without = most;
  without.recompute = "none";
  if (out && key != most) {
    if (const auto& least = alone(most)) raise_prices(*out, least_of(*least, most, key, impl_->figures));
  }
  if (out && key != without) {
    if (const auto& least = alone(without)) raise_passes(*out, least_of(*least, without, key, impl_->figures));
  }
  return alone_.emplace(key, std::move(out)).first->second;
}

const std::optional<PartPrices>& PartPricer::prices(const InnerWay& way) {
  const auto found = prices_.find(way);
  if (found != prices_.end()) return found->second;
  InnerWay sliced = way;
  sliced.rows = 1;
  sliced.recompute = "none";
  const auto& least = alone(way);
  std::optional<PartPrices> out = least;
  if (out) {
    const auto& without = compiled_once(alone_of(sliced));
    const auto& with = compiled_once(sliced);
    if (!without || !with) return prices_.emplace(way, std::nullopt).first->second;
    for (size_t i = 0; i < out->parts.size(); ++i)
      add_difference(out->parts[i], with->parts[i], without->parts[i], impl_->crews());
    raise_prices(*out, least_of(*least, alone_of(way), way, impl_->figures));
    if (const auto few = with_few_ranks(way)) {
      if (const auto& moved = prices(*few)) raise_moved(*out, *moved);
    }
    if (way.state != Tier::kDevice) {
      InnerWay nearer = way;
      nearer.state = way.state == Tier::kDisk ? Tier::kHost : Tier::kDevice;
      if (const auto& least_times = prices(nearer)) raise_times(*out, *least_times);
    }
    out->crossing = impl_->crossing(way.ranks(), out->messages, out->message_bytes);  // the links may be others
  }
  return prices_.emplace(way, std::move(out)).first->second;
}

}  // namespace trireme
