#include "trireme/train/plan/exact/auto_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/bytes_text.h"
#include "trireme/base/clock.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/comm/comm.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/plan/exact/crew_kinds.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme {
namespace {

// A key that says how a job is cut, and the name that rules have for it. 0 virtual stages leave them to the schedule.
struct KeptKey {
  std::string_view key, term;
  bool is_open_at_default = false;
};
constexpr KeptKey kKeptKeys[] = {{"parallel.pp", "pp"},
                                 {"parallel.tp", "tp"},
                                 {"parallel.sp", "sp"},
                                 {"parallel.vocabulary", "vocabulary"},
                                 {"parallel.cp", "cp"},
                                 {"parallel.ep", "ep"},
                                 {"parallel.zero", "zero"},
                                 {"parallel.gradient_accumulation_steps", "micro_batches"},
                                 {"parallel.schedule", "schedule"},
                                 {"parallel.virtual_stages", "virtual_stages", true},
                                 {"train.recompute", "recompute"},
                                 {"parallel.recompute_slice_activation", "kept_slices"}};
constexpr std::string_view kNoCut = "parallel.save_strategy";

struct SetKey {
  std::string key, value;
};

// Of "parallel.schedule = 'zb-h1'".
SetKey set_key(std::string_view text) {
  const size_t equals = text.find(" = ");
  std::string_view value = text.substr(equals + 3);
  if (value.size() >= 2 && (value.front() == '\'' || value.front() == '"')) value = value.substr(1, value.size() - 2);
  return {std::string(text.substr(0, equals)), std::string(value)};
}

std::string default_value(std::string_view term) {
  const auto row = std::ranges::find(way_terms(), term, &WayTerm::name);
  return row->text(row->value(Way()));
}

// "pp=2 zero=1": what the job says of its cuts.
std::string asked_rule(const AutoRequest& request) {
  std::vector<SetKey> set;
  for (const std::string& each : cuts_left_out(request.job)) set.push_back(set_key(each));
  for (const SetKey& each : set) {
    const bool is_kept = std::ranges::find(kKeptKeys, each.key, &KeptKey::key) != std::end(kKeptKeys);
    require(is_kept || each.key == kNoCut,
            "plan: {} = {} beside parallel.search = 'exact', which looks at no such ways; leave it out, or use another "
            "search",
            each.key, each.value);
  }
  std::vector<std::string> out;
  for (const KeptKey& row : kKeptKeys) {
    const auto given = std::ranges::find(set, row.key, &SetKey::key);
    const bool is_said = std::ranges::find(request.said, row.key) != request.said.end();
    if (given == set.end() && (!is_said || row.is_open_at_default)) continue;
    out.push_back(fmt::format("{}={}", row.term, given != set.end() ? given->value : default_value(row.term)));
  }
  return joined_text(out, " ");
}

void check_others(const AutoRequest& request) {
  const auto& p = request.job.parallel;
  require(!p.sum_micro_batch_losses,
          "plan: parallel.sum_micro_batch_losses = true beside parallel.search = 'exact', which chooses the number of "
          "micro-batches, and with them the loss; leave one of them out");
  require(p.rates.empty(),
          "plan: parallel.rates = '{}' beside parallel.search = 'exact': they are of {}, and the search prices jobs of "
          "fewer; name a machine's file with parallel.machine instead (trireme calibrate writes one)",
          p.rates, counted(request.ranks, "rank"));
  require(p.device_num == -1 || p.device_num == request.ranks,
          "configuration: parallel.device_num = {} but the job has {}; start {}, or change the key", p.device_num,
          counted(request.ranks, "rank"), counted(p.device_num, "rank"));
}

struct AskedPlan {
  PlanRequest plan;
  WayRule kept;
};

// As `trireme plan` asks.
AskedPlan asked_of(const AutoRequest& request) {
  require(is_left_to_plan(request.job),
          "auto_plan: the job is of the mode {} and the search {}; set parallel.mode = 'auto_parallel' and "
          "parallel.search = 'exact'",
          to_string(request.job.parallel.mode), to_string(request.job.parallel.search.kind));
  check_others(request);
  AskedPlan out{.plan = {.job = request.job,
                         .ranks = request.ranks,
                         .threads = request.threads,
                         .most_jobs = kUsualMostJobs,
                         .on_exact = request.on_exact},
                .kept = {}};
  out.plan.job.parallel.device_num = -1;  // parts of the job have fewer
  if (request.ranks <= kMostRanksOfBestCompiled) out.plan.other_cuts = out.plan.top;
  const std::string rule = asked_rule(request);
  if (rule.empty()) return out;
  try {
    out.kept = parse_way_rule(rule, exact_setting(out.plan).ways(request.ranks).examples());
  } catch (Error& error) {
    if (error.kind() == ErrorKind::kInvalidArgument)
      error.note(fmt::format("as the job is to keep {}, with parallel.search = 'exact'", rule));
    throw;
  }
  out.plan.is_asked = [kept = out.kept](const Way& way) { return kept.is_kept_by(way); };
  require(exact_setting(out.plan).ways(request.ranks).count() > 0, "plan: no way over {} has all of {}; leave some out",
          counted(request.ranks, "rank"), rule);
  return out;
}

[[noreturn]] void fail_as_nothing_fits(const ExactPlan& plan, const AskedPlan& asked) {
  const std::string kept = asked.kept.asked.empty() ? "" : fmt::format(" with {}", asked.kept.text());
  const std::string over = counted(asked.plan.ranks, "rank");
  const std::string memory = bytes_text(static_cast<double>(plan.memory_bytes));
  const std::string& name = asked.plan.job.name;
  require(plan.ledger.do_not_divide < plan.ledger.ways || plan.first_refusal.empty(),
          "plan: no way of cutting '{}' over {}{} goes with the model and the batch: {}", name, over, kept,
          plan.first_refusal);
  Error error(
      ErrorKind::kInvalidArgument,
      plan.is_proven
          ? fmt::format("plan: no way of cutting '{}' over {}{} fits in {} on each rank", name, over, kept, memory)
          : fmt::format("plan: no way of cutting '{}' over {}{} that fits in {} on each rank was found before "
                        "the search was stopped; `trireme plan --search exact --most-jobs 0` goes on",
                        name, over, kept, memory));
  if (plan.nearest) {
    const auto bytes = [](int64_t of) { return bytes_text(static_cast<double>(of)); };
    error.note(fmt::format("the smallest, {}, takes {} on the fullest rank", plan.nearest->way.way().text(),
                           bytes(plan.nearest->bytes)));
    for (const auto& [what, change] :
         {std::pair("ranks", &plan.nearest->ranks), std::pair("samples in a batch", &plan.nearest->batch)}) {
      if (*change)
        error.note(fmt::format("{} {} would do, by {}: {} a rank", (*change)->to, what, (*change)->way.way().text(),
                               bytes((*change)->bytes)));
    }
  }
  throw error;
}

// "1.2 ms forward, 2.4 ms backward", but for what takes no time.
std::string times_text(const std::vector<std::pair<std::string, double>>& seconds) {
  std::vector<std::string> out;
  for (const auto& [name, s] : seconds) {
    if (s > 0) out.push_back(fmt::format("{:.3f} ms {}", s * 1e3, name));
  }
  return joined_text(out, ", ");
}

std::vector<std::pair<std::string, double>> seconds_of(const ExactWay& way, const std::optional<WayCost>& cost) {
  if (cost)
    return {{"forward", cost->forward_s},      {"backward", cost->backward_s}, {"recomputed", cost->again_s},
            {"of the update", cost->update_s}, {"exposed", cost->exposed_s},   {"waiting", cost->waiting_s}};
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, ps] : step_items(way)) out.emplace_back(name, static_cast<double>(ps) * 1e-12);
  return out;
}

// What the fullest rank holds.
std::string memory_text(const ExactWay& way, const std::optional<WayCost>& cost) {
  const auto text_of_bytes = [](int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::vector<std::string> kinds;
  const auto add = [&](std::string_view name, int64_t bytes) {
    if (bytes > 0) kinds.push_back(fmt::format("{} {}", text_of_bytes(bytes), name));
  };
  int64_t bytes = 0;
  if (cost) {
    const auto fullest = std::ranges::max_element(cost->memory, {}, &WayCost::Memory::arena);
    bytes = fullest->arena;
    for (int kind = 0; kind < kHoldings; ++kind)
      add(to_string(static_cast<Holding>(kind)), fullest->kinds[static_cast<size_t>(kind)]);
    add("gaps", fullest->gaps());
  } else {
    const auto fullest = std::ranges::max_element(way.crew_bytes);
    bytes = *fullest;
    const auto crew = static_cast<size_t>(fullest - way.crew_bytes.begin());
    for (const auto& [name, of] : kinds_of_crews(way.problem, way.begins)[crew]) add(name, of);
  }
  return fmt::format("  memory {} of the fullest rank: {}\n", text_of_bytes(bytes), joined_text(kinds, ", "));
}

std::string proof_text(const ExactPlan& plan) {
  const double least_ms = static_cast<double>(plan.least_ps) * 1e-9;
  if (plan.is_proven)
    return fmt::format("  proven by the tables of {}: by these none takes less than {:.3f} ms\n",
                       counted(plan.ledger.ways, "way"), least_ms);
  return fmt::format("  not proven, as the search was stopped: by the tables none of {} takes less than {:.3f} ms\n",
                     counted(plan.ledger.ways, "way"), least_ms);
}

struct ChosenWay {
  size_t which = 0;
  std::vector<CompiledWay> compiled;  // empty for many ranks

  std::optional<WayCost> cost() const { return compiled.empty() ? std::nullopt : compiled[which].cost; }
  double step_s(const ExactPlan& plan, size_t way) const {
    return compiled.empty() ? static_cast<double>(plan.way(way).price.total) * 1e-12 : compiled[way].cost->step_s;
  }
};

ChosenWay chosen_of(const ExactPlan& plan, const PlanRequest& request) {
  if (request.ranks > kMostRanksOfBestCompiled) return {};
  ChosenWay out{.compiled = compile_best(plan, request)};
  out.which = fastest_that_fits(plan, out.compiled);
  return out;
}

std::string text_of(const ExactPlan& plan, const AskedPlan& asked, const ChosenWay& chosen) {
  constexpr size_t kMostNext = 2;
  const ExactWay& way = plan.way(chosen.which);
  const std::optional<WayCost> cost = chosen.cost();
  const double step_s = chosen.step_s(plan, chosen.which);
  std::string out = fmt::format("plan of the exact search for {} by the rates of {}, {} of memory a rank\n  {}\n",
                                counted(asked.plan.ranks, "rank"), named_rates(plan.machine),
                                bytes_text(static_cast<double>(plan.memory_bytes)), way_text(way));
  if (!asked.kept.asked.empty()) out += fmt::format("  kept, as the job says it: {}\n", asked.kept.text());
  if (way.outer.pp > 1 && way.outer.virtual_stages == 1)
    out += fmt::format("  layers of its stages: {}\n", joined_text(way.layers_of_stages(plan.parts), ", "));
  out += fmt::format(
      "  step {:.3f} ms{}, {:.1f} % of the peak: {}\n", step_s * 1e3,
      cost ? fmt::format(" in virtual time ({:.3f} ms by its tables)", static_cast<double>(way.price.total) * 1e-9)
           : " by its tables",
      100 * plan.flops / (step_s * plan.peak_flops_per_s), times_text(seconds_of(way, cost)));
  out += memory_text(way, cost) + (cost ? tiers_text(*cost) : "");
  size_t shown = 0;
  for (size_t i = 0; i < plan.ways() && shown < kMostNext; ++i) {
    if (i == chosen.which || (!chosen.compiled.empty() && !chosen.compiled[i].fits)) continue;
    out += fmt::format("  other: {} takes {:.3f} ms\n", plan.way(i).outer.way().text(), chosen.step_s(plan, i) * 1e3);
    ++shown;
  }
  return out + proof_text(plan);
}

JobConfig cut_by(const PlanFile& file, const JobConfig& job) {
  JobConfig out = job;
  override_keys(out, file.keys);
  return out;
}

}  // namespace

bool is_left_to_plan(const JobConfig& job) {
  return job.parallel.mode == Mode::kAuto && job.parallel.search.kind == SearchKind::kExact;
}

void check_auto_plan(const AutoRequest& request) {
  asked_of(request);
}

AutoPlan auto_plan(const AutoRequest& request) {
  const AskedPlan asked = asked_of(request);
  const ExactPlan plan = plan_exact(asked.plan);
  if (plan.best.empty()) fail_as_nothing_fits(plan, asked);
  const ChosenWay chosen = chosen_of(plan, asked.plan);
  const std::optional<WayCost> cost = chosen.cost();
  const PlanFile file = plan_file(plan, request.ranks, chosen.which, cost ? &*cost : nullptr);
  return {.job = cut_by(file, request.job),
          .file = to_string(file),
          .text = text_of(plan, asked, chosen),
          .way = plan.way(chosen.which).outer.way().text()};
}

AutoPlan auto_plan(const AutoRequest& request, comm::World* world, double tell_every_s) {
  if (world == nullptr) return auto_plan(request);
  require(request.ranks == world->size(), "auto_plan: a plan for {} by a world of {}", counted(request.ranks, "rank"),
          world->size());
  AutoPlan out;
  if (world->rank() == 0) {
    AutoRequest told = request;
    double last_s = now_s();
    told.on_exact = [&](const ExactProgress& progress) {
      if (request.on_exact) request.on_exact(progress);
      if (now_s() - last_s < tell_every_s) return;
      last_s = now_s();
      gather_texts(*world, "");
    };
    out = auto_plan(told);
    gather_texts(*world, out.file);
    return out;
  }
  while (out.file.empty()) out.file = gather_texts(*world, "")[0];
  const PlanFile file = parse_plan_file(out.file);
  out.job = cut_by(file, request.job);
  check_plan(file, out.job, world->size());
  return out;
}

}  // namespace trireme
