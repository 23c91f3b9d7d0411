// Models whose own code is cut by hand, trained in mode hybrid_parallel (contracts 3.3, 17.2): layerwise parameters,
// sums of gradients over the ranks that hold the same, and checkpoints of values that each rank has of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "tests/multi/loss_curve.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/step/graphs/hand_cut.h"

namespace trireme::hybrid_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

// A parameter of which each rank has the piece that `pieces` gives it.
Tensor part(const std::string& name, const Shape& shape, const std::string& pieces, int64_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  const Tensor made = nn::Trace::current().parameter(name, {DType::kF32, shape}, {Init::Kind::kUniform, -bound, bound});
  made.graph().set_piece(made.id(), pieces);
  return made;
}

// nn::Mlp({12, 16, 10}) as a rank of "dp=...,tp=2" computes it: Megatron-LM's pair of products, with the sum over tp in
// the model's code.
Tensor hand_mlp(const Tensor& x, const Mesh& mesh) {
  const Tensor up = part("layers.0.weight", {8, 12}, "[tp, -]", 12);
  const Tensor up_bias = part("layers.0.bias", {8}, "[tp]", 12);
  const Tensor down = part("layers.1.weight", {10, 8}, "[-, tp]", 16);
  const Tensor down_bias = part("layers.1.bias", {10}, "", 16);
  const Tensor h = relu(add(matmul(x, up, false, true), up_bias));
  const Tensor y = matmul(h, down, false, true);
  return add(all_reduce({&y, 1}, over_axes(mesh, "tp"))[0], down_bias);
}

// A parameter, of each rank's own where it is layerwise.
struct Vector : nn::Module {
  Vector(const std::string& name, Shape of_shape) : Module(name), shape(of_shape) {}
  Tensor value(std::string_view name) const {
    return parameter(name, {DType::kF32, shape}, {Init::Kind::kUniform, -1, 1});
  }
  Shape shape;
};

Curve train(const Graph& graph, comm::World* world, const Parallel& parallel) {
  Session session(graph, std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
  session.initialise();
  Curve out;
  note_start(session.step(), out);
  for (int64_t step = 1; step <= kSteps; ++step) out.losses.push_back(train_step(session, step, 0.2F));
  note_end(session.step(), out);
  return out;
}

struct How {
  std::string name;
  int ranks;
  Optimizer optimizer = Sgd{.momentum = 0.9};
  LossFn loss = class_loss();

  friend void PrintTo(const How& how, std::ostream* out) { *out << how.name; }
};

Graph hand_step(const Parallel& parallel, const How& how) {
  std::vector<BatchField> batch = mlp_batch();
  const HandCut cut = cut_by_hand(parallel, how.ranks, batch);
  return training_step([&](const Tensor& x) { return hand_mlp(x, *cut.mesh); }, how.loss, batch, how.optimizer,
                       {.name = "mlp", .clip_norm = 0.5}, cut);
}

Graph dense_step(const How& how) {
  nn::Mlp mlp({12, 16, 10});
  return training_step(mlp_model(mlp), how.loss, mlp_batch(), how.optimizer, {.name = "mlp", .clip_norm = 0.5});
}

class HandCutTraining : public testing::TestWithParam<How> {};

// Contracts 17.2 and 17.3: a product cut over two cards, with the sum in the model's code, is the dense one.
TEST_P(HandCutTraining, contracts_17_2_trains_as_the_dense_model_on_one_rank) {
  const How& how = GetParam();
  const int ranks = how.ranks;
  const Graph dense = dense_step(how);
  const Curve whole = train(dense, nullptr, {});
  const Parallel parallel{.mesh = fmt::format("dp={},tp=2", ranks / 2), .by_hand = true};
  const Graph graph = hand_step(parallel, how);
  const double share = rounding_share(dense, how.optimizer);
  EXPECT_EQ(let_pass(whole, share), "");
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    const Curve mine = train(graph, &world, parallel);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(difference_of(mine, whole, share), "") << "rank " << world.rank();
  });
}

// Of labels that are ignored ranks have different numbers.
const LossFn kSomeCount = [](const Tensor& y, const Tensor& t) {
  return cross_entropy_counted(y, t, {.ignore_index = 3});
};

INSTANTIATE_TEST_SUITE_P(Ranks, HandCutTraining,
                         testing::Values(How{"2_ranks", 2}, How{"4_ranks", 4}, How{"lamb", 4, Lamb{}},
                                         How{"labels_that_do_not_count", 4, Sgd{.momentum = 0.9}, kSomeCount}),
                         [](const auto& instance) { return instance.param.name; });

// -- values of each rank's own ----------------------------------------------------------------------------

constexpr float kRate = 0.5F;

// loss = mean(x * own) + mean(shared): the gradient of `own` is a rank's mean of x, of `shared` 1/4 on every rank.
Graph own_step(const Parallel& parallel, int64_t ranks) {
  std::vector<BatchField> batch{{"x", {DType::kF32, {8, 4}}}, {"y", {DType::kF32, {8}}}};
  const HandCut cut = cut_by_hand(parallel, ranks, batch);
  Vector own("a", {4});
  own.layerwise();
  const Vector shared("b", {4});
  const auto model = [&](const Tensor& x) {
    Tensor y;
    {
      const nn::Scope scope(own);
      y = mean(mul(x, own.value("own")));
    }
    const nn::Scope scope(shared);
    return add(y, mean(shared.value("shared")));
  };
  return training_step(
      model, [](const Tensor& y, const Tensor&) { return y; }, batch, Sgd{.momentum = 0.9}, {.name = "own"}, cut);
}

const Parallel kByHand{.by_hand = true};

std::vector<float> values_of(Session& session, const std::string& name) {
  const auto values = session.step().input(name).as<float>();
  return {values.begin(), values.end()};
}

// Contracts 3.3 and 3.4.4.
TEST(Layerwise, contracts_3_4_values_of_a_ranks_own_are_left_out_of_broadcast_and_of_sums_of_gradients) {
  const Graph graph = own_step(kByHand, 2);
  std::mutex mutex;
  std::vector<std::vector<float>> own(2), shared(2), alone(2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    const auto values = [&](bool broadcast, const std::string& name) {
      Session session(
          graph, std::nullopt,
          {.world = &world, .seed = rank + 1, .parameter_broadcast = broadcast, .compile = {.parallel = kByHand}});
      session.initialise();
      return values_of(session, name);
    };
    const std::vector<float> made = values(false, "a.own");
    const std::vector<float> kept = values(true, "a.own");
    const std::vector<float> same = values(true, "b.shared");
    const std::lock_guard lock(mutex);
    alone[rank] = made;
    own[rank] = kept;
    shared[rank] = same;
  });
  EXPECT_EQ(own, alone);
  EXPECT_NE(own[0], own[1]);
  EXPECT_EQ(shared[0], shared[1]);
}

TEST(Layerwise, contracts_3_3_each_rank_steps_along_its_own_gradient) {
  const Graph graph = own_step(kByHand, 2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 7, .compile = {.parallel = kByHand}});
    session.initialise();
    const std::vector<float> own = values_of(session, "a.own");
    const std::vector<float> shared = values_of(session, "b.shared");
    Executor& executor = session.step();
    for (float& x : executor.input("x").as<float>()) x = static_cast<float>(world.rank() + 1);
    executor.input("lr").as<float>()[0] = kRate;
    executor.input("step").as<int64_t>()[0] = 1;
    executor.run();
    // Half the rank's own mean of x over the 4 columns; the shared one's two halves of 1/4.
    const float own_gradient = 0.5F * 0.25F * static_cast<float>(world.rank() + 1);
    for (size_t i = 0; i < own.size(); ++i) {
      EXPECT_FLOAT_EQ(values_of(session, "a.own")[i], own[i] - kRate * own_gradient);
      EXPECT_FLOAT_EQ(values_of(session, "b.shared")[i], shared[i] - kRate * 0.25F);
    }
  });
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "trireme_hybrid_XXXXXX") {
    require(mkdtemp(path_.data()) != nullptr, "no folder '{}'", path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What ranks that load the checkpoint have of `name`, or the error.
struct Loaded {
  std::vector<std::vector<float>> values;
  std::string error;
};

Loaded load_on(int ranks, const Graph& graph, const Parallel& parallel, const std::string& folder,
               const std::string& name) {
  Loaded out;
  out.values.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 2, .compile = {.parallel = parallel}});
    session.initialise();
    std::string error;
    try {
      load_session(session, ckpt::Reader(folder));
    } catch (const Error& e) {
      error = e.text();
    }
    const std::lock_guard lock(mutex);
    out.values[static_cast<size_t>(world.rank())] = values_of(session, name);
    out.error = error;
  });
  return out;
}

TEST(Layerwise, a_checkpoint_keeps_each_ranks_own_and_says_so) {
  const Folder folder;
  const Graph graph = own_step(kByHand, 2);
  std::mutex mutex;
  std::vector<std::vector<float>> saved(2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Session session(graph, std::nullopt, {.world = &world, .seed = 7, .compile = {.parallel = kByHand}});
    session.initialise();
    save_session(session, &world, {.root = folder.path(), .step = 1});
    const std::lock_guard lock(mutex);
    saved[static_cast<size_t>(world.rank())] = values_of(session, "a.own");
  });
  const ckpt::Reader reader(folder.path());
  EXPECT_EQ(reader.meta().at("own_values_of_ranks"), "a.own,a.own.velocity");

  const Loaded same = load_on(2, graph, kByHand, folder.path(), "a.own");
  EXPECT_EQ(same.error, "");
  EXPECT_EQ(same.values, saved);

  const Loaded more = load_on(4, own_step(kByHand, 4), kByHand, folder.path(), "a.own");
  EXPECT_THAT(more.error, HasSubstr("tensor 'a.own' is 2 ranks' own values in checkpoint"));
  EXPECT_THAT(more.error,
              HasSubstr("go on with 2 ranks and the same layerwise parameters, or say how the pieces join, as in "
                        "parallel.layerwise = [\"a.own = [dp, -]\"]"));
}

// Pieces that were each rank's own, along the other dimension of a tensor, and how a job that is told so has them.
TEST(Layerwise, pieces_are_joined_as_a_job_of_another_size_says) {
  const Folder folder;
  const auto graph_of = [](const Parallel& parallel, int64_t ranks, int64_t columns) {
    std::vector<BatchField> batch{{"x", {DType::kF32, {8, columns}}}, {"y", {DType::kF32, {8}}}};
    const HandCut cut = cut_by_hand(parallel, ranks, batch);
    const Vector part("a", {3, columns});
    return training_step(
        [&](const Tensor& x) {
          const nn::Scope scope(part);
          return mean(matmul(x, part.value("w"), false, true));
        },
        [](const Tensor& y, const Tensor&) { return y; }, batch, Sgd{.momentum = 0}, {.name = "own"}, cut);
  };
  const auto rules = [](const Piece& piece) { return std::vector<PieceRule>{{"a.*", piece}}; };
  const Parallel own{.by_hand = true, .layerwise = rules(kOwnPiece)};
  const Graph saved_graph = graph_of(own, 2, 4);
  std::mutex mutex;
  std::vector<std::vector<float>> saved(2);
  comm::spawn_ranks(2, "threads", [&](comm::World& world) {
    Session session(saved_graph, std::nullopt, {.world = &world, .seed = 7, .compile = {.parallel = own}});
    session.initialise();
    save_session(session, &world, {.root = folder.path(), .step = 1});
    const std::lock_guard lock(mutex);
    saved[static_cast<size_t>(world.rank())] = values_of(session, "a.w");
  });
  const Parallel told{.by_hand = true, .layerwise = rules("[-, dp]")};
  const Loaded loaded = load_on(4, graph_of(told, 4, 2), told, folder.path(), "a.w");
  EXPECT_EQ(loaded.error, "");
  for (size_t rank = 0; rank < 4; ++rank) {
    for (size_t row = 0; row < 3; ++row) {
      for (size_t column = 0; column < 2; ++column) {
        const size_t at = 2 * rank + column;  // of the whole's 8 columns
        EXPECT_EQ(loaded.values[rank][row * 2 + column], saved[at / 4][row * 4 + at % 4]);
      }
    }
  }
  const Loaded wrong = load_on(4, graph_of({.by_hand = true, .layerwise = rules("[dp, -]")}, 4, 2),
                               {.by_hand = true, .layerwise = rules("[dp, -]")}, folder.path(), "a.w");
  EXPECT_THAT(wrong.error, HasSubstr("which are not pieces of the f32[12,2] that this job has along one dimension"));
}

std::string step_error(const Parallel& parallel) {
  try {
    own_step(parallel, 2);
  } catch (const Error& e) {
    return e.text();
  }
  return "none";
}

TEST(Layerwise, rules_that_cannot_be_are_refused) {
  EXPECT_EQ(step_error({.by_hand = true, .layerwise = {{"b.sharde", kOwnPiece}}}),
            "layerwise rule 'b.sharde' matches no parameter. Did you mean 'b.shared'?");
  EXPECT_THAT(step_error({.by_hand = true, .layerwise = {{"b.shared", "[tp]"}}}), HasSubstr("'tp'"));
}

// -- the job's file -----------------------------------------------------------------------------------

JobConfig config_of_mode(Mode mode) {
  JobConfig config;
  set_keys(config, {"model.kind=mlp"});
  config.parallel.mode = mode;
  return config;
}

std::string config_error(const JobConfig& config) {
  try {
    parallel_of(config, 2);
  } catch (const Error& e) {
    return e.text();
  }
  return "none";
}

TEST(HybridConfig, names_layerwise_parameters_with_and_without_layouts) {
  JobConfig config = config_of_mode(Mode::kHybrid);
  config.parallel.mesh = "tp=2";
  set_keys(config, {R"(parallel.layerwise=["layers.0.* = [tp, -]", "layers.1.bias"])"});
  const Parallel parallel = parallel_of(config, 2);
  EXPECT_TRUE(parallel.by_hand);
  EXPECT_EQ(parallel.layerwise, (std::vector<PieceRule>{{"layers.0.*", "[tp, -]"}, {"layers.1.bias", kOwnPiece}}));
  EXPECT_EQ(trainer_options(config, 2).mode, Mode::kHybrid);
}

TEST(HybridConfig, what_the_compiler_would_cut_by_is_refused) {
  JobConfig config = config_of_mode(Mode::kHybrid);
  config.parallel.tp = 2;
  EXPECT_EQ(
      config_error(config),
      "configuration: parallel.tp is for parallel.mode = 'semi_auto_parallel'; the mode is 'hybrid_parallel'. Set "
      "that mode, or leave it out");
  config = config_of_mode(Mode::kHybrid);
  config.parallel.zero.level = 1;
  EXPECT_EQ(config_error(config),
            "configuration: parallel.zero = 1 slices parameters that the compiler cuts, and parallel.mode = "
            "'hybrid_parallel' "
            "leaves cutting to the model's code; use zero = 0, or another mode");
  config = config_of_mode(Mode::kSemiAuto);
  config.parallel.layerwise = {{"layers.1.bias", kOwnPiece}};
  EXPECT_EQ(
      config_error(config),
      "configuration: parallel.layerwise is for parallel.mode = 'hybrid_parallel' and 'data_parallel'; the mode is "
      "'semi_auto_parallel'");
}

}  // namespace
}  // namespace trireme::hybrid_test
