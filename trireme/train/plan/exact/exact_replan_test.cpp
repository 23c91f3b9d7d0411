// Planning again with the tables of a plan before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/mesh/machine.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/exact/exact_certificate.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/parts/priced_tables.h"

namespace trireme::exact_replan_test {
namespace {

PlanRequest request_of(const std::vector<std::string>& keys = {}) {
  PlanRequest out{.ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 5};
  set_published_model(out.job, "gpt2");
  set_keys(out.job,
           {"model.layers=4", "model.width=64", "model.heads=4", "data.seq=32", "train.batch=16", "data.validation=0"});
  set_keys(out.job, keys);
  return out;
}

// A mixture whose groups are of its batch, so that a pipeline runs its micro-batches in turn.
PlanRequest mixture_of(int64_t batch) {
  PlanRequest out{.ranks = 4, .memory_bytes = int64_t{1} << 34, .top = 5};
  set_published_model(out.job, "deepseek-v2-lite");
  set_keys(out.job, {"model.layers=3", "model.dense_layers=1", "model.width=64", "model.heads=4", "model.key_rank=16",
                     "model.head_size=16", "model.rotary_size=8", "model.value_size=16", "model.mlp_width=96",
                     "model.experts=4", "model.shared_experts=1", "model.expert_width=32", "model.top_k=2",
                     "model.vocabulary=128", "data.seq=32", "data.validation=0", "model.aux_loss_factor=0",
                     "train.batch=" + std::to_string(batch), "model.expert_groups=" + std::to_string(batch)});
  return out;
}

std::string proof_of(const ExactPlan& plan, const PlanRequest& request) {
  return to_string(certificate_of(plan, request));
}

// As planning it alone gives it, in its proof and all that is said, but for what was compiled.
ExactPlan expect_as_alone(PlanRequest request, PricedTables& tables) {
  ExactPlan alone = plan_exact(request);
  request.tables = &tables;
  const ExactPlan out = plan_exact(request);
  EXPECT_EQ(proof_of(out, request), proof_of(alone, request));
  EXPECT_EQ(out.first_refusal, alone.first_refusal);
  EXPECT_LT(out.jobs_compiled, alone.jobs_compiled);
  alone.jobs_compiled = out.jobs_compiled;
  alone.tables_reused = out.tables_reused;
  EXPECT_EQ(exact_text(out, request.ranks, 512, "tokens"), exact_text(alone, request.ranks, 512, "tokens"));
  return out;
}

TEST(ExactReplan, of_the_same_job_compiles_nothing) {
  PricedTables tables;
  PlanRequest request = request_of();
  request.tables = &tables;
  const ExactPlan first = plan_exact(request);
  EXPECT_GT(first.jobs_compiled, 0);
  EXPECT_EQ(first.tables_reused, 0);
  auto read = parse_priced_tables(to_string(tables));  // as from a file
  ASSERT_EQ(read, tables);
  const ExactPlan again = expect_as_alone(request_of(), *read);
  EXPECT_EQ(again.jobs_compiled, 0);
  EXPECT_GT(again.tables_reused, 0);
  EXPECT_EQ(*read, tables);  // none was added
}

TEST(ExactReplan, with_other_memory_ranks_batch_or_layers_takes_the_tables_that_it_asks_for) {
  PricedTables tables;
  PlanRequest request = request_of();
  request.tables = &tables;
  plan_exact(request);
  const size_t keys = tables.by_key.size();
  PlanRequest changed = request_of();
  changed.memory_bytes = 2'000'000;
  EXPECT_GT(expect_as_alone(changed, tables).tables_reused, 0);
  changed = request_of();
  changed.ranks = 8;
  EXPECT_GT(expect_as_alone(changed, tables).tables_reused, 0);
  EXPECT_GT(expect_as_alone(request_of({"train.batch=24"}), tables).tables_reused, 0);
  EXPECT_GT(expect_as_alone(request_of({"model.layers=6"}), tables).tables_reused, 0);
  EXPECT_EQ(tables.by_key.size(), keys);
}

TEST(ExactReplan, of_a_mixture_with_another_batch_takes_tables_where_groups_are_as_large) {
  PricedTables tables;
  PlanRequest request = mixture_of(16);
  request.tables = &tables;
  plan_exact(request);
  EXPECT_GT(expect_as_alone(mixture_of(32), tables).tables_reused, 0);
  const size_t keys = tables.by_key.size();
  PlanRequest smaller = mixture_of(32);
  set_keys(smaller.job, {"model.expert_groups=64"});
  smaller.tables = &tables;
  EXPECT_EQ(plan_exact(smaller).tables_reused, 0);
  EXPECT_EQ(tables.by_key.size(), keys + 1);
}

// Whatever changes a price changes the key.
TEST(ExactReplan, of_another_job_takes_nothing) {
  PricedTables tables;
  PlanRequest request = request_of();
  request.tables = &tables;
  plan_exact(request);
  for (const char* key : {"model.width=128", "data.seq=64", "train.dtype=bf16", "train.optimizer=sgd", "train.clip=0",
                          "model.dropout=0.1"}) {
    PlanRequest other = request_of({key});
    other.tables = &tables;
    EXPECT_EQ(plan_exact(other).tables_reused, 0) << key;
  }
  PlanRequest other = request_of();
  other.threads = 2;
  other.tables = &tables;
  EXPECT_EQ(plan_exact(other).tables_reused, 0);
}

TEST(ExactReplan, on_a_machine_with_other_memory_alone_takes_all_tables) {
  const TempDirectory folder;
  const std::string file = folder / "machine.toml";
  const auto write = [&](const std::function<void(Machine&)>& change) {
    Machine machine{.name = "m",
                    .devices_per_host = 8,
                    .memory_bytes = int64_t{1} << 34,
                    .memory_bytes_per_s = 1e12,
                    .flops_per_s = {{"f32", 1e13}}};
    machine.levels = {{"host", 8, 1e-6, 1e11}};
    change(machine);
    atomic_write(file, to_string(machine));
  };
  PlanRequest request = request_of({"parallel.machine=" + file, "train.device=described:" + file});
  request.memory_bytes = 0;
  PricedTables tables;
  request.tables = &tables;
  write([](Machine&) {});
  plan_exact(request);
  write([](Machine& machine) { machine.memory_bytes *= 2; });
  const ExactPlan larger = plan_exact(request);
  EXPECT_EQ(larger.memory_bytes, int64_t{1} << 35);
  EXPECT_EQ(larger.jobs_compiled, 0);
  EXPECT_GT(larger.tables_reused, 0);
  write([](Machine& machine) { machine.levels[0].bytes_per_s /= 2; });
  EXPECT_EQ(plan_exact(request).tables_reused, 0);
}

TEST(ExactReplan, with_tables_of_another_number_of_parts_is_refused) {
  PricedTables tables;
  PlanRequest request = request_of();
  request.tables = &tables;
  plan_exact(request);
  for (auto& [way, table] : tables.by_key.begin()->second) {
    if (table.prices) table.prices->parts.pop_back();
  }
  try {
    plan_exact(request);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tables: a table has 2 parts, and the model 3"));
  }
}

}  // namespace
}  // namespace trireme::exact_replan_test
