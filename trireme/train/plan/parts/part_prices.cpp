#include "trireme/train/plan/parts/part_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/cost/crew_links.h"
#include "trireme/mesh/machine.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/parts/crew_sums.h"
#include "trireme/train/plan/parts/joined_prices.h"
#include "trireme/train/plan/parts/priced_tables.h"
#include "trireme/train/plan/parts/raise_prices.h"

namespace trireme {
namespace {

struct JobSums {
  std::vector<CrewSums> crews;  // those that were asked for
  bool is_joined = false;       // micro-batches depend on each other
};

}  // namespace

struct PartPricer::Impl {
  Impl(const JobConfig& job, const ModelParts& model_parts, const StepFigures& of_step, int of_rank,
       PricedTables* known = nullptr)
      : joined(job, model_parts, of_rank), parts(model_parts), figures(of_step), threads(of_rank) {
    reduced = job;
    set_keys(reduced, one_block_keys(job));
    device = make_device(reduced.train.device);
    // What a way with joined micro-batches takes depends on its ranks and the whole batch, which keys leave out.
    if (known != nullptr && !figures.is_joined) tables = &known->by_key[key_of_tables(reduced, *device, threads)];
    if (!job.parallel.rates.empty()) machine_between = read_machine(job.parallel.rates);
    if (!job.parallel.machine.empty()) {  // which is read once
      machine = read_machine(job.parallel.machine);
      machine_between = machine;
      reduced.parallel.machine.clear();
    }
    batch = job.train.fit.batch;
    copies.assign(static_cast<size_t>(parts.kind_count()) + 2, 0);
    for (const int64_t part : parts.chain()) ++copies[static_cast<size_t>(part)];
    of_model = model_of(reduced).cuttable();
    parts.kinds.resize(static_cast<size_t>(parts.kind_count()));
    std::iota(parts.kinds.begin(), parts.kinds.end(), int64_t{0});
    if (parts.kind_count() > 1) check_reduced();
    std::vector<int64_t> begins(static_cast<size_t>(crews()));
    std::iota(begins.begin(), begins.end(), int64_t{0});
    set_keys(reduced, {parts.stages_key(begins)});
  }

  // Crews of the reduced job: the parts.
  int64_t crews() const { return parts.count(); }

  // The order of a crew's passes. All forward passes first: it keeps what all micro-batches keep. The last one by one:
  // in every schedule the last stage runs a micro-batch's backward pass after its forward pass, so that what is read
  // again soon does not leave.
  enum class Turns : uint8_t { kAllForward, kLastOneByOne };
  static Turns turns_of(const InnerWay& inner) {
    return inner.keep == Tier::kDevice ? Turns::kAllForward : Turns::kLastOneByOne;
  }

  // Programs before passes, by the way that they are of and the micro-batches; of the crews that were asked for, too.
  struct Begun {
    std::pair<InnerWay, int> of;
    BeforeCrews before;
    std::map<Turns, std::vector<Program>> programs = {};
  };

  // A reduced job: its crews are the parts.
  struct Reduced {
    std::unique_ptr<nn::Module> model;
    int64_t ranks = 1;
    Assembly assembly;
  };
  Reduced reduced_job(const InnerWay& inner, int micro_batches) const {
    Way way = inner.way();
    way.pp = crews();
    way.micro_batches = micro_batches;
    JobConfig job = reduced;
    way.set(job);
    job.train.fit.batch = inner.samples() * micro_batches;
    if (const int64_t groups = of_model.expert_groups; groups > 1) {
      require(groups * inner.samples() % batch == 0,
              "plan: {} groups of a batch of {} samples are no whole number of groups in {} samples; let "
              "model.expert_groups be a multiple of train.batch",
              groups, batch, inner.samples());
      set_keys(job, {fmt::format("model.expert_groups={}", groups * job.train.fit.batch / batch)});
    }
    const int64_t ranks = crews() * inner.ranks();
    auto model = make_model(job);
    Assembly assembly = assembly_without_text(job, *model, ranks);
    if (machine) assembly.options.parallel.communication.machine = machine;
    const Turns turns = turns_of(inner);
    assembly.options.parallel.pipeline.schedule = ScheduleSpec(timetable(turns, micro_batches));
    assembly.options.passes.recompute.keeps_shared = true;
    return {std::move(model), ranks, std::move(assembly)};
  }

  // No pipeline that this is has to be full.
  Timetable timetable(Turns turns, int count) const {
    using enum Unit::Pass;
    const auto stages = static_cast<int>(crews());
    Timetable out{.name = "parts", .stages = stages, .micro_batches = count};
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<Unit>& units = out.crews.emplace_back();
      const bool one_by_one = turns == Turns::kLastOneByOne && stage + 1 == stages;
      for (int i = 0; i < count; ++i) {
        units.push_back({kForward, stage, i});
        if (one_by_one) units.push_back({kBackward, stage, i});
      }
      for (int i = 0; !one_by_one && i < count; ++i) units.push_back({kBackward, stage, i});
    }
    return out;
  }

  // Of a crew without blocks, computing blocks again changes nothing.
  static InnerWay without_blocks_again(InnerWay inner) {
    if (inner.recompute == WayRecompute::kFull) inner.recompute = WayRecompute::kNone;
    return inner;
  }

  // Which of the crews no other job has given the sums of.
  std::vector<size_t> left_to_compile(const InnerWay& inner, const std::vector<size_t>& wanted) const {
    std::vector<size_t> out;
    std::ranges::copy_if(wanted, std::back_inserter(out), [&](size_t crew) {
      return !sums_without_blocks.contains({crew, without_blocks_again(inner)});
    });
    return out;
  }

  JobSums compiled(const InnerWay& inner, const std::vector<size_t>& wanted) {
    JobSums out{.crews = {}, .is_joined = false};
    std::map<size_t, CrewSums> made;
    if (const std::vector<size_t> left = left_to_compile(inner, wanted); !left.empty()) {
      const Reduced job = reduced_job(inner, kMicroBatches);
      Begun& from = begun_of(inner, kMicroBatches, job);
      out.is_joined = is_joined(from.before);
      made = compiled_crews(inner, job, from, wanted, left);
    }
    for (const size_t crew : wanted) {
      const auto found = made.find(crew);
      out.crews.push_back(found != made.end() ? found->second
                                              : sums_without_blocks.at({crew, without_blocks_again(inner)}));
    }
    return out;
  }

  // Of the crews `left` of those that are wanted.
  std::map<size_t, CrewSums> compiled_crews(const InnerWay& inner, const Reduced& job, Begun& from,
                                            const std::vector<size_t>& wanted, const std::vector<size_t>& left) {
    const CompileOptions options = options_of(job.assembly, parallel_of(job.assembly), job.ranks);
    const std::vector<Program>& all = programs_of(from, inner, options, wanted);
    std::vector<Program> programs;
    for (const size_t crew : left)
      programs.push_back(all[static_cast<size_t>(std::ranges::find(wanted, crew) - wanted.begin())]);
    std::vector<char> have_blocks;
    for (const Program& program : programs) have_blocks.push_back(has_blocks(program.graph) ? 1 : 0);
    const std::vector<CompiledCrew> crews = compile_some_crews(from.before.whole, std::move(programs), left, options);
    const PartWay way{.keep = inner.keep,
                      .scatters_each = inner.zero >= 2 && options.parallel.communication.shard_accumulation,
                      .gathers_each = inner.zero == 3 && !options.passes.recompute.keeps_gathered()};
    std::map<size_t, CrewSums> out;
    for (size_t i = 0; i < left.size(); ++i) {
      CrewSums& sums = out[left[i]] = sums_of_crew(crews[i], from.before.whole.rates, way);
      if (inner.place == UpdatePlace() && inner.keep == Tier::kDevice)
        sums.all.host = sums.all.disk = 0;  // no way says what lies elsewhere
      const bool blocks_alone = inner.recompute != WayRecompute::kSelective;
      if (blocks_alone && have_blocks[i] == 0)
        sums_without_blocks.emplace(std::pair(left[i], without_blocks_again(inner)), sums);
    }
    return out;
  }

  bool is_joined(const BeforeCrews& step) const { return of_model.mixture && of_model.experts > 0 && step.are_joined; }

  // What is computed again, kept in slices or lies elsewhere is a matter of passes, and of the crews' turns: programs
  // before them are the same, and are kept, as ways that differ only in that are asked for far apart.
  Begun& begun_of(const InnerWay& inner, int micro_batches, const Reduced& job) {
    InnerWay before_passes = all_kept(inner);
    before_passes.place = {};
    const std::pair key(before_passes, micro_batches);
    const auto has_programs = [&](const Begun& of) {
      return of.of == key && (of.programs.contains(turns_of(inner)) || !of.before.program.graph.nodes().empty());
    };
    const auto known = std::ranges::find_if(begun, has_programs);
    if (known != begun.end()) return *known;
    const CompileOptions options = options_of(job.assembly, parallel_of(job.assembly), job.ranks);
    BeforeCrews out = before_crews(step_of(inner, micro_batches, job), options);
    const auto made = static_cast<int64_t>(out.whole.timetable->crews.size());
    invariant(made == crews(), "a job of {} parts has {} crews", crews(), made);
    out.whole.partitioned = Program();  // nothing after this reads them
    out.whole.strategy = Strategy();
    if (begun.size() == kMostBegun) begun.pop_front();
    return begun.emplace_back(key, std::move(out));
  }

  const std::vector<Program>& programs_of(Begun& from, const InnerWay& inner, const CompileOptions& options,
                                          const std::vector<size_t>& wanted) const {
    std::vector<Program>& programs = from.programs[turns_of(inner)];
    if (programs.empty()) programs = programs_of_crews(from.before, options, wanted);
    const bool is_alone = inner.dp == 1 && inner.zero == 0;
    if (!is_alone) from.before.program = Program();  // their sums alone are asked for, in one order of work
    return programs;
  }

  // The step of so many samples is the same however it is cut, but for the loss of a cut vocabulary.
  const Graph& step_of(const InnerWay& inner, int micro_batches, const Reduced& job) {
    const StepKey key{inner.samples(), micro_batches, inner.vocabulary};
    const auto known = std::ranges::find(steps, key, &std::pair<StepKey, Graph>::first);
    if (known != steps.end()) return known->second;
    constexpr size_t kMostSteps = 16;
    if (steps.size() == kMostSteps) steps.pop_front();
    return steps.emplace_back(key, graphs_of(job.assembly, job.ranks).step).second;
  }

  // Whether the reduced job has a block of each kind of the whole one.
  void check_reduced() const {
    const auto model = make_model(reduced);
    const ModelParts made = parts_of(graphs_of(assembly_of(reduced, *model, 1), 1).step);
    if (made.signatures == parts.signatures && made.kinds == parts.kinds) return;
    fail(ErrorKind::kUnsupported,
         "plan: the exact search prices one block of each kind, and the model '{}' with {} has others than the blocks "
         "'{}'; use --search compiled",
         reduced.model.kind, joined_text(one_block_keys(reduced), ", "), parts.blocks);
  }

  // Of many programs that are priced one is trained, which is verified then.
  CompileOptions options_of(const Assembly& assembly, const Parallel& parallel, int64_t ranks) const {
    CompileOptions out = compile_options(assembly, parallel, ranks, threads, device);
    out.passes.verify = false;
    out.says_why = false;
    out.reshards = reshards;
    return out;
  }

  // Null where there is none.
  const PricedTable* known_table(const InnerWay& way) const {
    if (tables == nullptr) return nullptr;
    const auto found = tables->find(way);
    if (found == tables->end()) return nullptr;
    const std::optional<PartPrices>& prices = found->second.prices;
    require(!prices || static_cast<int64_t>(prices->parts.size()) == crews(),
            "tables: a table has {} parts, and the model {}; remove the file, so that all are compiled again",
            prices ? prices->parts.size() : 0, crews());
    return &found->second;
  }

  // Between crews of so many ranks that follow each other.
  int64_t crossing(int64_t ranks, int64_t messages, int64_t bytes) const {
    const Rates by{.links = {}, .machine = machine_between};
    const CollectiveWork work{.rounds = static_cast<double>(messages), .bytes = static_cast<double>(bytes)};
    return static_cast<int64_t>(std::round(seconds(work, link_between_crews(1, ranks, by), by.links) * 1e12));
  }

  JoinedPrices joined;
  ModelParts parts;
  StepFigures figures;
  int threads;
  JobConfig reduced;
  nn::Cuttable of_model;
  std::vector<int64_t> copies;  // of each part, in the whole model
  int64_t batch = 1;            // of the whole job
  static constexpr size_t kMostBegun = 1024;
  std::deque<Begun> begun;
  using StepKey =
      std::tuple<int64_t, int, bool>;  // samples of a micro-batch, how many of these, whether its vocabulary is cut
  std::deque<std::pair<StepKey, Graph>> steps;
  // By crew and way: what was compiled of crews that have no block, of ways without recomputation.
  std::map<std::pair<size_t, InnerWay>, CrewSums> sums_without_blocks;
  std::optional<Machine> machine, machine_between;  // of all jobs; by which links messages between crews go
  std::shared_ptr<Device> device;                   // of all jobs
  PricedTables::OfJob* tables = nullptr;            // known before, where they are to be asked
  std::shared_ptr<ReshardMemory> reshards = std::make_shared<ReshardMemory>();
};

bool PartPricer::has_joined_micro_batches(const JobConfig& job, const ModelParts& parts) {
  const nn::Cuttable model = model_of(job).cuttable();
  if (!model.mixture || model.experts == 0) return false;
  const int64_t batch = job.train.fit.batch;
  for (int64_t count = 2; count <= batch; ++count) {
    if (batch % count != 0 || (model.expert_groups > 1 && model.expert_groups % count != 0)) continue;
    Impl pricer(job, parts, {}, 1);
    const InnerWay inner{.rows = batch / count};
    return pricer.is_joined(pricer.begun_of(inner, kMicroBatches, pricer.reduced_job(inner, kMicroBatches)).before);
  }
  return batch > 1;  // a group is of several micro-batches, whatever they are
}

PartPricer::PartPricer(const JobConfig& job, const ModelParts& parts, const StepFigures& figures, int threads,
                       PricedTables* known)
    : impl_(std::make_unique<Impl>(job, parts, figures, threads, known)) {}
PartPricer::~PartPricer() = default;

PricedTable PartPricer::made(const InnerWay& way) {
  PricedTable out;
  try {
    out.prices = compiled_or_throw(way);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    out.refusal = error.what();
    if (refusal_.empty()) refusal_ = out.refusal;
  }
  return out;
}

std::optional<PartPrices> PartPricer::compiled(const InnerWay& way) {
  return made(way).prices;
}

// A vocabulary that is cut is a matter of what stands before and after the blocks.
std::optional<PartPrices> PartPricer::compiled_or_throw(const InnerWay& way) {
  if (impl_->figures.is_joined) {
    PartPrices out = impl_->joined.of(way);
    jobs_compiled_ = impl_->joined.jobs_compiled();
    return out;
  }
  const int64_t crews = impl_->crews();
  std::vector<size_t> wanted{0};
  for (size_t crew = 1; !way.vocabulary && crew + 1 < static_cast<size_t>(crews); ++crew) wanted.push_back(crew);
  wanted.push_back(static_cast<size_t>(crews) - 1);
  PartPrices out;
  if (way.vocabulary) {
    const std::optional<PartPrices>& of_blocks = compiled_once(with_whole_vocabulary(way));
    if (!of_blocks) return std::nullopt;
    out = *of_blocks;
  }
  if (!impl_->left_to_compile(way, wanted).empty()) ++jobs_compiled_;
  const JobSums made = impl_->compiled(way, wanted);
  if (made.is_joined) {
    fail(ErrorKind::kUnsupported,
         "plan: groups of experts' places are of several micro-batches of {} samples, which then depend on each other; "
         "let model.expert_groups be a multiple of train.batch",
         way.samples());
  }
  out.parts.resize(static_cast<size_t>(crews));
  for (size_t i = 0; i < wanted.size(); ++i)
    out.parts[wanted[i]] = with_rest(made.crews[i].last, made.crews[i].all, kMicroBatches, made.crews[i].in_flight);
  // A product adds to the micro-batches' before, but that of the first; in the last part the rest of the step has only
  // this difference where its weight is another part's.
  out.parts.front().tied_adding = std::max<int64_t>(0, -out.parts.back().update);
  if (!way.vocabulary) {
    out.messages = made.crews[1].messages;  // of the first block
    out.message_bytes = made.crews[1].message_bytes;
  }
  out.crossing = impl_->crossing(way.ranks(), out.messages, out.message_bytes);
  return out;
}

const std::optional<PartPrices>& PartPricer::compiled_once(const InnerWay& way) {
  const auto found = compiled_.find(way);
  if (found != compiled_.end()) return found->second;
  if (const PricedTable* const known = impl_->known_table(way)) {
    if (refusal_.empty()) refusal_ = known->refusal;
    ++tables_reused_;
    return compiled_.emplace(way, known->prices).first->second;
  }
  PricedTable out = made(way);  // which may add others
  if (impl_->tables != nullptr) impl_->tables->insert_or_assign(way, out);
  return compiled_.emplace(way, std::move(out.prices)).first->second;
}

const std::optional<PartPrices>& PartPricer::alone(const InnerWay& way) {
  const InnerWay key = alone_of(way), most = with_most_rows(way);
  const auto found = alone_.find(key);
  if (found != alone_.end()) return found->second;
  std::optional<PartPrices> out = compiled_once(key);
  // What a step does once is a difference of two that are large.
  if (out) {
    for (PartPrice& part : out->parts) {
      part.update = std::max<int64_t>(0, part.update);
      part.sync = std::max<int64_t>(0, part.sync);
      part.tied_adding = std::min(part.tied_adding, part.update);
    }
  }
  const InnerWay without = all_kept(most);
  if (out && key != most) {
    if (const auto& least = alone(most)) {
      raise_prices(*out, least_of(*least, most, key, impl_->figures));
      limit_sums(out->parts.front(), least->parts.front(), 0);
      for (size_t i = 0; i < out->parts.size(); ++i)
        out->parts[i].sums = std::max(out->parts[i].sums, least->parts[i].sums);
    }
  }
  if (out && key != without) {
    if (const auto& least = alone(without)) raise_passes(*out, least_of(*least, without, key, impl_->figures));
  }
  if (out && key.vocabulary) {
    if (const auto& whole = alone(with_whole_vocabulary(key))) {
      PartPrices blocks = *whole;
      blocks.parts.front() = blocks.parts.back() = {};
      raise_passes(*out, blocks);
    }
  }
  for (const InnerWay& known : by_fewer_axes(key)) {
    if (!out) break;
    if (const auto& least = alone(known)) raise_passes(*out, least_by_fewer_axes(*least, known, key));
  }
  if (const auto known = by_kept_without_ep(key); known && out) {
    if (const auto& least = alone(*known)) raise_kept_moves(*out, *least, *known, key);
  }
  return alone_.emplace(key, std::move(out)).first->second;
}

void PartPricer::raise_by_sums(const InnerWay& way, const PartPrices& of_alone, PartPrices& to) {
  const auto summed = without_slices(way);
  if (!summed) return;
  for (const auto& known : {with_fewest_sums(*summed), summed}) {
    if (!known) continue;
    const std::optional<PartPrices>&sums = prices(*known), &unsummed = alone(*known);
    if (sums && unsummed) raise_exchanged(to, {of_alone, *sums, *unsummed}, way.zero);
  }
}

void PartPricer::raise_by_variants(const InnerWay& way, PartPrices& to) {
  InnerWay whole = way;
  whole.kept_slices = false;
  for (const InnerWay& less : {with_nearer_state(way), with_nearer_keep(way), whole}) {
    if (less == way || (less == whole && way.keep != Tier::kDevice)) continue;
    if (const auto& least_times = prices(less)) raise_times(to, *least_times, less.place.update != way.place.update);
  }
  raise_moves(to, impl_->copies, least_moves_ps(way, impl_->figures));
}

const std::optional<PartPrices>& PartPricer::prices(const InnerWay& way) {
  const auto found = prices_.find(way);
  if (found != prices_.end()) return found->second;
  if (impl_->figures.is_joined) {  // then nothing is known of one rank, or of other rows, that holds of more
    std::optional<PartPrices> out = compiled_once(way);
    if (out) raise_by_variants(way, *out);
    return prices_.emplace(way, std::move(out)).first->second;
  }
  InnerWay sliced = all_kept(way);
  sliced.rows = 1;
  const auto& least = alone(way);
  std::optional<PartPrices> out = least;
  if (out) {
    const auto& without = compiled_once(alone_of(sliced));
    const auto& with = compiled_once(sliced);
    if (!without || !with) return prices_.emplace(way, std::nullopt).first->second;
    for (size_t i = 0; i < out->parts.size(); ++i) add_difference(out->parts[i], with->parts[i], without->parts[i]);
    const PartPrices of_alone = least_of(*least, alone_of(way), way, impl_->figures);
    raise_prices(*out, of_alone);
    limit_tied(out->parts, of_alone.parts);
    if (const auto few = with_few_ranks(way)) {
      if (const auto& moved = prices(*few)) {
        raise_moved(*out, *moved);
        std::vector<PartPrice> left = moved->parts;
        take_off_tied(left);
        left.front() = {};
        limit_tied(out->parts, left);
      }
    }
    raise_by_sums(way, *least, *out);
    limit_sums(out->parts.front(), least->parts.front(), way.zero);
    raise_by_variants(way, *out);
    // The links may be others.
    out->crossing = std::max(out->crossing, impl_->crossing(way.ranks(), out->messages, out->message_bytes));
  }
  return prices_.emplace(way, std::move(out)).first->second;
}

}  // namespace trireme
