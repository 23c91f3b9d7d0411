// A trained model predicts on ranks what it predicts on one, however they share it (contracts 9.6.6 and 22.3.3).
#include "trireme/train/infer/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tests/multi/loss_curve.h"
#include "tests/multi/small_graphs.h"
#include "trireme/base/file.h"
#include "trireme/nn/models/resnet.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme::trained_model_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr int64_t kRows = 8;

struct Net : nn::Module {
  Net() {
    up.shard("[dp, -], [tp, -]");
    down.shard("[dp, tp], [-, tp]");
    up.pipeline_stage(0);
    down.pipeline_stage(1);
  }
  Tensor forward(const Tensor& x) override { return down(relu(up(x))); }
  nn::Linear up{12, 16, {.name = "up"}}, down{16, 10, {.name = "down"}};
};

using MakeModel = std::function<std::shared_ptr<nn::Module>()>;

ModelFn call_of(const std::shared_ptr<nn::Module>& model) {
  return [model](const Tensor& x) { return (*model)(x); };
}

// Trained for some steps on one rank.
struct Trained {
  MakeModel make;
  std::vector<BatchField> batch;
  TempDirectory folder;

  Trained(MakeModel model, const Shape& row) : make(std::move(model)) {
    Shape shape{kRows};
    for (int i = 0; i < row.rank(); ++i) shape.push_back(row[i]);
    batch = {{"x", {DType::kF32, shape}}, {"y", {DType::kI32, {kRows}}}};
    Session session(training_step(call_of(make()), class_loss(), batch, Sgd{}, {.name = "net"}), std::nullopt,
                    {.seed = 5});
    session.initialise();
    for (int64_t step = 1; step <= 3; ++step) train_step(session, step, 0.1F);
    save_session(session, nullptr, {.root = folder.path(), .step = 3});
  }
  ckpt::Reader checkpoint() const { return ckpt::Reader(folder.path()); }

  std::vector<HostTensor> fields() const {
    std::vector<HostTensor> out;
    for (const BatchField& field : batch) out.emplace_back(field.type);
    float next = 0;
    for (float& value : out[0].as<float>()) value = std::sin(next += 0.7F);
    return out;
  }
  std::vector<float> predicted(const TrainerOptions& options, comm::World* world) const {
    Predictor predictor(call_of(make()), batch, checkpoint(), options, world, nullptr);
    std::vector<View> views;
    const std::vector<HostTensor> given = fields();
    for (const HostTensor& field : given) views.push_back(field.view());
    predictor.run(views);
    const HostPiece out = predictor.prediction();
    EXPECT_EQ(out.view.type.shape, (Shape{kRows, 10}));
    return {out.as<float>().begin(), out.as<float>().end()};
  }
  void expect_the_same(int ranks, const TrainerOptions& options) const {
    const std::vector<float> one = predicted({}, nullptr);
    std::mutex mutex;
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) {
      const std::vector<float> here = predicted(options, &world);
      const std::lock_guard lock(mutex);
      EXPECT_LT(worst_difference(here, one), 1e-5) << "rank " << world.rank() << " of " << ranks;
    });
  }
};

Trained trained_net() {
  return {[] { return std::make_shared<Net>(); }, Shape{12}};
}

TEST(Predictor, contracts_22_3_3_ranks_predict_what_one_does_however_they_share_the_model) {
  const Trained net = trained_net();
  net.expect_the_same(2, {});
  net.expect_the_same(4, {.mode = Mode::kSemiAuto, .parallel = {.mesh = "dp=2,tp=2"}});
  net.expect_the_same(4, {.mode = Mode::kSemiAuto, .parallel = {.mesh = "dp=1,tp=4", .optimizer = {.level = 3}}});
  net.expect_the_same(4, {.mode = Mode::kAuto, .parallel = {.mesh = "dp=2,tp=2"}});
}

TEST(Predictor, contracts_9_6_6_all_ranks_of_a_pipeline_have_the_prediction_of_one_micro_batch_or_several) {
  const Trained net = trained_net();
  net.expect_the_same(2, {.parallel = {.pipeline = {.crews = 2}}});
  net.expect_the_same(4, {.mode = Mode::kSemiAuto, .parallel = {.mesh = "dp=1,tp=2", .pipeline = {.crews = 2}}});
  net.expect_the_same(2, {.parallel = {.accumulation = 4, .pipeline = {.crews = 2, .schedule = "gpipe"}}});
}

TEST(Predictor, reads_running_statistics) {
  const MakeModel resnet = [] {
    return std::make_shared<nn::ResNet>(nn::ResNetConfig{.blocks = {1, 1}, .width = 4, .classes = 10});
  };
  const Trained net(resnet, {32, 32, 3});
  net.expect_the_same(2, {});
}

TEST(Predictor, refuses_what_it_cannot_predict_by) {
  const Trained net = trained_net();
  EXPECT_THAT(
      error_of([&] { net.predicted({.mode = Mode::kHybrid}, nullptr); }),
      HasSubstr("predictor: in mode hybrid_parallel, and with layerwise parameters, the model's own code cuts"));
  Predictor predictor(call_of(net.make()), net.batch, net.checkpoint(), {}, nullptr, nullptr);
  std::vector<HostTensor> fields = net.fields();
  EXPECT_THAT(error_of([&] { predictor.run(std::vector<View>{fields[0].view()}); }),
              HasSubstr("predictor: 1 fields; the batch has 2"));
  const HostTensor other(TensorType{DType::kF32, {kRows, 11}});
  EXPECT_THAT(error_of([&] {
                predictor.run(std::vector<View>{other.view(), fields[1].view()});
              }),
              HasSubstr("predictor: 'x' is f32[8,11]; it was said to be f32[8,12]"));
  const ModelFn more = [](const Tensor& x) {
    nn::Linear up{12, 16, {.name = "up"}}, down{16, 9, {.name = "down"}};
    return down(relu(up(x)));
  };
  EXPECT_THAT(error_of([&] { Predictor(more, net.batch, net.checkpoint(), {}, nullptr, nullptr); }),
              HasSubstr("'down.weight'"));
}

}  // namespace
}  // namespace trireme::trained_model_test
