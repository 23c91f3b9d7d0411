#include "trireme/train/plan/auto/auto_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/clock.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/comm/comm.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/plan/auto/auto_search_impl.h"
#include "trireme/train/plan/exact/ways_beside.h"

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
            "plan: {} = {} beside parallel.search = '{}', which looks at no such ways; leave it out, or use another "
            "search",
            each.key, each.value, to_string(request.job.parallel.search.kind));
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

struct AskedPlan {
  PlanRequest plan;
  WayRule kept;
};

bool is_exact(const AutoRequest& request) {
  return request.job.parallel.search.kind == SearchKind::kExact;
}

// Such that a rule can be read by them.
std::vector<Way> ways_for_rules(const AutoRequest& request, const PlanRequest& plan) {
  return is_exact(request) ? example_ways(exact_setting(plan), plan) : ways_of(plan);
}

bool has_ways(const AutoRequest& request, const PlanRequest& plan) {
  return !ways_for_rules(request, plan).empty();
}

// As `trireme plan` asks.
AskedPlan asked_of(const AutoRequest& request) {
  require(is_left_to_plan(request.job),
          "auto_plan: the job is of the mode {} and the search {}; set parallel.mode = 'auto_parallel' and "
          "parallel.search = 'exact'",
          to_string(request.job.parallel.mode), to_string(request.job.parallel.search.kind));
  refuse_fixed_counts(request.job, request.ranks);
  AskedPlan out{.plan = {.job = request.job,
                         .ranks = request.ranks,
                         .threads = request.threads,
                         .most_jobs = kUsualMostJobs,
                         .on_way = request.on_way,
                         .on_exact = request.on_exact},
                .kept = {}};
  if (is_exact(request) && request.ranks <= kMostRanksOfBestCompiled) out.plan.other_cuts = out.plan.top;
  const std::string rule = asked_rule(request);
  if (rule.empty()) return out;
  try {
    out.kept = parse_way_rule(rule, ways_for_rules(request, out.plan));
  } catch (Error& error) {
    if (error.kind() == ErrorKind::kInvalidArgument) {
      error.note(fmt::format("as the job is to keep {}, with parallel.search = '{}'", rule,
                             to_string(request.job.parallel.search.kind)));
    }
    throw;
  }
  out.plan.is_asked = [kept = out.kept](const Way& way) { return kept.is_kept_by(way); };
  require(has_ways(request, out.plan), "plan: no way over {} has all of {}; leave some out",
          counted(request.ranks, "rank"), rule);
  return out;
}

JobConfig cut_by(const PlanFile& file, const JobConfig& job) {
  JobConfig out = job;
  override_keys(out, file.keys);
  return out;
}

}  // namespace

bool is_left_to_plan(const JobConfig& job) {
  return job.parallel.mode == Mode::kAuto && plans_whole_job(job.parallel.search.kind);
}

void check_auto_plan(const AutoRequest& request) {
  const AskedPlan asked = asked_of(request);
  if (!is_exact(request)) return;
  const ExactSetting setting = exact_setting(asked.plan);
  WayTables(setting, request.threads, nullptr);  // of a model that has them
}

AutoPlan auto_plan(const AutoRequest& request) {
  const AskedPlan asked = asked_of(request);
  AutoFound found =
      is_exact(request) ? find_exactly(asked.plan, asked.kept) : find_by_compiling(asked.plan, asked.kept);
  return {.job = cut_by(found.file, request.job),
          .file = to_string(found.file),
          .text = std::move(found.text),
          .way = std::move(found.way)};
}

AutoPlan auto_plan(const AutoRequest& request, comm::World* world, double tell_every_s) {
  if (world == nullptr) return auto_plan(request);
  require(request.ranks == world->size(), "auto_plan: a plan for {} by a world of {}", counted(request.ranks, "rank"),
          world->size());
  AutoPlan out;
  if (world->rank() == 0) {
    double last_s = now_s();
    const auto tell = [&] {
      if (now_s() - last_s < tell_every_s) return;
      last_s = now_s();
      gather_texts(*world, "");
    };
    AutoRequest told = request;
    told.on_exact = [&](const ExactProgress& progress) {
      if (request.on_exact) request.on_exact(progress);
      tell();
    };
    told.on_way = [&](size_t number, size_t of) {
      if (request.on_way) request.on_way(number, of);
      tell();
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
