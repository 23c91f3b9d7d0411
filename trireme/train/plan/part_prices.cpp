#include "trireme/train/plan/part_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
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

constexpr int64_t kPartCrews = 3;  // before, block, after

constexpr std::array kPartsOfModel{&PartPrices::before, &PartPrices::block, &PartPrices::after};

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
    const bool moves = is_communication(def_of(node));
    PartField field = &PartPrice::update;
    if (node.phase == Phase::kForward) {
      field = node.again ? (moves ? &PartPrice::moving_backward : &PartPrice::again)
                         : (moves ? &PartPrice::moving_forward : &PartPrice::forward);
    } else if (node.phase == Phase::kBackward) {
      field = moves ? &PartPrice::moving_backward
                    : (input_grads[i] != 0 ? &PartPrice::input_grad : &PartPrice::weight_grad);
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
  std::array<PartPrice, kPartCrews> crews;
  int64_t messages = 0, message_bytes = 0;  // that the block's crew sends
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
void add_difference(PartPrice& to, PartPrice with, const PartPrice& without) {
  const int64_t hidden = std::max<int64_t>(0, without.kept - with.kept);
  with.work = std::max<int64_t>(0, with.work - kPartCrews * hidden);
  with.kept += hidden;
  for (const PartField field : kPartPasses) to.*field += std::max<int64_t>(0, with.*field - without.*field);
  for (const PartField field : {&PartPrice::update, &PartPrice::sync, &PartPrice::persistent, &PartPrice::gradients,
                                &PartPrice::kept, &PartPrice::waiting, &PartPrice::work})
    to.*field = std::max<int64_t>(0, to.*field + with.*field - without.*field);
}

// Nor is what is computed again.
void raise_passes(PartPrices& to, const PartPrices& least) {
  for (const auto part : kPartsOfModel) {
    for (const PartField field : kPartPasses) (to.*part).*field = std::max((to.*part).*field, (least.*part).*field);
  }
}

void raise_prices(PartPrices& to, const PartPrices& least) {
  for (const auto part : kPartsOfModel) raise_part(to.*part, least.*part);
}

}  // namespace

InnerWay alone_of(InnerWay way) {
  way.dp = 1;
  way.zero = 0;
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
  return out;
}

void raise_moved(PartPrices& to, const PartPrices& of_few) {
  for (const auto part : kPartsOfModel) raise_moved(to.*part, of_few.*part);
}

PartPrices least_of(const PartPrices& alone, const InnerWay& known, const InnerWay& way, const StepFigures& figures) {
  PartPrices out;
  for (const auto part : kPartsOfModel) {
    out.*part = least_part(alone.*part, {.rows = way.rows,
                                         .rows_of_table = known.rows,
                                         .is_own = known == alone_of(way),
                                         .ranks = way.ranks(),
                                         .zero = way.zero,
                                         .parameter_bytes = figures.parameter_bytes,
                                         .state_bytes = figures.state_bytes});
  }
  return out;
}

Way InnerWay::way() const {
  return {.tp = tp, .cp = cp, .ep = ep, .sp = sp, .zero = zero, .recompute = recompute};
}

struct PartPricer::Impl {
  Impl(const JobConfig& job, const ModelParts& model_parts, const StepFigures& of_step, int of_rank)
      : parts(model_parts), figures(of_step), threads(of_rank) {
    reduced = job;
    set_keys(reduced, {"model.layers=1", "data.validation=0"});
    parts.layers = 1;
    model = make_model(reduced);
  }

  JobSums compiled(const InnerWay& inner, int64_t micro_batches) {
    Way way = inner.way();
    way.pp = kPartCrews;
    way.micro_batches = micro_batches;
    way.schedule = "gpipe";  // keeps what all micro-batches keep
    std::vector<std::string> keys = way.keys();
    keys.push_back(parts.stages_key({0, 1, 2}));
    keys.push_back(fmt::format("train.batch={}", inner.rows * inner.dp * micro_batches));
    JobConfig job = reduced;
    set_keys(job, keys);
    const int64_t ranks = kPartCrews * inner.ranks();
    const Assembly assembly = assembly_of(job, *model, ranks);
    const Compiled step = compiled(inner, micro_batches, assembly, ranks);
    invariant(step.crews.size() == kPartCrews, "a job of {} parts has {} crews", kPartCrews, step.crews.size());
    JobSums out;
    for (size_t crew = 0; crew < step.crews.size(); ++crew) out.crews[crew] = sums_of(step.crews[crew], step.rates);
    count_messages(step.crews[1], out.messages, out.message_bytes);
    rates.insert_or_assign(inner.ranks(), step.rates);
    return out;
  }

  // What is computed again is a matter of passes: programs before them are the same, and kept for that.
  Compiled compiled(const InnerWay& inner, int64_t micro_batches, const Assembly& assembly, int64_t ranks) {
    InnerWay before_passes = inner;
    before_passes.recompute = "none";
    const auto known = begun.find({before_passes, micro_batches});
    if (known != begun.end()) {
      const auto& [programs, parallel] = known->second;
      return compile_crews(programs, options_of(assembly, parallel, ranks));
    }
    JobGraphs graphs = graphs_of(assembly, ranks);
    const CompileOptions options = options_of(assembly, graphs.parallel, ranks);
    CrewPrograms programs = crew_programs(std::move(graphs.step), options);
    programs.whole.partitioned = Program();
    if (inner.dp == 1 && inner.zero == 0)  // others are compiled without what is computed again
      begun.emplace(std::pair(before_passes, micro_batches), std::pair(programs, graphs.parallel));
    return compile_crews(std::move(programs), options);
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
  std::unique_ptr<nn::Module> model;
  std::map<int64_t, Rates> rates;                                                   // by the ranks of a crew
  std::map<std::pair<InnerWay, int64_t>, std::pair<CrewPrograms, Parallel>> begun;  // by way and micro-batches
};

PartPricer::PartPricer(const JobConfig& job, const ModelParts& parts, const StepFigures& figures, int threads)
    : impl_(std::make_unique<Impl>(job, parts, figures, threads)) {}
PartPricer::~PartPricer() = default;

std::optional<PartPrices> PartPricer::compiled(const InnerWay& way) {
  try {
    jobs_compiled_ += 2;
    const JobSums few = impl_->compiled(way, kPartCrews), more = impl_->compiled(way, kPartCrews + 1);
    const auto part = [&](size_t crew) { return per_micro_batch(few.crews[crew], more.crews[crew], kPartCrews); };
    PartPrices out{part(0), part(1), part(2), more.messages - few.messages, more.message_bytes - few.message_bytes};
    out.crossing = impl_->crossing(way.ranks(), out.messages, out.message_bytes);
    return out;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    if (refusal_.empty()) refusal_ = error.what();
    return std::nullopt;
  }
}

const std::optional<PartPrices>& PartPricer::compiled_once(const InnerWay& way) {
  const auto found = compiled_.find(way);
  if (found != compiled_.end()) return found->second;
  return compiled_.emplace(way, compiled(way)).first->second;
}

const std::optional<PartPrices>& PartPricer::alone(const InnerWay& way) {
  const InnerWay key = alone_of(way), most = with_most_rows(way);
  const auto found = alone_.find(key);
  if (found != alone_.end()) return found->second;
  std::optional<PartPrices> out = compiled_once(key);
  // What a step does once is a difference of two that are large.
  for (const auto part : kPartsOfModel) {
    if (out) (*out.*part).update = std::max<int64_t>(0, (*out.*part).update);
    if (out) (*out.*part).sync = std::max<int64_t>(0, (*out.*part).sync);
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
    for (const auto part : kPartsOfModel) add_difference((*out).*part, (*with).*part, (*without).*part);
    raise_prices(*out, least_of(*least, alone_of(way), way, impl_->figures));
    if (const auto few = with_few_ranks(way)) {
      if (const auto& moved = prices(*few)) raise_moved(*out, *moved);
    }
    out->crossing = impl_->crossing(way.ranks(), out->messages, out->message_bytes);  // the links may be others
  }
  return prices_.emplace(way, std::move(out)).first->second;
}

}  // namespace trireme
