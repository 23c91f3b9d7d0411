// Training on real data: the digits and the text of examples/data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "tests/worst.h"
#include "trireme/base/rng.h"
#include "trireme/comm/comm.h"
#include "trireme/data/batches.h"
#include "trireme/data/source.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/learning_rate.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/session.h"

namespace trireme::data_test {
namespace {

const std::string kData = std::string(TRIREME_SOURCE_DIR) + "/examples/data/";

struct Task {
  std::function<std::unique_ptr<nn::Module>()> model;
  data::Split data;
  AdamW optimizer;
  Schedule schedule;
  double clip_norm = 0;
  int64_t steps = 0;
  int64_t batch = 0;           // of all ranks
  int64_t held_out_batch = 0;  // divides the held-out samples, or leaves out the rest
  bool classes = false;        // one answer a sample, which can be counted
};

struct Outcome {
  std::vector<double> losses;  // of every step
  double held_out_loss = 0;
  double accuracy = 0;
};

std::vector<BatchField> fields_of(const data::Source& source, int64_t batch) {
  std::vector<BatchField> out;
  for (const data::FieldSpec& field : source.fields()) {
    Shape shape{batch};
    for (const int64_t size : field.sample.shape) shape.push_back(size);
    out.push_back({field.name, {field.sample.dtype, shape}});
  }
  return out;
}

// The rows of the batches that the executor's rank wants, and where they go.
struct Feed {
  Feed(const data::SourcePtr& source, const Executor& executor, int64_t batch, bool shuffle)
      : batches(source, {.global_batch = batch, .seed = 1, .shuffle = shuffle, .slices = slices(*source, executor)}) {
    for (const data::FieldSpec& field : source->fields()) views.push_back(executor.input(field.name));
  }
  static std::vector<data::FieldSlice> slices(const data::Source& source, const Executor& executor) {
    const Box box = executor.input_box(source.fields()[0].name);
    return data::row_slices(source, box.start[0], box.start[0] + box.size[0]);
  }
  void read(int64_t step) const { batches.read(step, views); }

  data::Batches batches;
  std::vector<View> views;
};

// Moves each weight to the f32 number above or below it.
void round_weights_at_random(Session& session, int64_t step) {
  uint64_t tensor = 0;
  for (const PlanInput& input : session.persistent()) {
    if (input.role != Role::kParameter) continue;
    uint64_t at = 0;
    for (float& weight : session.step().input(input.name).as<float>()) {
      const bool up = random_bits({static_cast<uint64_t>(step), tensor}, at++, 0) % 2 == 0;
      weight = std::nextafter(weight, up ? INFINITY : -INFINITY);
    }
    ++tensor;
  }
}

void evaluate(Session& session, const Task& task, Outcome& out) {
  const Feed feed(task.data.validation, session.evaluation(), task.held_out_batch, false);
  const int64_t batches = task.data.validation->size() / task.held_out_batch;
  double correct = 0;
  for (int64_t i = 0; i < batches; ++i) {
    feed.read(i);
    session.evaluation().run();
    out.held_out_loss += session.evaluation().output("loss").as<float>()[0] / static_cast<double>(batches);
    if (task.classes) correct += session.evaluation().output("correct").as<float>()[0];
  }
  out.accuracy = correct / static_cast<double>(batches * task.held_out_batch);
}

Outcome train(const Task& task, comm::World* world, bool perturbed = false) {
  const std::unique_ptr<nn::Module> model = task.model();
  const ModelFn forward = [&](const Tensor& x) { return (*model)(x); };
  const LossFn loss = [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
  Session session(
      training_step(forward, loss, fields_of(*task.data.train, task.batch), task.optimizer,
                    {.clip_norm = task.clip_norm}),
      evaluation(forward, loss, fields_of(*task.data.validation, task.held_out_batch), {.accuracy = task.classes}),
      {.world = world, .seed = 1});
  session.initialise();
  const Feed feed(task.data.train, session.step(), task.batch, true);
  Outcome out;
  for (int64_t step = 1; step <= task.steps; ++step) {
    if (perturbed) round_weights_at_random(session, step);
    feed.read(step - 1);
    session.step().input("lr").as<float>()[0] =
        static_cast<float>(rate_at(task.schedule, task.optimizer.lr, step, task.steps));
    session.step().input("step").as<int64_t>()[0] = step;
    session.step().run();
    out.losses.push_back(session.step().output("loss").as<float>()[0]);
  }
  evaluate(session, task, out);
  return out;
}

Outcome train_on(const Task& task, int ranks) {
  Outcome of_rank_0;
  comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
    Outcome mine = train(task, &world);
    if (world.rank() == 0) of_rank_0 = std::move(mine);
  });
  return of_rank_0;
}

double rms_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

Task digits(std::function<std::unique_ptr<nn::Module>()> model, int64_t steps, double lr) {
  const data::SourcePtr all = data::idx(kData + "digits-images-idx3-ubyte.gz", kData + "digits-labels-idx1-ubyte.gz",
                                        {.mean = 0.2249F, .std = 0.3502F});
  return {.model = std::move(model),
          .data = data::split(all, 300, 1),
          .optimizer = {.lr = lr},
          .schedule = {.kind = Schedule::Kind::kCosine, .warmup_steps = 20, .final_ratio = 0},
          .steps = steps,
          .batch = 48,
          .held_out_batch = 300,
          .classes = true};
}

// How far apart two runs of a task may be that round differently: the sums over the batch are added
// up in another order on each number of ranks, so every step changes every weight by a few
// roundings (of its gradient, of both moments and of their quotient) beside the one of the weight
// itself. What one rounding of every weight at every step does to the losses is measured; the
// losses themselves are rounded once more.
struct Bound {
  double losses = 0;  // root of the mean square over the steps
  double held_out_loss = 0;
};

Bound rounding_bound(const Outcome& exact, const Outcome& perturbed) {
  constexpr double kRoundings = 5;
  const double of_loss = 0x1p-24 * *std::max_element(exact.losses.begin(), exact.losses.end());
  const double losses = kRoundings * (rms_difference(perturbed.losses, exact.losses) + of_loss);
  // The held-out loss is one number, and chance can make one difference small: the losses'
  // differences bound it too.
  return {losses, testing_support::worse(losses, kRoundings * std::abs(perturbed.held_out_loss - exact.held_out_loss))};
}

void check_digits(const Task& task, double accuracy) {
  const Outcome one = train(task, nullptr);
  EXPECT_GE(one.accuracy, accuracy);
  const Bound bound = rounding_bound(one, train(task, nullptr, true));
  EXPECT_LT(bound.held_out_loss, 0.05 * one.held_out_loss) << "a bound that anything would keep";
  for (const int ranks : {2, 4}) {
    const Outcome many = train_on(task, ranks);
    EXPECT_GE(many.accuracy, accuracy) << ranks << " ranks";
    EXPECT_LE(rms_difference(many.losses, one.losses), bound.losses) << ranks << " ranks";
    EXPECT_NEAR(many.held_out_loss, one.held_out_loss, bound.held_out_loss) << ranks << " ranks";
  }
}

TEST(Digits, an_mlp_knows_95_of_100_on_1_2_and_4_ranks) {
  check_digits(digits(
                   [] {
                     return std::make_unique<nn::Mlp>(std::vector<int64_t>{784, 128, 64, 10});
                   },
                   300, 4e-3),
               0.95);
}

TEST(Digits, a_lenet_knows_95_of_100_on_1_2_and_4_ranks) {
  check_digits(digits([] { return std::make_unique<nn::LeNet>(); }, 200, 1e-3), 0.95);
}

TEST(Text, a_gpt_on_2_ranks_learns_a_novel_to_21_tenths_of_a_nat_per_byte) {
  const nn::GptConfig config{.vocabulary = data::kByteVocabulary, .context = 64, .layers = 2, .width = 96, .heads = 4};
  const Task task{
      .model = [&] { return std::make_unique<nn::Gpt>(config); },
      .data = data::split_fraction(data::text({kData + "northanger_abbey.txt"}, {.seq = config.context}), 0.1),
      .optimizer = {.lr = 4e-3, .beta2 = 0.99, .weight_decay = 0.1},
      .schedule = {.kind = Schedule::Kind::kCosine, .warmup_steps = 50, .final_ratio = 0.05},
      .clip_norm = 1,
      .steps = 400,
      .batch = 16,
      .held_out_batch = 32};
  const Outcome out = train_on(task, 2);
  EXPECT_LE(out.held_out_loss, 2.1);
  EXPECT_GT(out.held_out_loss, 1) << "nothing learns it so well so soon";
}

}  // namespace
}  // namespace trireme::data_test
