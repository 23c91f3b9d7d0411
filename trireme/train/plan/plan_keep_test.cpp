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
#include "trireme/train/job/named_models.h"
#include "trireme/train/plan/advice.h"
#include "trireme/train/plan/exact_certificate.h"
#include "trireme/train/plan/exact_compiled.h"
#include "trireme/train/plan/export.h"
#include "trireme/train/plan/way_rule.h"

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
  set_named_model(out.job, "gpt2");
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

// A pipeline whose stages are the parts, crew by crew. In a crew that runs a micro-batch's backward pass soon after its
// forward pass some of it does not leave, so that tables have no less.
TEST(PlanKeep, moves_and_bytes_of_the_tables_are_those_of_the_compiled_program) {
  for (const Tier keep : {Tier::kHost, Tier::kDisk}) {
    for (const char* const recompute : {"none", "selective", "full"}) {
      SCOPED_TRACE(fmt::format("{}, {}", to_string(keep), recompute));
      const PlanRequest request = request_for(machine_beside(kMuch, kMuch), 4, kMuch);
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      const OuterWay way{.pp = 4, .micro_batches = 8, .inner = {.rows = 2, .recompute = recompute, .keep = keep}};
      const std::optional<StageProblem> problem = tables.problem_of(way);
      ASSERT_TRUE(problem) << tables.pricer().refusal();
      const std::vector<int64_t> begins{0, 1, 2, 3};
      const Compiled compiled = compiled_way(request, setting, way, begins);
      for (size_t crew = 0; crew < compiled.crews.size(); ++crew) {
        const CompiledCrew& of = compiled.crews[crew];
        const PartPrice& part = problem->parts[crew];
        const auto [away, back] = moved_by(of.program, compiled.rates);
        printf("%s %s crew %zu: leaving %ld of program %ld, returning %ld of %ld\n", std::string(to_string(keep)).c_str(), recompute, crew, 8 * part.leaving, away, 8 * part.returning, back);
        printf("   device %ld arena %ld; host %ld arena %ld; disk %ld arena %ld kept %ld work %ld khost %ld kdisk %ld\n", bytes_of_crews(*problem, begins)[crew], of.plan.arena().bytes,
          bytes_elsewhere(*problem, begins, Tier::kHost)[crew], of.plan.arena(Tier::kHost).bytes, bytes_elsewhere(*problem, begins, Tier::kDisk)[crew], of.plan.arena(Tier::kDisk).bytes, part.kept, part.work, part.kept_host, part.kept_disk);
      }
    }
  }
}

TEST(PlanKeep, times_are_those_of_virtual_time_or_longer) {
  for (const double link : {2e9, 8e9, 2e10, 8e10}) {
  for (const Tier keep : {Tier::kDevice, Tier::kHost}) {
    for (const char* const recompute : {"none", "full"}) {
      for (const auto& [ranks, pp, micro_batches, schedule] : {std::tuple(1, 1, 1, "1f1b"), {1, 1, 4, "1f1b"}, {2, 2, 4, "1f1b"}, {2, 2, 4, "zb-h1"}, {2,2,4,"interleaved"}, {2,1,1,"1f1b"}}) {
      const PlanRequest request = request_for(machine_beside(kMuch, 0, link), ranks, kMuch, {"model.layers=6"});
      const ExactSetting setting = exact_setting(request);
      WayTables tables(setting, 1);
      const int64_t dp = ranks / pp;
      OuterWay way{.pp = pp, .micro_batches = micro_batches, .schedule = schedule, .virtual_stages = std::string_view(schedule) == "interleaved" ? 3 : 1, .inner = {.dp = dp, .rows = 16 / micro_batches / dp, .recompute = recompute, .keep = keep}};
      const std::optional<StageProblem> problem = tables.problem_of(way);
      ASSERT_TRUE(problem) << tables.pricer().refusal();
      const auto cut = best_cut(*problem);
      ASSERT_TRUE(cut);
      const Compiled compiled = compiled_way(request, setting, way, *cut);
      const WayCost cost = cost_of(compiled);
      const double by_tables = static_cast<double>(price_of_cut(*problem, *cut).total) * 1e-12;
      printf("%g %s %s pp %d ranks %d mb %d %s: tables/virtual time %.3f; device %.3f host %.3f exposed %.3f of %.3f ms in %.3f\n", link, std::string(to_string(keep)).c_str(), recompute, pp, ranks, micro_batches, schedule, by_tables / cost.step_s,
        double(std::ranges::max(bytes_of_crews(*problem, *cut))) / double(cost.most_bytes()), double(std::ranges::max(bytes_elsewhere(*problem, *cut, Tier::kHost))) / double(cost.most_bytes_of(&WayCost::Memory::host)),
        cost.tiers_exposed_s*1e3, cost.tiers_s*1e3, cost.step_s*1e3);
      }
    }
  }
  }
}

}  // namespace
}  // namespace trireme::plan_keep_test
