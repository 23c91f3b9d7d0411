#include "trireme/train/plan/exact/exact_certificate.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/version.h"

namespace trireme {
namespace {

CertifiedModel certified_model(const ExactSetting& setting) {
  const nn::Cuttable& model = setting.model;
  return {.layers = setting.parts.layers(),
          .heads = model.heads,
          .experts = model.mixture ? model.experts : 0,
          .weights = model.weights ? 1 : 0,
          .positions = model.positions ? 1 : 0,
          .vocabulary = model.vocabulary,
          .sequence = setting.positions,
          .batch = setting.job.train.fit.batch,
          .joined = setting.figures.is_joined ? 1 : 0,
          .parameter_bytes = setting.figures.parameter_bytes,
          .state_bytes = setting.figures.state_bytes,
          .arithmetic_ps = setting.figures.arithmetic_ps,
          .host_fs_per_byte = setting.figures.host_fs_per_byte,
          .disk_fs_per_byte = setting.figures.disk_fs_per_byte,
          .update_fs_per_byte = setting.figures.update_fs_per_byte,
          .weight_bytes = setting.figures.weight_bytes};
}

std::string hash_of_machine(const Machine& machine) {
  return fmt::format("{:016x}", hash64(to_string(machine)));
}

// All but what the search found.
Certificate for_setting(const ExactSetting& setting, const PlanRequest& request) {
  Certificate out;
  out.version = kVersion;
  out.graph = setting.graph;
  out.machine_hash = hash_of_machine(setting.machine);
  out.machine = setting.machine.name;
  out.ranks = request.ranks;
  out.threads = request.threads;
  out.memory = setting.memory_bytes;
  out.host = setting.beside.host;
  out.disk = setting.beside.disk;
  out.model = certified_model(setting);
  out.before = setting.parts.before;
  out.blocks = setting.parts.blocks;
  for (const int64_t kind : setting.parts.kinds) {
    if (out.runs.empty() || out.runs.back().kind != kind) out.runs.push_back({.kind = kind});
    ++out.runs.back().blocks;
  }
  out.after = setting.parts.after;
  return out;
}

// As a plan's file has them, by the certificate's own figures.
std::vector<std::string> keys_of(const Certificate& c, const CertifiedPlan& plan) {
  const CertifiedCut& cut = plan.way.cut;
  std::string stages;
  const auto last = static_cast<int64_t>(plan.begins.size()) - 1;
  const auto add = [&](const std::string& scope, int64_t stage) {
    stages += fmt::format("{}\"{} = {}\"", stages.empty() ? "" : ", ", scope, stage);
  };
  if (last > 0) {
    for (const std::string& scope : c.before) add(scope, 0);
    for (const std::string& scope : c.after) add(scope, last);
    for (int64_t stage = 0; stage <= last; ++stage) {
      const int64_t begin = std::max<int64_t>(plan.begins[static_cast<size_t>(stage)], 1);
      const int64_t end = stage == last ? c.model.layers + 1 : plan.begins[static_cast<size_t>(stage) + 1];
      if (begin < std::min(end, c.model.layers + 1))
        add(fmt::format("{}.{}..{}", c.blocks, begin - 1, std::min(end, c.model.layers + 1) - 2), stage);
    }
  }
  std::vector<std::string> out{
      "parallel.mode=semi_auto_parallel",
      "parallel.search=recursive_programming",
      fmt::format("parallel.pp={}", plan.way.pp),
      fmt::format("parallel.schedule={}", to_string(plan.way.schedule)),
      fmt::format("parallel.virtual_stages={}", plan.way.virtual_stages == 1 ? 0 : plan.way.virtual_stages),
      "parallel.seq_chunks=0",
      fmt::format("parallel.tp={}", cut.tp),
      fmt::format("parallel.sp={}", cut.sp),
      fmt::format("parallel.vocabulary={}", cut.vocabulary),
      fmt::format("parallel.cp={}", cut.cp),
      fmt::format("parallel.ep={}", cut.ep),
      fmt::format("parallel.zero={}", cut.zero),
      fmt::format("parallel.gradient_accumulation_steps={}", plan.way.micro_batches),
      "parallel.interleave=1",
      fmt::format("train.recompute={}", to_string(cut.recompute)),
      fmt::format("parallel.recompute_slice_activation={}", cut.kept_slices),
      fmt::format("parallel.stages=[{}]", stages)};
  if (cut.keep != Tier::kDevice) out.push_back(fmt::format("parallel.keep=[\"* = {}\"]", to_string(cut.keep)));
  const CertifiedPlace& place = cut.place;
  if (place.update == Tier::kHost) out.emplace_back("parallel.optimizer_on=host");
  if (place.state != place.update)
    out.push_back(fmt::format("parallel.home=[\"*/state = {}\"]", to_string(place.state)));
  return out;
}

std::vector<std::string> sorted_keys_of(const Certificate& certificate, const CertifiedPlan& plan) {
  std::vector<std::string> out = keys_of(certificate, plan);
  std::ranges::sort(out);
  return out;
}

[[noreturn]] void refuse_keys(const std::vector<std::string>& certified, const std::vector<std::string>& planned) {
  const auto differ = std::ranges::mismatch(certified, planned);
  fail(ErrorKind::kInvalidArgument, "certificate: its best way has {}, but the plan has {}",
       differ.in1 == certified.end() ? "no more" : *differ.in1, differ.in2 == planned.end() ? "no more" : *differ.in2);
}

// Throws where these are not equal, in words.
template <class Value>
void expect_same(std::string_view what, const Value& certified, std::string_view other, const Value& given) {
  require(certified == given, "certificate: it is for {} {}, and {} {}", what, certified, other, given);
}

void expect_same_table(std::string_view kind, const CertifiedTable& said, const CertifiedTable& compiled) {
  if (said == compiled) return;
  const CertifiedCut& cut = said.cut;
  const std::string text = fmt::format(
      "tp={} cp={} ep={} sp={} vocabulary={} rows={} recompute={} kept_slices={} keep={} dp={} zero={} state={} "
      "update={}",
      cut.tp, cut.cp, cut.ep, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0, cut.rows, to_string(cut.recompute),
      cut.kept_slices ? 1 : 0, to_string(cut.keep), cut.dp, cut.zero, to_string(cut.place.state),
      to_string(cut.place.update));
  require(said.is_refused == compiled.is_refused, "certificate: its {} of {} are {}, but the compiler {} that cut",
          kind, text, said.is_refused ? "refused" : "given", compiled.is_refused ? "refuses" : "takes");
  fail(ErrorKind::kInvalidArgument, "certificate: the {} of {} are not what compiling it gives", kind, text);
}

}  // namespace

Certificate certificate_of(const ExactPlan& plan, const PlanRequest& request) {
  Certificate out = for_setting(plan.setting, request);
  out.top = static_cast<int64_t>(request.top);
  for (const ExactWay& way : plan.best) {
    out.best.push_back({.way = {.pp = way.outer.pp,
                                .micro_batches = way.outer.micro_batches,
                                .schedule = way.outer.schedule,
                                .virtual_stages = way.outer.virtual_stages,
                                .cut = certified_cut(way.outer.inner)},
                        .begins = way.begins,
                        .step_ps = way.price.total,
                        .crew_bytes = way.crew_bytes});
  }
  const OuterLedger& l = plan.ledger;
  out.ledger = {.ways = l.ways,
                .do_not_divide = l.do_not_divide,
                .memory_least = l.memory_least,
                .bound = l.bound,
                .slower = l.slower,
                .memory = l.memory,
                .needless = l.needless,
                .solved = l.solved};
  out.alone = plan.asked.alone;
  out.prices = plan.asked.prices;
  return out;
}

size_t check_certified_plan(const Certificate& certificate, const PlanFile& plan,
                            const std::vector<std::string>& of_job) {
  constexpr std::string_view kPlan = "the plan is for";
  require(!certificate.best.empty(), "certificate: it says that nothing fits, but there is a plan");
  expect_same("step", certificate.graph, kPlan, plan.graph);
  expect_same("ranks", certificate.ranks, kPlan, plan.ranks);
  expect_same("machine", certificate.machine, kPlan, plan.machine);
  std::vector<std::string> planned = plan.keys;
  std::erase_if(planned, [&](const std::string& key) { return std::ranges::find(of_job, key) != of_job.end(); });
  std::ranges::sort(planned);
  size_t which = 0;
  while (which < certificate.best.size() && sorted_keys_of(certificate, certificate.best[which]) != planned) ++which;
  if (which == certificate.best.size()) refuse_keys(sorted_keys_of(certificate, certificate.best.front()), planned);
  const CertifiedPlan& best = certificate.best[which];
  require(
      plan.step_ps == best.step_ps && plan.bound_ps == certificate.best.front().step_ps &&
          plan.arena_bytes == std::ranges::max(best.crew_bytes),
      "certificate: it has {} ps and {} bytes for the plan, and no way below {} ps; the plan predicts other figures",
      best.step_ps, std::ranges::max(best.crew_bytes), certificate.best.front().step_ps);
  const CertifiedLedger& l = certificate.ledger;
  const PlanLedger& p = plan.ledger;
  require(p.ways == l.ways && p.do_not_divide == l.do_not_divide && p.memory_least == l.memory_least &&
              p.needless == l.bound + l.slower + l.needless && p.memory == l.memory && p.fit == l.solved,
          "certificate: its ledger differs from that of the plan");
  return which;
}

CertifiedJob::CertifiedJob(const PlanRequest& request)
    : setting_(exact_setting(request)),
      of_job_(for_setting(setting_, request)),
      pricer_(setting_.job, setting_.parts, setting_.figures, request.threads) {}

void CertifiedJob::check(const Certificate& certificate) {
  constexpr std::string_view kJob = "the job has";
  const Certificate& job = of_job_;
  expect_same("ranks", certificate.ranks, kJob, job.ranks);
  require(certificate.graph == job.graph,
          "certificate: it is for step {}, and the job has {}: its model, batch or optimizer differs; give the flags "
          "that it was planned with, or plan again",
          certificate.graph, job.graph);
  expect_same("machine", certificate.machine + " " + certificate.machine_hash, kJob,
              job.machine + " " + job.machine_hash);
  expect_same("memory", certificate.memory, kJob, job.memory);
  expect_same("host memory", certificate.host, kJob, job.host);
  expect_same("disk", certificate.disk, kJob, job.disk);
  expect_same("threads", certificate.threads, kJob, job.threads);
  require(certificate.model == job.model, "certificate: the figures of its model are not those of the job's");
  require(certificate.before == job.before && certificate.blocks == job.blocks && certificate.after == job.after &&
              certificate.runs == job.runs,
          "certificate: the parts of its model are not those of the job's");
  for (const CertifiedTable& table : certificate.alone) {
    const InnerWay way = inner_way(table.cut);
    expect_same_table("prices of one data parallel rank", table, certified_prices(way, pricer_.alone(way)));
  }
  for (const CertifiedTable& table : certificate.prices) {
    const InnerWay way = inner_way(table.cut);
    expect_same_table("prices", table, certified_prices(way, pricer_.prices(way)));
  }
}

}  // namespace trireme
