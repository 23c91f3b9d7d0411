// Plans that have what is kept for the backward pass on the host or the disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/comm.h"
#include "trireme/cost/price.h"
#include "trireme/planner/certificate/verify_certificate.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/exports/export_way.h"
#include "trireme/train/plan/questions/advice.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme::plan_keep_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kMuch = int64_t{1} << 32;

// Moves of what a small block keeps take about as long as its forward pass.
Machine machine_beside(int64_t host_bytes, int64_t disk_bytes = 0, double link = 2e10) {
  Machine out{.name = "beside", .devices_per_host = 8};
  out.memory_bytes = int64_t{1} << 34;
  out.memory_bytes_per_s = 1e11;
  out.host_memory_bytes = host_bytes;
  out.to_host_bytes_per_s = link;
  out.from_host_bytes_per_s = link;
  out.disk_bytes = disk_bytes;
  out.disk_bytes_per_s = link / 4;
  out.flops_per_s = {{"f32", 1e12}};
  out.levels = {{"host", 8, 1e-6, 1e11}};
  return out;
}

PlanRequest request_for(const Machine& machine, int64_t ranks, int64_t memory_bytes,
                        const std::vector<std::string>& keys = {}) {
  const std::string path = testing::TempDir() + fmt::format("/plan_keep_{}_{}_{}.toml", machine.host_memory_bytes,
                                                            machine.disk_bytes, machine.to_host_bytes_per_s);
  write_machine(machine, path);
  PlanRequest out{.ranks = ranks, .memory_bytes = memory_bytes, .top = 1};
  set_published_model(out.job, "gpt2");
  set_keys(out.job, {"model.layers=2", "model.width=128", "model.heads=4", "model.vocabulary=256", "data.seq=128",
                     "train.batch=16", "data.validation=0", "parallel.disk_block=4KiB", "parallel.disk_queue=1",
                     "parallel.machine=" + path});
  set_keys(out.job, keys);
  return out;
}

Compiled compiled_way(const PlanRequest& request, const ExactSetting& setting, const OuterWay& way,
                      const std::vector<int64_t>& begins) {
  JobConfig job = setting.job;
  std::vector<std::string> keys = way.way().keys();
  keys.push_back(setting.parts.stages_key(begins));
  set_keys(job, keys);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, request.ranks);
  JobGraphs graphs = graphs_of(assembly, request.ranks);
  const CompileOptions how = compile_options(assembly, graphs.parallel, request.ranks, 1);
  return compile(std::move(graphs.step), std::move(graphs.evaluation), how).step;
}

// What a crew's program moves of what is kept, there and back.
std::pair<int64_t, int64_t> moved_by(const Program& program, const Rates& rates) {
  const std::vector<int64_t> prices = node_prices_ps(program, CostModel(program.mesh, rates));
  int64_t away = 0, back = 0;
  for (size_t i = 0; i < prices.size(); ++i) {
    const Node& node = program.graph.nodes()[i];
    if (is_move(def_of(node))) (move_of(node.attrs).to == Tier::kDevice ? back : away) += prices[i];
  }
  return {away, back};
}

// A pipeline whose stages are the parts, crew by crew. What tables have of the last crew may be more.
TEST(PlanKeep, moves_and_bytes_of_the_tables_are_those_of_the_compiled_program) {
  for (const Tier keep : {Tier::kHost, Tier::kDisk}) {
    for (const WayRecompute recompute : {WayRecompute::kNone, WayRecompute::kFull}) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(keep), to_string(recompute)));
      const PlanRequest request = request_for(machine_beside(kMuch, kMuch), 4, kMuch);
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      const OuterWay way{.pp = 4, .micro_batches = 8, .inner = {.rows = 2, .recompute = recompute, .keep = keep}};
      const std::optional<StageProblem> problem = tables.problem_of(way);
      ASSERT_TRUE(problem) << tables.pricer().refusal();
      const std::vector<int64_t> begins{0, 1, 2, 3};
      const std::vector<int64_t> bytes = bytes_of_crews(*problem, begins);
      const std::vector<int64_t> host = bytes_elsewhere(*problem, begins, Tier::kHost);
      const std::vector<int64_t> disk = bytes_elsewhere(*problem, begins, Tier::kDisk);
      const Compiled compiled = compiled_way(request, setting, way, begins);
      for (size_t crew = 0; crew < compiled.crews.size(); ++crew) {
        SCOPED_TRACE(crew);
        const ExecutionPlan& plan = compiled.crews[crew].plan;
        const PartPrice& part = problem->parts[crew];
        const auto [away, back] = moved_by(compiled.crews[crew].program, compiled.rates);
        const bool is_block = crew == 1 || crew == 2;
        if (is_block) EXPECT_GT(away, 0);
        EXPECT_GE(8 * part.leaving, away);
        EXPECT_GE(8 * part.returning, back);
        if (is_block) EXPECT_LE(8 * part.leaving, away + part.leaving);  // near the end some may stay
        EXPECT_GE(host[crew], plan.arena(Tier::kHost).bytes);
        EXPECT_GE(disk[crew], plan.arena(Tier::kDisk).bytes);
        EXPECT_GE(bytes[crew] + bytes[crew] / 25, plan.arena().bytes);
        EXPECT_EQ(keep == Tier::kDisk ? part.kept_host : part.kept_disk, 0);
      }
    }
  }
}

// As near as the same way is with all on the device: there tables can be below virtual time as well.
TEST(PlanKeep, times_are_no_less_than_virtual_time_has_them) {
  for (const double link : {8e9, 2e10}) {
    for (const auto& [pp, micro_batches, schedule] : {std::tuple(1, 1, WaySchedule::k1F1B),
                                                      {1, 4, WaySchedule::k1F1B},
                                                      {2, 4, WaySchedule::k1F1B},
                                                      {2, 4, WaySchedule::kZbH1}}) {
      SCOPED_TRACE(fmt::format("link {}, pp {}, {} micro-batches, {}", link, pp, micro_batches, to_string(schedule)));
      const PlanRequest request = request_for(machine_beside(kMuch, 0, link), pp, kMuch, {"model.layers=6"});
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      double on_device = 1;
      for (const Tier keep : {Tier::kDevice, Tier::kHost}) {
        const OuterWay way{.pp = pp,
                           .micro_batches = micro_batches,
                           .schedule = schedule,
                           .inner = {.rows = 16 / micro_batches, .keep = keep}};
        const std::optional<StageProblem> problem = tables.problem_of(way);
        ASSERT_TRUE(problem) << tables.pricer().refusal();
        const std::vector<int64_t> cut = *best_cut(*problem);
        const WayCost cost = cost_of(compiled_way(request, setting, way, cut));
        const double ratio = static_cast<double>(price_of_cut(*problem, cut).total) * 1e-12 / cost.step_s;
        if (keep == Tier::kDevice) {
          on_device = std::min(1.0, ratio);
          continue;
        }
        EXPECT_GT(ratio, on_device - 0.03);
        EXPECT_GT(cost.tiers_s, 0);
        EXPECT_GE(std::ranges::max(bytes_elsewhere(*problem, cut, Tier::kHost)) * 1.01,
                  cost.most_bytes_of(&WayCost::Memory::host));
        EXPECT_GE(std::ranges::max(bytes_of_crews(*problem, cut)) * 1.04, cost.most_bytes());
      }
    }
  }
}

// One sample, which no micro-batches cut: with all on the device it fits with recomputation of all blocks alone.
PlanRequest request_that_keeps_elsewhere() {
  PlanRequest request =
      request_for(machine_beside(kMuch, 0, 8e10), 1, kMuch, {"train.batch=1", "data.seq=512", "model.layers=4"});
  ExactSetting setting = exact_setting(request);
  WayTables tables(setting, 1);
  int64_t fewest = kMuch;
  for (const OuterWay& way : setting.ways(1).all()) {
    if (way.inner.keep != Tier::kDevice || way.inner.recompute == WayRecompute::kFull) continue;
    const auto problem = tables.problem_of(way);
    if (const auto bytes = problem ? fewest_bytes_of_cuts(*problem) : std::nullopt) fewest = std::min(fewest, *bytes);
  }
  request.memory_bytes = fewest - 1;
  return request;
}

TEST(PlanKeep, activations_lie_on_the_host_where_that_costs_less_than_computing_them_again) {
  const PlanRequest request = request_that_keeps_elsewhere();
  const ExactPlan plan = plan_exact(request);
  ASSERT_EQ(plan.best.size(), 1U);
  const ExactWay& best = plan.best.front();
  EXPECT_EQ(best.outer.inner.keep, Tier::kHost);
  EXPECT_NE(best.outer.inner.recompute, WayRecompute::kFull);
  const std::string text = exact_text(plan, 1, 512, "tokens");
  EXPECT_THAT(text, HasSubstr("--set 'parallel.keep=[\"* = host\"]'"));
  EXPECT_THAT(text, HasSubstr("  kept's moves "));
  int64_t sum = 0;
  for (const auto& [name, ps] : step_items(best)) sum += ps;
  EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(best.price.total), 9);
  const PlanFile file = plan_file(plan, 1);
  EXPECT_THAT(to_string(file), HasSubstr("set parallel.keep=[\"* = host\"]\n"));
  EXPECT_EQ(to_string(parse_plan_file(to_string(file))), to_string(file));
  EXPECT_THROW(export_way("deepspeed", request.job, best.outer.way(), 1), Error);
  const std::vector<CompiledWay> compiled = compile_best(plan, request);
  ASSERT_TRUE(compiled.front().cost) << compiled.front().refusal;
  EXPECT_TRUE(compiled.front().fits);
  JobConfig job = request.job;
  set_keys(job, file.keys);
  EXPECT_NO_THROW(check_plan(file, job, 1));
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, 1);
  comm::spawn_ranks(1, "threads", [&](comm::World& world) {
    const Session session = session_of(assembly, &world, nullptr);
    const WayCost::Memory& said = compiled.front().cost->memory.front();
    EXPECT_EQ(session.plan().arena().bytes, said.arena);
    EXPECT_EQ(session.plan().arena(Tier::kHost).bytes, said.host);
    EXPECT_GT(said.host, 0);
  });
  const Advice advice = advise(request, *exact_advice_search(request));
  EXPECT_THAT(advice.text, HasSubstr("offload: yes, "));
  EXPECT_THAT(advice.text, HasSubstr("what is kept for the backward pass on the host; without it "));
}

TEST(PlanKeep, compiled_ways_keep_activations_elsewhere_where_nothing_else_fits) {
  PlanRequest request = request_for(machine_beside(kMuch), 1, kMuch, {"model.layers=1"});
  request.is_asked = [](const Way& way) {
    return way.micro_batches == 1 && way.recompute == WayRecompute::kNone && way.place == UpdatePlace();
  };
  const JobPlan much = plan_job(request);
  ASSERT_FALSE(much.best.empty());
  EXPECT_EQ(much.best.front().way.keep, Tier::kDevice);
  request.memory_bytes = much.best.front().cost.most_bytes() - 1;
  const JobPlan less = plan_job(request);
  ASSERT_FALSE(less.best.empty());
  EXPECT_EQ(less.best.front().way.keep, Tier::kHost);
  EXPECT_LT(less.best.front().cost.most_bytes(), much.best.front().cost.most_bytes());
  EXPECT_EQ(less.ledger.fit + less.ledger.memory + less.ledger.needless, less.ledger.ways);
}

// With updates on the host alone, of so many bytes.
PlanRequest request_with_updates_on_the_host(int64_t host_bytes) {
  Machine machine = machine_beside(host_bytes, 0, 3e10);
  machine.host_memory_bytes_per_s = 1e10;
  machine.host_flops_per_s = 1e11;
  PlanRequest out = request_for(machine, 1, kMuch, {"model.layers=1"});
  out.is_asked = [](const Way& way) {
    return way.place.update == Tier::kHost && way.recompute == WayRecompute::kNone && way.keep == Tier::kDevice;
  };
  return out;
}

TEST(PlanKeep, what_the_host_computes_is_no_communication) {
  const JobPlan plan = plan_job(request_with_updates_on_the_host(kMuch));
  ASSERT_FALSE(plan.best.empty());
  const WayCost& cost = plan.best.front().cost;
  EXPECT_GT(cost.host_s, 0);
  EXPECT_DOUBLE_EQ(cost.moving_s, cost.tiers_s) << "one rank exchanges nothing";
  EXPECT_LT(cost.update_s, cost.host_s) << "which updates";
  EXPECT_THAT(plan_text(plan, 1, 1, "tokens"), HasSubstr("of 0.000 ms in which ranks exchange values 0.000"));
}

TEST(PlanKeep, a_way_that_lacks_the_hosts_memory_says_so) {
  const std::string text = plan_text(plan_job(request_with_updates_on_the_host(1024)), 1, 1, "tokens");
  EXPECT_THAT(text,
              testing::ContainsRegex("the smallest takes [0-9.]+ MiB; on the host [0-9.]+ MiB, [0-9.]+ too many"));
}

TEST(PlanKeep, a_certificate_edited_by_hand_is_refused) {
  const PlanRequest request = request_that_keeps_elsewhere();
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  const PlanFile file = plan_file(plan, 1);
  CertifiedJob job(request);
  EXPECT_THAT(proven_text(certificate), HasSubstr(" keep=host"));
  const auto edited = [&](auto change) -> std::string {
    Certificate other = certificate;
    change(other);
    try {
      verify_certificate(parse_certificate(to_string(other)));
      check_certified_plan(other, file);
      job.check(other);
    } catch (const Error& error) {
      return error.what();
    }
    return "verified";
  };
  EXPECT_EQ(edited([](Certificate&) {}), "verified");
  EXPECT_NE(edited([](Certificate& c) { c.best.front().way.cut.keep = Tier::kDevice; }), "verified");
  EXPECT_NE(edited([](Certificate& c) { c.best.front().way.cut.keep = Tier::kDisk; }), "verified");
  EXPECT_THAT(edited([](Certificate& c) { c.host = 1000; }),
              HasSubstr("more of the host's memory or the disk than a rank has"));
  for (const auto field : {&CertifiedPart::leaving, &CertifiedPart::returning, &CertifiedPart::kept_host}) {
    for (const int64_t by : {-1, 1}) {
      EXPECT_NE(edited([&](Certificate& c) {
                  for (CertifiedTable& table : c.prices) {
                    if (table.cut == c.best.front().way.cut) table.parts[1].*field += by;
                  }
                }),
                "verified");
    }
  }
  EXPECT_THAT(edited([](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  if (table.cut.keep == Tier::kHost) table.parts[1].leaving = 0;
                }
              }),
              HasSubstr("below their bounds"));
}

// Every way, with what is kept on the device and elsewhere, priced by itself.
TEST(PlanKeep, the_best_is_the_best_of_all_ways_priced_one_by_one) {
  ExactSetting setting =
      exact_setting(request_for(machine_beside(kMuch, kMuch, 8e10), 2, kMuch, {"train.batch=4", "data.seq=256"}));
  WayTables tables(setting, 1);
  const OuterWays ways = setting.ways(2).kept_by(
      [](const OuterWay& way) { return way.inner.zero == 0 && way.inner.place == UpdatePlace(); });
  std::vector<StageProblem> problems;
  int64_t fewest = kMuch;
  for (const OuterWay& way : ways.all()) {
    if (!divides(way)) continue;
    auto problem = tables.problem_of(way);
    if (!problem) continue;
    if (const auto bytes = fewest_bytes_of_cuts(*problem)) fewest = std::min(fewest, *bytes);
    problems.push_back(std::move(*problem));
  }
  int none = 0, elsewhere = 0, on_device = 0;
  for (const int64_t share : {15, 16, 17, 18, 20, 24, 32, 64}) {
    setting.memory_bytes = fewest / 16 * share + 16;
    int64_t least = -1;
    for (StageProblem& problem : problems) {
      problem.memory = setting.memory_bytes;
      const auto cut = best_cut(problem);
      if (!cut) continue;
      const int64_t total = price_of_cut(problem, *cut).total;
      if (least < 0 || total < least) least = total;
    }
    const OuterResult found = tables.search(ways, 2, 1);
    ASSERT_EQ(found.best.empty(), least < 0) << share;
    if (least < 0) {
      ++none;
      continue;
    }
    EXPECT_EQ(found.best.front().price.total, least) << share;
    ++(ways.at(found.best.front().way).inner.keep == Tier::kDevice ? on_device : elsewhere);
  }
  EXPECT_GT(none, 0);
  EXPECT_GT(elsewhere, 0);
  EXPECT_GT(on_device, 0);
}

}  // namespace
}  // namespace trireme::plan_keep_test
