// Plans that have the optimizer's state on the host or the disk, and updates on the host.
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
#include "trireme/train/plan/questions/advice.h"
#include "trireme/train/plan/questions/what_if.h"
#include "trireme/train/plan/ways/way_rule.h"

namespace trireme::plan_tiers_test {
namespace {

using testing::HasSubstr;

// Four devices that compute a thousand times as fast as their links to the host and each other are.
Machine machine_with_host(int64_t host_bytes, int64_t disk_bytes = 0) {
  Machine out{.name = "beside", .devices_per_host = 8};
  out.memory_bytes = int64_t{1} << 34;
  out.memory_bytes_per_s = 1e12;
  out.host_memory_bytes = host_bytes;
  out.to_host_bytes_per_s = 2e10;
  out.from_host_bytes_per_s = 3e10;
  out.disk_bytes = disk_bytes;
  out.disk_bytes_per_s = 5e9;
  out.flops_per_s = {{"f32", 1e13}};
  out.levels = {{"host", 8, 1e-6, 1e11}};
  return out;
}

// Its hosts update a tenth as fast as the device would.
Machine machine_that_updates(int64_t host_bytes, int64_t disk_bytes = 0) {
  Machine out = machine_with_host(host_bytes, disk_bytes);
  out.name = "updates";
  out.host_memory_bytes_per_s = 1e11;
  out.host_flops_per_s = 1e12;
  return out;
}

PlanRequest request_for(const Machine& machine, int64_t ranks, int64_t memory_bytes,
                        const std::vector<std::string>& keys = {}) {
  const std::string path = testing::TempDir() + fmt::format("/plan_tiers_{}_{}_{}.toml", machine.name,
                                                            machine.host_memory_bytes, machine.disk_bytes);
  write_machine(machine, path);
  PlanRequest out{.ranks = ranks, .memory_bytes = memory_bytes, .top = 1};
  set_published_model(out.job, "gpt2");
  set_keys(out.job, {"model.layers=2", "model.width=64", "model.heads=4", "model.vocabulary=512", "data.seq=32",
                     "train.batch=16", "data.validation=0", "parallel.machine=" + path});
  set_keys(out.job, keys);
  return out;
}

constexpr int64_t kMuch = int64_t{1} << 32;

// The most memory with which nothing fits while the state is on the device.
int64_t just_too_little(int64_t ranks) {
  return plan_exact(request_for(machine_with_host(0), ranks, 1000)).nearest->bytes - 1;
}

// What is compiled of the best way is what a rank that trains by it takes of each tier, to the byte.
void expect_what_training_takes(const ExactPlan& plan, const PlanRequest& request) {
  const auto ranks = static_cast<int>(request.ranks);
  const std::vector<CompiledWay> compiled = compile_best(plan, request);
  ASSERT_TRUE(compiled.front().cost) << compiled.front().refusal;
  if (ranks == 1) EXPECT_TRUE(compiled.front().fits);  // tables of zb-h1 can be below the arena
  EXPECT_THAT(compiled_text(plan, {.ways = compiled}),
              HasSubstr("values go between the device and the host or the disk"));
  JobConfig job = request.job;
  set_keys(job, plan_file(plan, ranks).keys);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, ranks);
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    const Session session = session_of(assembly, &world, nullptr);
    const WayCost::Memory& said = compiled.front().cost->memory[static_cast<size_t>(session.plan().crew)];
    EXPECT_EQ(session.plan().arena().bytes, said.arena);
    EXPECT_EQ(session.plan().arena(Tier::kHost).bytes, said.host);
    EXPECT_EQ(session.plan().arena(Tier::kDisk).bytes, said.disk);
    EXPECT_GT(said.host, 0);
  });
}

TEST(PlanTiers, what_fits_nowhere_on_the_devices_fits_with_the_state_on_the_host_and_takes_what_is_said) {
  for (const int ranks : {1, 2}) {
    const int64_t memory = just_too_little(ranks);
    EXPECT_TRUE(plan_exact(request_for(machine_with_host(0), ranks, memory)).best.empty());
    const PlanRequest request = request_for(machine_with_host(kMuch), ranks, memory);
    const ExactPlan plan = plan_exact(request);
    ASSERT_EQ(plan.best.size(), 1U);
    const ExactWay& best = plan.best.front();
    EXPECT_EQ(best.outer.inner.place.state, Tier::kHost);
    EXPECT_GT(std::ranges::max(best.host_bytes), 0);
    EXPECT_EQ(std::ranges::max(best.disk_bytes), 0);
    const std::string text = exact_text(plan, ranks, 16 * 32, "tokens");
    EXPECT_THAT(text, HasSubstr("--set 'parallel.home=[\"*/state = host\"]'"));
    EXPECT_THAT(text, HasSubstr("  state's moves "));
    EXPECT_THAT(text, HasSubstr("on the host "));
    int64_t sum = 0;
    for (const auto& [name, ps] : step_items(best)) sum += ps;
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(best.price.total), 8);

    expect_what_training_takes(plan, request);
  }
}

// In bf16 the weights come for the step in half the bytes: what is too large with the state elsewhere fits.
PlanRequest request_that_needs_updates_on_the_host(int64_t ranks) {
  const std::vector<std::string> keys{"train.dtype=bf16",    "model.kind=llama", "model.kv_heads=2",
                                      "model.mlp_width=160", "model.tied=false", "model.layers=4",
                                      "model.vocabulary=64"};
  const int64_t memory = plan_exact(request_for(machine_with_host(kMuch), ranks, 1000, keys)).nearest->bytes - 1;
  return request_for(machine_that_updates(kMuch), ranks, memory, keys);
}

TEST(PlanTiers, updates_run_on_the_host_where_nothing_else_fits_and_take_what_is_said) {
  for (const int ranks : {1, 2}) {
    const PlanRequest request = request_that_needs_updates_on_the_host(ranks);
    const ExactPlan plan = plan_exact(request);
    ASSERT_EQ(plan.best.size(), 1U) << ranks;
    const ExactWay& best = plan.best.front();
    EXPECT_EQ(best.outer.inner.place, (UpdatePlace{Tier::kHost, Tier::kHost}));
    const std::string text = exact_text(plan, ranks, 16 * 32, "tokens");
    EXPECT_THAT(text, HasSubstr("--optimizer-on host"));
    EXPECT_THAT(text, HasSubstr("  host's update "));
    int64_t sum = 0;
    for (const auto& [name, ps] : step_items(best)) sum += ps;
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(best.price.total), 8);
    EXPECT_THAT(to_string(plan_file(plan, ranks)), HasSubstr("set parallel.optimizer_on=host\n"));
    EXPECT_NO_THROW(verify_certificate(certificate_of(plan, request)));
    expect_what_training_takes(plan, request);
  }
}

// Whose rates nobody knows updates nothing; where its memory is the device's it does.
TEST(PlanTiers, updates_run_on_hosts_whose_rates_are_known) {
  const auto updates_of = [](const Machine& machine) -> int64_t {
    const ExactSetting setting = exact_setting(request_for(machine, 2, kMuch));
    return std::ranges::count(setting.places(), Tier::kHost, &UpdatePlace::update);
  };
  EXPECT_EQ(updates_of(machine_with_host(kMuch, kMuch)), 0);
  EXPECT_EQ(updates_of(machine_that_updates(kMuch, kMuch)), 2);
  EXPECT_EQ(updates_of(machine_that_updates(0, kMuch)), 0);  // parameters would lie there
  Machine shared = machine_with_host(kMuch);
  shared.name = "shared";
  shared.to_host_bytes_per_s = shared.from_host_bytes_per_s = 0;
  EXPECT_EQ(updates_of(shared), 1);
}

// The disk is taken where the host has too little, and nothing where neither has enough.
TEST(PlanTiers, the_nearest_tier_that_holds_the_state_is_taken) {
  const int64_t memory = just_too_little(2);
  const auto state_of = [&](int64_t host, int64_t disk) -> std::string {
    const ExactPlan plan = plan_exact(
        request_for(machine_with_host(host, disk), 2, memory, {"parallel.disk_block=4KiB", "parallel.disk_queue=1"}));
    return plan.best.empty() ? "none" : std::string(to_string(plan.best.front().outer.inner.place.state));
  };
  EXPECT_EQ(state_of(kMuch, kMuch), "host");
  EXPECT_EQ(state_of(0, kMuch), "none");  // a disk's staging lies on the host
  EXPECT_EQ(state_of(200'000, kMuch), "disk");
  EXPECT_EQ(state_of(1000, 1000), "none");
}

// By keys of the job instead of a machine's file.
TEST(PlanTiers, follow_a_jobs_budgets) {
  const int64_t memory = just_too_little(2);
  PlanRequest request = request_for(machine_with_host(0), 2, 0);
  set_keys(request.job, {fmt::format("parallel.device_memory={}B", memory)});
  const ExactPlan plan = plan_exact(request);
  EXPECT_EQ(plan.memory_bytes, memory);
  ASSERT_EQ(plan.best.size(), 1U);
  EXPECT_EQ(plan.best.front().outer.inner.place.state, Tier::kHost);
  set_keys(request.job, {"parallel.host_memory=1KB"});
  EXPECT_TRUE(plan_exact(request).best.empty());
  set_keys(request.job, {"parallel.host_memory=1GB", "parallel.home=[\"wte = host\"]"});
  EXPECT_TRUE(plan_exact(request).setting.places().empty());  // the job says itself what lies where
}

// Where all fits nothing is asked of them.
TEST(PlanTiers, that_nothing_needs_change_no_plan_and_compile_no_more) {
  const ExactPlan without = plan_exact(request_for(machine_with_host(0), 4, int64_t{1} << 34));
  const ExactPlan with = plan_exact(request_for(machine_with_host(kMuch, kMuch), 4, int64_t{1} << 34));
  ASSERT_FALSE(with.best.empty());
  EXPECT_EQ(way_text(with.best.front()), way_text(without.best.front()));
  EXPECT_EQ(with.best.front().price.total, without.best.front().price.total);
  EXPECT_EQ(with.jobs_compiled, without.jobs_compiled);
  EXPECT_EQ(with.ledger.ways, 9 * without.ledger.ways);  // of state and of what is kept three each
  EXPECT_EQ(with.ledger.solved, without.ledger.solved);
  EXPECT_GT(with.ledger.needless, 0);
}

// Every way, with its state on the device and elsewhere, priced by itself. Searches go over tables that are there; of
// some a whole plan with its certificate is made.
TEST(PlanTiers, the_best_is_the_best_of_all_ways_priced_one_by_one) {
  int on_device = 0, elsewhere = 0, updates = 0, none = 0;
  for (const auto& [ranks, host, disk] :
       {std::tuple<int64_t, int64_t, int64_t>(1, kMuch, 0), {2, kMuch, kMuch}, {2, 200'000, kMuch}, {4, kMuch, 0}}) {
    const Machine machine =
        host == kMuch && ranks < 4 ? machine_that_updates(host, disk) : machine_with_host(host, disk);
    PlanRequest request = request_for(
        machine, ranks, kMuch,
        {"model.layers=2", "train.batch=4", "train.dtype=bf16", "parallel.disk_block=4KiB", "parallel.disk_queue=1"});
    ExactSetting setting = exact_setting(request);
    WayTables tables(setting, 1);
    // Values are too small to leave alone.
    const OuterWays ways =
        setting.ways(ranks).kept_by([](const OuterWay& way) { return way.inner.keep == Tier::kDevice; });
    std::vector<StageProblem> problems;
    for (const OuterWay& way : ways.all()) {
      if (!divides(way)) continue;
      if (auto problem = tables.problem_of(way)) problems.push_back(std::move(*problem));
    }
    int64_t least_bytes = kMuch;
    for (const StageProblem& problem : problems) {
      if (const auto bytes = fewest_bytes_of_cuts(problem)) least_bytes = std::min(least_bytes, *bytes);
    }
    for (const int64_t share : {15, 16, 20, 32, 64}) {
      SCOPED_TRACE(fmt::format("{} ranks, share {}", ranks, share));
      request.memory_bytes = setting.memory_bytes = least_bytes / 16 * share + 16;
      int64_t least = -1;
      for (StageProblem& problem : problems) {
        problem.memory = request.memory_bytes;
        const auto cut = best_cut(problem);
        if (!cut) continue;
        const int64_t total = price_of_cut(problem, *cut).total;
        if (least < 0 || total < least) least = total;
      }
      const OuterResult found = tables.search(ways, ranks, 1);
      ASSERT_EQ(found.best.empty(), least < 0);
      if (least >= 0) {
        EXPECT_EQ(found.best.front().price.total, least);
      }
      const UpdatePlace place = least < 0 ? UpdatePlace() : ways.at(found.best.front().way).inner.place;
      ++(least < 0 ? none : place == UpdatePlace() ? on_device : place.update == Tier::kHost ? updates : elsewhere);
      const bool is_planned = share == 16 || share == 32 || (share == 15 && ranks == 1);
      if (!is_planned) continue;
      const ExactPlan plan = plan_exact(request);
      ASSERT_EQ(plan.best.empty(), least < 0);
      if (least >= 0) {
        EXPECT_EQ(plan.best.front().price.total, least);
      }
      EXPECT_NO_THROW(verify_certificate(certificate_of(plan, request)));
    }
  }
  EXPECT_GT(on_device, 3);
  EXPECT_GT(elsewhere, 3);
  EXPECT_GT(updates, 0);
  EXPECT_GT(none, 2);
}

// The tables of parts against the moves of the whole job's program: one price, in integers; and the same bytes.
TEST(PlanTiers, moves_and_bytes_of_the_tables_are_those_of_the_compiled_program) {
  for (const auto& [ranks, zero] : {std::pair(1, 0), {2, 0}, {2, 1}, {2, 2}, {4, 1}}) {
    for (const WayRecompute recompute : {WayRecompute::kNone, WayRecompute::kFull}) {
      PlanRequest request = request_for(
          machine_with_host(kMuch), ranks, kMuch,
          {"model.kind=llama", "model.kv_heads=2", "model.mlp_width=160", "model.tied=false", "train.batch=8"});
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      const OuterWay way{
          .inner = {
              .dp = ranks, .zero = zero, .rows = 8 / ranks, .recompute = recompute, .place = {.state = Tier::kHost}}};
      const std::optional<StageProblem> problem = tables.problem_of(way);
      ASSERT_TRUE(problem) << tables.pricer().refusal();
      PartPrice sum;
      for (const PartPrice& part : problem->parts) {
        for (const auto field : {&PartPrice::coming, &PartPrice::going, &PartPrice::host, &PartPrice::disk})
          sum.*field += part.*field;
      }
      const Compiled compiled = compile_way(request, way.way());
      const CostModel model(compiled.program().mesh, compiled.rates);
      const std::vector<int64_t> prices = node_prices_ps(compiled.program(), model);
      int64_t coming = 0, going = 0;
      for (size_t i = 0; i < prices.size(); ++i) {
        const Node& node = compiled.program().graph.nodes()[i];
        if (!is_move(def_of(node))) continue;
        EXPECT_EQ(node.phase, Phase::kUpdate);
        (move_of(node.attrs).to == Tier::kDevice ? coming : going) += prices[i];
      }
      EXPECT_GT(coming, 0);
      EXPECT_EQ(sum.coming, coming) << ranks << " ranks, zero " << zero;
      EXPECT_EQ(sum.going, going) << ranks << " ranks, zero " << zero;
      EXPECT_EQ(sum.host, compiled.plan().arena(Tier::kHost).bytes) << ranks << " ranks, zero " << zero;
      EXPECT_EQ(sum.disk, 0);
    }
  }
}

// The same of updates on the host, of a pipeline whose stages are the parts, crew by crew: a step's numbers go to the
// host of each.
TEST(PlanTiers, updates_on_the_host_take_what_the_compiled_program_does) {
  for (const auto& [dp, zero] : {std::pair(1, 0), {2, 0}, {2, 1}, {2, 3}}) {
    for (const char* const dtype : {"f32", "bf16"}) {
      SCOPED_TRACE(fmt::format("dp {}, zero {}, {}", dp, zero, dtype));
      PlanRequest request = request_for(machine_that_updates(kMuch), 4 * dp, kMuch,
                                        {"model.kind=llama", "model.kv_heads=2", "model.mlp_width=160",
                                         "model.tied=false", "model.layers=2", fmt::format("train.dtype={}", dtype)});
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      const OuterWay way{
          .pp = 4,
          .micro_batches = 4,
          .inner = {.dp = dp, .zero = zero, .rows = 4 / dp, .place = {.state = Tier::kHost, .update = Tier::kHost}}};
      const std::optional<StageProblem> problem = tables.problem_of(way);
      ASSERT_TRUE(problem) << tables.pricer().refusal();
      JobConfig job = setting.job;
      std::vector<std::string> keys = way.way().keys();
      keys.push_back(setting.parts.stages_key({0, 1, 2, 3}));
      set_keys(job, keys);
      const auto model = make_model(job);
      const Assembly assembly = assembly_of(job, *model, request.ranks);
      JobGraphs graphs = graphs_of(assembly, request.ranks);
      const CompileOptions how = compile_options(assembly, graphs.parallel, request.ranks, 1);
      const Compiled compiled = compile(std::move(graphs.step), std::move(graphs.evaluation), how).step;
      ASSERT_EQ(compiled.crews.size(), problem->parts.size());
      for (size_t crew = 0; crew < compiled.crews.size(); ++crew) {
        const Program& program = compiled.crews[crew].program;
        const PartPrice& part = problem->parts[crew];
        const CostModel cost(program.mesh, compiled.rates);
        const std::vector<int64_t> prices = node_prices_ps(program, cost);
        int64_t coming = 0, going = 0, updating = 0;
        for (size_t i = 0; i < prices.size(); ++i) {
          const Node& node = program.graph.nodes()[i];
          if (node.on_host) updating += prices[i];
          if (is_move(def_of(node))) (move_of(node.attrs).to == Tier::kDevice ? coming : going) += prices[i];
        }
        EXPECT_GT(updating, 0);
        EXPECT_EQ(part.coming, coming) << crew;
        EXPECT_EQ(part.going, going) << crew;
        EXPECT_EQ(part.updating, updating) << crew;
        EXPECT_EQ(part.host, compiled.crews[crew].plan.arena(Tier::kHost).bytes) << crew;
        // With zero 1 small parameters lie on the host, and its bounds are of all.
        const int64_t persistent = compiled.crews[crew].plan.arena().persistent;
        EXPECT_GE(part.persistent, persistent) << crew;
        EXPECT_LE(part.persistent, persistent + (zero == 1 ? 1024 : 0)) << crew;
        if (zero != 1) EXPECT_GT(part.held, 0) << crew;
      }
    }
  }
}

TEST(PlanTiers, a_certificate_is_verified_against_the_job_and_edited_by_hand_is_refused) {
  PlanRequest request = request_for(machine_with_host(kMuch, kMuch), 2, just_too_little(2));
  request.top = 3;
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  const std::string text = to_string(certificate);
  EXPECT_EQ(parse_certificate(text), certificate);
  EXPECT_NO_THROW(verify_certificate(certificate));
  EXPECT_EQ(check_certified_plan(certificate, plan_file(plan, 2)), 0U);
  CertifiedJob job(request);
  EXPECT_NO_THROW(job.check(certificate));
  EXPECT_THAT(proven_text(certificate), HasSubstr(" state=host "));
  EXPECT_THAT(proven_text(certificate),
              HasSubstr("have state, updates or kept activations farther, or these in slices, without need"));

  const auto edited = [&](auto change) -> std::string {
    Certificate other = certificate;
    change(other);
    try {
      verify_certificate(parse_certificate(to_string(other)));
      check_certified_plan(other, plan_file(plan, 2));
      job.check(other);
    } catch (const Error& error) {
      return error.what();
    }
    return "verified";
  };
  const auto state_of = [](Certificate& c) -> Tier& { return c.best.front().way.cut.place.state; };
  EXPECT_EQ(edited([](Certificate&) {}), "verified");
  EXPECT_NE(edited([&](Certificate& c) { state_of(c) = Tier::kDevice; }), "verified");
  EXPECT_NE(edited([&](Certificate& c) { state_of(c) = Tier::kDisk; }), "verified");
  EXPECT_THAT(edited([](Certificate& c) { c.host = 1000; }),
              HasSubstr("more of the host's memory or the disk than a rank has"));
  EXPECT_NE(edited([](Certificate& c) { c.host = 0; }), "verified");
  EXPECT_THAT(edited([](Certificate& c) { ++c.host; }), HasSubstr("host memory"));
  EXPECT_THAT(edited([](Certificate& c) { ++c.disk; }), HasSubstr("disk"));
  EXPECT_THAT(edited([](Certificate& c) { --c.ledger.needless, ++c.ledger.memory; }), HasSubstr("the ledger has "));
  for (const auto field : {&CertifiedPart::coming, &CertifiedPart::going, &CertifiedPart::host}) {
    for (const int64_t by : {-1, 1}) {
      EXPECT_NE(edited([&](Certificate& c) {
                  for (CertifiedTable& table : c.prices) {
                    if (table.cut == c.best.front().way.cut) table.parts.front().*field += by;
                  }
                }),
                "verified");
    }
  }
  EXPECT_THAT(edited([&](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  if (table.cut.place.state == Tier::kHost) table.parts[1].forward = 0;
                }
              }),
              HasSubstr("below their bounds"));
}

TEST(PlanTiers, a_certificate_with_updates_on_the_host_edited_by_hand_is_refused) {
  const PlanRequest request = request_that_needs_updates_on_the_host(1);
  const ExactPlan plan = plan_exact(request);
  const Certificate certificate = certificate_of(plan, request);
  CertifiedJob job(request);
  EXPECT_THAT(proven_text(certificate), HasSubstr(" update=host "));
  const auto edited = [&](auto change) -> std::string {
    Certificate other = certificate;
    change(other);
    try {
      verify_certificate(parse_certificate(to_string(other)));
      check_certified_plan(other, plan_file(plan, 1));
      job.check(other);
    } catch (const Error& error) {
      return error.what();
    }
    return "verified";
  };
  EXPECT_EQ(edited([](Certificate&) {}), "verified");
  EXPECT_NE(edited([](Certificate& c) { c.best.front().way.cut.place.update = Tier::kDevice; }), "verified");
  EXPECT_THAT(edited([](Certificate& c) { c.best.front().way.cut.place.state = Tier::kDevice; }),
              HasSubstr("updates run on the device, or on the host with their state elsewhere"));
  EXPECT_NE(edited([](Certificate& c) { c.model.update_fs_per_byte = 0; }), "verified");
  EXPECT_NE(edited([](Certificate& c) { ++c.model.update_fs_per_byte; }), "verified");
  EXPECT_NE(edited([](Certificate& c) { --c.model.weight_bytes; }), "verified");
  for (const auto field : {&CertifiedPart::updating, &CertifiedPart::held, &CertifiedPart::host}) {
    for (const int64_t by : {-1, 1}) {
      EXPECT_NE(edited([&](Certificate& c) {
                  for (CertifiedTable& table : c.prices) {
                    if (table.cut == c.best.front().way.cut) table.parts[1].*field += by;
                  }
                }),
                "verified");
    }
  }
  EXPECT_THAT(edited([&](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  if (table.cut.place.update == Tier::kHost) table.parts[1].updating = 0;
                }
              }),
              testing::AnyOf(HasSubstr("takes less once a step"), HasSubstr("below their bounds"),
                             HasSubstr("less than its bytes need")));
}

TEST(PlanTiers, compiled_ways_have_the_state_elsewhere_only_where_it_is_needed) {
  PlanRequest request = request_for(machine_with_host(kMuch), 2, kMuch, {"model.layers=1"});
  request.is_asked = [](const Way& way) {
    return way.schedule == WaySchedule::k1F1B && way.micro_batches == 1 && way.recompute == WayRecompute::kNone &&
           !way.is_searched && way.tp == 1 && way.zero == 0 && way.keep == Tier::kDevice;
  };
  const JobPlan much = plan_job(request);
  ASSERT_EQ(much.best.size(), 1U);
  EXPECT_EQ(much.best.front().way.place.state, Tier::kDevice);
  request.memory_bytes = 0;
  PlanRequest less = request;
  less.top = 100;
  less.memory_bytes = kMuch;
  int64_t fewest = kMuch;  // of all with the state on the device, which fit
  for (const PlannedWay& way : plan_job(less).best) fewest = std::min(fewest, way.cost.most_bytes());
  request.memory_bytes = fewest - 1;
  const JobPlan plan = plan_job(request);
  const PlanLedger& ledger = plan.ledger;
  EXPECT_EQ(ledger.fit + ledger.memory + ledger.memory_least + ledger.needless + ledger.do_not_divide, ledger.ways);
  ASSERT_EQ(plan.best.size(), 1U);
  const PlannedWay& best = plan.best.front();
  EXPECT_EQ(best.way.place.state, Tier::kHost);
  EXPECT_GT(best.cost.tiers_s, 0);
  EXPECT_LE(best.cost.tiers_exposed_s, best.cost.tiers_s);
  EXPECT_THAT(plan_text(plan, 2, 16 * 32, "tokens"), HasSubstr("on the host lie "));
  PlanRequest asked = request;
  const WayRule rule = parse_way_rule("state=device", ways_of(request));
  asked.is_asked = [&](const Way& way) { return rule.is_kept_by(way) && request.is_asked(way); };
  EXPECT_THAT(why_not_text(plan, plan_job(asked), rule), HasSubstr("no way that keeps it can be taken"));
  const Advice advice = advise(request, *compiled_advice_search(request));
  EXPECT_THAT(advice.text, HasSubstr("offload: yes, the optimizer's state lies on the host; without it none fits"));
}

TEST(PlanTiers, advice_by_prices_of_parts_says_them) {
  const PlanRequest request = request_for(machine_with_host(kMuch), 2, just_too_little(2));
  const Advice advice = advise(request, *exact_advice_search(request));
  EXPECT_THAT(advice.text, HasSubstr("offload: yes, the optimizer's state lies on the host; without it none fits"));
}

TEST(PlanTiers, a_plan_file_says_where_the_state_lies) {
  const PlanRequest request = request_for(machine_with_host(kMuch), 2, just_too_little(2));
  const ExactPlan plan = plan_exact(request);
  const PlanFile file = plan_file(plan, 2);
  EXPECT_THAT(to_string(file), HasSubstr("set parallel.home=[\"*/state = host\"]\n"));
  EXPECT_EQ(to_string(parse_plan_file(to_string(file))), to_string(file));
  JobConfig job = request.job;
  set_keys(job, file.keys);
  EXPECT_NO_THROW(check_plan(file, job, 2));
}

}  // namespace
}  // namespace trireme::plan_tiers_test
