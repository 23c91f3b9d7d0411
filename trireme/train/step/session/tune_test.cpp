#include "trireme/train/step/session/tune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <cmath>
#include <functional>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/session/session.h"

namespace trireme::tune_test {
namespace {

using testing::HasSubstr;

constexpr const char* kWork = "f32:256x256x256:nn";

// A product that is large enough to be measured: on two ranks each has a half of its rows.
Graph product_graph(int64_t rows) {
  Graph graph("product");
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {rows, 256}}, Role::kData));
  const Tensor w(graph, graph.add_input("w", {DType::kF32, {256, 256}}, Role::kData));
  graph.add_output("y", matmul(x, w).id());
  return graph;
}

std::shared_ptr<const Tuning> told(const std::string& way) {
  return std::make_shared<const Tuning>(Tuning{cpu_device().tuned_as(), {{kWork, way}}});
}

Session session_by(std::shared_ptr<const Tuning> tuning, const std::string& setting = "off") {
  return Session(product_graph(256), std::nullopt, {.tuning = setting, .compile = {.tuning = std::move(tuning)}});
}

std::string kernel_of(const Session& session) {
  for (const Action& action : session.plan().actions) {
    if (action.op->name == "matmul") return std::string(action.kernel.view());
  }
  return "";
}

std::string refusal_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.text();
  }
  return "nothing was refused";
}

std::vector<float> result_of(Session& session) {
  for (const char* name : {"x", "w"}) {
    float value = -1;
    for (float& x : session.step().input(name).as<float>()) x = std::sin(value += 0.37F);
  }
  session.step().run();
  const auto y = session.step().output("y").as<float>();
  return {y.begin(), y.end()};
}

TEST(Tune, a_plan_names_the_kernel_that_was_found_to_be_the_quickest) {
  Session by_sgemm = session_by(told("sgemm"));
  Session by_blocks = session_by(told("blocks"));
  EXPECT_EQ(kernel_of(by_sgemm), "matmul.sgemm");
  EXPECT_EQ(kernel_of(by_blocks), "matmul.blocks");
  EXPECT_NE(hash(by_sgemm.plan()), hash(by_blocks.plan()));
  const std::vector<float> a = result_of(by_sgemm);
  const std::vector<float> b = result_of(by_blocks);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4F) << i;
}

TEST(Tune, a_way_that_there_is_not_or_that_promises_other_bits_is_not_taken) {
  EXPECT_EQ(kernel_of(session_by(told("magic"))), "matmul.sgemm");
  EXPECT_EQ(kernel_of(session_by(told("leaves"))), "matmul.sgemm");
}

TEST(Tune, what_is_measured_is_kept_and_the_next_job_goes_by_it) {
  const TempDirectory folder;
  const std::string file = folder / "tuning";
  const Session first = session_by(known_tuning(file, cpu_device()), file);
  const Tuning kept = read_tuning(file, cpu_device().tuned_as());
  ASSERT_TRUE(kept.ways.contains(kWork));
  EXPECT_EQ(kernel_of(first), "matmul." + kept.ways.at(kWork));
  const std::string text = read_file(file);
  const Session second = session_by(known_tuning(file, cpu_device()), file);
  EXPECT_EQ(hash(second.plan()), hash(first.plan()));
  EXPECT_EQ(read_file(file), text);
}

TEST(Tune, ranks_go_by_the_first_ones_tuning) {
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const auto agreed = agreed_tuning(told(world.rank() == 0 ? "blocks" : "sgemm"), &world);
    EXPECT_EQ(agreed->ways.at(kWork), "blocks");
    // Neither has measured: the first rank does.
    const TempDirectory folder;  // each has its own, and rank 1 writes nothing into it
    const std::string file = folder / "tuning";
    Session session(product_graph(512), std::nullopt,
                    {.world = &world, .tuning = file, .compile = {.tuning = known_tuning(file, cpu_device())}});
    EXPECT_EQ(is_file(file), world.rank() == 0);
    EXPECT_NE(kernel_of(session), "");
  });
}

// Two ranks of two threads each: four compute at a time.
TEST(Tune, is_measured_by_as_many_threads_as_compute_on_a_host) {
  const TempDirectory folder;
  const std::string file = folder / "tuning";
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    ThreadPool pool(2);
    const auto known = [&](int busy) { return known_tuning(file, cpu_device(), busy); };
    const Session first(
        product_graph(512), std::nullopt,
        {.world = &world, .pool = &pool, .tuning = file, .compile = {.ranks = 2, .threads = 2, .tuning = known(4)}});
    world.all().barrier().wait();
    const Tuning kept = read_tuning(file, cpu_device().tuned_as());
    ASSERT_TRUE(kept.ways.contains(work_among(kWork, 4))) << to_string(kept);
    EXPECT_FALSE(kept.ways.contains(kWork));
    EXPECT_EQ(kernel_of(first), "matmul." + *known(4)->way_of(kWork));
    EXPECT_EQ(known(2)->way_of(kWork), nullptr);
  });
}

// Of two hosts one may have no folder for it; both take part where their job measures.
TEST(Tune, without_a_folder_to_keep_it_in_a_job_takes_the_usual_kernels) {
  const std::string cache = std::getenv("XDG_CACHE_HOME") ? std::getenv("XDG_CACHE_HOME") : "";
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  EXPECT_EQ(TuningPlace("auto").file("a machine"), "");
  const auto known = known_tuning("auto", cpu_device());
  ASSERT_NE(known, nullptr);
  EXPECT_THAT(known->ways, testing::IsEmpty());
  EXPECT_EQ(kernel_of(session_by(known, "auto")), "matmul.sgemm");
  if (!cache.empty()) setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST(Tune, is_off_where_it_is_said_and_a_file_that_cannot_be_kept_is_refused) {
  EXPECT_EQ(TuningPlace("off").file("a machine"), "");
  EXPECT_EQ(known_tuning("off", cpu_device()), nullptr);
  const TempDirectory folder;
  atomic_write(folder / "plain", "");
  EXPECT_THAT(refusal_of([&] { session_by(told("sgemm"), folder / "plain/below"); }), "nothing was refused");
  EXPECT_THAT(refusal_of([&] {
                session_by(std::make_shared<const Tuning>(Tuning{cpu_device().tuned_as(), {}}), folder / "plain/below");
              }),
              HasSubstr("plain"));
  EXPECT_THAT(refusal_of([&] { known_tuning(folder / "plain", cpu_device()); }),
              HasSubstr("remove it, and it is measured again"));
}

}  // namespace
}  // namespace trireme::tune_test
