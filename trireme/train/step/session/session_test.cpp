#include "trireme/train/step/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/ops/ops.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::session_test {
namespace {

using testing::HasSubstr;

const std::vector<BatchField> kBatch{{"x", {DType::kF32, {8, 6}}}, {"y", {DType::kI32, {8}}}};

LossFn class_loss() {
  return [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
}
Graph step_graph(const Optimizer& optimizer = AdamW{}, int64_t width = 5) {
  nn::Mlp mlp({6, width, 4});
  return training_step([&](const Tensor& x) { return mlp(x); }, class_loss(), kBatch, optimizer);
}
Graph evaluation_graph() {
  nn::Mlp mlp({6, 5, 4});
  return evaluation([&](const Tensor& x) { return mlp(x); }, class_loss(), kBatch, {.accuracy = true});
}

void fill(Executor& executor) {
  for (float& x : executor.input("x").as<float>()) x = 0.25F;
  for (int32_t& y : executor.input("y").as<int32_t>()) y = 3;
}

float step(Session& session, int64_t number) {
  fill(session.step());
  session.step().input("lr").as<float>()[0] = 0.1F;
  session.step().input("step").as<int64_t>()[0] = number;
  session.step().run();
  return session.step().output("loss").as<float>()[0];
}

std::string bits(Session& session) {
  std::string out;
  for (const PlanInput& input : session.persistent()) {
    const auto raw = session.step().input(input.name).raw();
    out.append(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  return out;
}

// Runs the body as one rank without a world, or on that many.
void on_ranks(int ranks, const std::function<void(comm::World*)>& body) {
  if (ranks == 1) return body(nullptr);
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) { body(&world); });
}

class Folder {
 public:
  Folder() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / "trireme-session-XXXXXX";
};

TEST(Session, counts_the_parameters_of_the_whole_model) {
  Session session(step_graph(), std::nullopt, {});
  EXPECT_EQ(session.parameter_count(), 6 * 5 + 5 + 5 * 4 + 4);
  EXPECT_EQ(session.persistent().size(), 4U * 3);  // each with two moments
}

TEST(Session, starts_from_its_seed_whatever_the_ranks) {
  std::string one;
  Session session(step_graph(), std::nullopt, {.seed = 4});
  session.initialise();
  one = bits(session);
  on_ranks(4, [&](comm::World* world) {
    Session other(step_graph(), std::nullopt, {.world = world, .seed = 4});
    other.initialise();
    EXPECT_EQ(bits(other), one);
  });
}

TEST(Session, evaluation_runs_in_the_steps_memory_and_changes_nothing_that_is_kept) {
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [&](comm::World* world) {
      Session session(step_graph(), evaluation_graph(), {.world = world, .seed = 2});
      ASSERT_TRUE(session.has_evaluation());
      session.initialise();
      step(session, 1);
      const std::string before = bits(session);
      fill(session.evaluation());
      session.evaluation().run();
      EXPECT_EQ(bits(session), before);
      const auto step_arena = session.step().arena();
      const auto arena = session.evaluation().arena();
      EXPECT_GE(arena.data(), step_arena.data() + session.plan().arena().persistent);
      EXPECT_LE(arena.data() + arena.size(), step_arena.data() + step_arena.size());
      const float loss = session.evaluation().output("loss").as<float>()[0];
      EXPECT_EQ(loss, step(session, 2)) << "the step's loss is that of the same parameters";
    });
  }
}

TEST(Session, evaluation_counts_right_answers_over_all_ranks) {
  on_ranks(4, [&](comm::World* world) {
    Session session(step_graph(Sgd{}), evaluation_graph(), {.world = world, .seed = 2});
    session.initialise();
    for (int64_t i = 1; i <= 30; ++i) step(session, i);  // learns to answer 3
    fill(session.evaluation());
    session.evaluation().run();
    EXPECT_EQ(session.evaluation().output("correct").as<float>()[0], 8);
  });
}

TEST(Session, graphs_compiled_for_other_ranks_or_threads_than_its_own_are_refused) {
  const auto refusal = [](const Session::Options& options) -> std::string {
    try {
      Session session(step_graph(), std::nullopt, options);
    } catch (const Error& e) {
      return e.text();
    }
    return "";
  };
  ThreadPool pool(2);
  EXPECT_THAT(refusal({.compile = {.ranks = 2}}), HasSubstr("graphs compiled for 2 ranks in a world of 1"));
  EXPECT_THAT(refusal({.pool = &pool, .compile = {.threads = 3}}), HasSubstr("for 3 threads and a pool of 2"));
  EXPECT_EQ(refusal({.pool = &pool, .compile = {.threads = 2}}), "");
}

TEST(Session, each_piece_is_written_once_and_bytes_are_balanced) {
  std::mutex mutex;
  std::map<std::string, int> writers;
  std::map<int, int64_t> bytes;
  on_ranks(4, [&](comm::World* world) {
    Session session(step_graph(AdamW{}, 64), std::nullopt, {.world = world});
    const std::lock_guard lock(mutex);
    for (const PlanInput& input : session.pieces_to_write(world->rank())) {
      ++writers[input.name];
      bytes[world->rank()] += session.step().input(input.name).bytes();
    }
  });
  EXPECT_EQ(writers.size(), 12U);
  for (const auto& [name, times] : writers) EXPECT_EQ(times, 1) << name;
  int64_t most = 0;
  int64_t sum = 0;
  for (const auto& [rank, written] : bytes) {
    most = std::max(most, written);
    sum += written;
  }
  EXPECT_EQ(sum, 3 * 4 * (6 * 64 + 64 + 64 * 4 + 4));
  EXPECT_LE(most, sum / 4 + 6 * 64 * 4) << "no rank writes more than its share and one tensor";
}

class SaveAndLoad : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(SaveAndLoad, goes_on_from_the_same_bits_at_any_number_of_ranks) {
  const auto [writers, readers] = GetParam();
  const Folder folder;
  std::string saved;
  std::mutex mutex;
  on_ranks(writers, [&](comm::World* world) {
    Session session(step_graph(), std::nullopt, {.world = world, .seed = 9});
    session.initialise();
    for (int64_t i = 1; i <= 2; ++i) step(session, i);
    const std::string path =
        save_session(session, world, {.root = folder.path(), .step = 2, .seed = 9, .meta = {{"k", "v"}}});
    EXPECT_TRUE(std::filesystem::exists(path));
    const std::lock_guard lock(mutex);
    saved = bits(session);
  });
  on_ranks(readers, [&](comm::World* world) {
    Session session(step_graph(), std::nullopt, {.world = world, .seed = 1});
    session.initialise();
    const ckpt::Reader reader(folder.path());
    load_session(session, reader);
    EXPECT_EQ(bits(session), saved);
    EXPECT_EQ(reader.step(), 2);
    EXPECT_EQ(reader.meta().at("k"), "v");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SaveAndLoad, testing::Combine(testing::Values(1, 2, 4), testing::Values(1, 2, 4)),
                         [](const auto& instance) {
                           return fmt::format("from_{}_to_{}", std::get<0>(instance.param),
                                              std::get<1>(instance.param));
                         });

TEST(SaveAndLoadErrors, a_checkpoint_of_another_model_is_refused_by_name) {
  const Folder folder;
  Session session(step_graph(Sgd{}), std::nullopt, {});
  session.initialise();
  save_session(session, nullptr, {.root = folder.path(), .step = 1});
  const auto error_of = [&](const Graph& graph) -> std::string {
    Session other(graph, std::nullopt, {});
    try {
      load_session(other, ckpt::Reader(folder.path()));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(step_graph(AdamW{})), HasSubstr("layers.0.weight.m"));
  const std::string wider = error_of(step_graph(Sgd{}, 7));
  EXPECT_THAT(wider, HasSubstr("layers.0.weight"));
  EXPECT_THAT(wider, HasSubstr("[7,6]"));
  EXPECT_THAT(wider, HasSubstr("[5,6]"));
}

TEST(GatherTexts, every_rank_gets_every_text_in_order) {
  comm::spawn_ranks(3, "threads", [](comm::World& world) {
    const std::string mine(static_cast<size_t>(world.rank()) * 3, static_cast<char>('a' + world.rank()));
    EXPECT_EQ(gather_texts(world, mine), (std::vector<std::string>{"", "bbb", "cccccc"}));
  });
}

// The losses of some steps of a small GPT, its parameters and state after them, and the bytes it is planned in.
struct TrainedGpt {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> tensors;
  int64_t bytes = 0;
};

TrainedGpt train_gpt(const PassOptions& passes, DType dtype, int32_t batch_size = 4) {
  nn::Gpt gpt({.vocabulary = 64, .context = 16, .layers = 2, .width = 32, .heads = 2});
  const std::vector<BatchField> batch{{"tokens", {DType::kI32, {batch_size, 16}}},
                                      {"targets", {DType::kI32, {batch_size, 16}}}};
  Graph graph = training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), batch, AdamW{},
                              {.clip_norm = 1, .compute = dtype});
  Session session(std::move(graph), std::nullopt, {.seed = 5, .compile = {.passes = passes}});
  session.initialise();
  TrainedGpt out{.losses = {}, .tensors = {}, .bytes = session.plan().arena().bytes};
  for (int64_t number = 1; number <= 5; ++number) {
    Executor& executor = session.step();
    int32_t next = 7;
    for (const char* field : {"tokens", "targets"}) {
      for (int32_t& token : executor.input(field).as<int32_t>()) token = next = (next * 5 + 3) % 64;
    }
    executor.input("lr").as<float>()[0] = 0.01F;
    executor.input("step").as<int64_t>()[0] = number;
    executor.run();
    out.losses.push_back(executor.output("loss").as<float>()[0]);
  }
  for (const PlanInput& input : session.persistent()) {
    const auto values = session.step().input(input.name).as<float>();
    out.tensors[input.name].assign(values.begin(), values.end());
  }
  return out;
}

TEST(Session, a_gpt_learns_the_same_to_the_bit_with_fused_ops_and_takes_no_more_memory) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TrainedGpt plain = train_gpt({.disabled = {"fuse_rows"}}, dtype);
    const TrainedGpt fused = train_gpt({}, dtype);
    EXPECT_EQ(fused.losses, plain.losses) << to_string(dtype);
    EXPECT_EQ(fused.tensors, plain.tensors) << to_string(dtype);
    EXPECT_LT(plain.losses.back(), plain.losses.front());
    EXPECT_LE(fused.bytes, plain.bytes) << to_string(dtype);
  }
}

TEST(Session, a_gpt_that_recomputes_learns_the_same_to_the_bit_in_less_memory) {
  const TrainedGpt plain = train_gpt({}, DType::kF32, 64);
  const TrainedGpt recomputed = train_gpt({.recompute = {.rows = true}}, DType::kF32, 64);
  EXPECT_EQ(recomputed.losses, plain.losses);
  EXPECT_EQ(recomputed.tensors, plain.tensors);
  EXPECT_LT(recomputed.bytes, plain.bytes);
}

// The same losses, and for ten blocks the documented share of the step's memory.
TEST(
    Session,
    contracts_13_3_3_and_1_ten_blocks_that_are_computed_again_learn_the_same_to_the_bit_in_less_than_half_of_the_memory) {
  const auto of_step = [](const Recompute& recompute) {
    nn::Gpt gpt({.vocabulary = 64, .context = 64, .layers = 10, .width = 64, .heads = 4, .dropout = 0.1});
    const std::vector<BatchField> batch{{"x", {DType::kI32, {4, 64}}}, {"y", {DType::kI32, {4, 64}}}};
    const Graph graph =
        training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), batch, AdamW{}, {.seed = 3});
    const Compiled made = compile(graph, {.passes = {.recompute = recompute}});
    return static_cast<double>(made.plan().arena().bytes - made.plan().arena().persistent);
  };
  const double kept = of_step({});
  EXPECT_LE(of_step({.blocks = -1}), 0.45 * kept);
  EXPECT_LE(of_step({.rows = true}), 0.65 * kept);
  EXPECT_LT(of_step({.blocks = -1}), of_step({.blocks = 5}));
  EXPECT_LT(of_step({.blocks = 5}), 0.8 * kept);
  for (const Recompute& how : {Recompute{.blocks = -1}, Recompute{.blocks = 1},
                               Recompute{.rules = {{"h.*"}, {"h.1/gelu", Recompute::Rule::Keep::kMemory}}}}) {
    const TrainedGpt plain = train_gpt({}, DType::kF32, 8);
    const TrainedGpt again = train_gpt({.recompute = how}, DType::kF32, 8);
    EXPECT_EQ(again.losses, plain.losses);
    EXPECT_EQ(again.tensors, plain.tensors);
  }
}

TEST(Session, a_rule_for_what_is_kept_that_matches_nothing_is_refused) {
  const auto with = [](std::string pattern) {
    try {
      train_gpt({.recompute = {.rules = {{std::move(pattern)}}}}, DType::kF32, 8);
    } catch (const Error& e) {
      return std::string(e.text());
    }
    return std::string();
  };
  EXPECT_EQ(with("h.*/gelu"), "");
  EXPECT_EQ(with("h.0..1/gelu"), "");
  EXPECT_THAT(with("h.5..9"), HasSubstr("parallel.keep 'h.5..9' matches no part of the model"));
  EXPECT_THAT(with("g.*"), AllOf(HasSubstr("parallel.keep 'g.*' matches no part of the model"), HasSubstr("'h.0")));
  EXPECT_THAT(with("h.*/gel"), AllOf(HasSubstr("parallel.keep 'h.*/gel' matches no op"), HasSubstr("'gelu'")));
  EXPECT_THAT(with("h.*/gelu#1"), HasSubstr("parallel.keep 'h.*/gelu#1' names one op of several"));
}

}  // namespace
}  // namespace trireme::session_test
