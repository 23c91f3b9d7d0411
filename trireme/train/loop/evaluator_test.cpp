#include "trireme/train/loop/evaluator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/ops/ops.h"
#include "trireme/train/loop/feed.h"
#include "trireme/train/loop/trainer.h"
#include "trireme/train/step/graphs/hand_cut.h"
#include "trireme/train/step/session/session.h"

namespace trireme::evaluator_test {
namespace {

LossFn class_loss() {
  return [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
}

// A model and the samples that are held out for it.
struct Case {
  std::string name;
  ModelFn model;
  data::SourcePtr held_out;
  LossFn loss = class_loss();
};

Case images(int64_t samples) {
  return {"images",
          [net = std::make_shared<nn::Mlp>(std::vector<int64_t>{12, 8, 4})](const Tensor& x) { return (*net)(x); },
          data::synthetic_images({.samples = samples, .image = {4, 3, 1}, .classes = 4})};
}
Case tokens(int64_t samples) {
  return {"tokens",
          [net = std::make_shared<nn::Gpt>(
               nn::GptConfig{.vocabulary = 12, .context = 8, .layers = 1, .width = 8, .heads = 2})](const Tensor& x) {
            return (*net)(x);
          },
          data::synthetic_tokens({.samples = samples, .seq = 8, .vocabulary = 12})};
}

constexpr int32_t kIgnored = 2;

// Samples of which the targets from 8 to 15 are ignored, and some of the others.
class SomeIgnored final : public data::Source {
 public:
  explicit SomeIgnored(data::SourcePtr all) : all_(std::move(all)) {}
  std::vector<data::FieldSpec> fields() const override { return all_->fields(); }
  int64_t size() const override { return all_->size(); }
  void read(int64_t sample, std::span<const View> out) const override {
    all_->read(sample, out);
    if (out.back().data != nullptr && (sample / 8 == 1 || sample % 5 == 1))
      std::ranges::fill(out.back().as<int32_t>(), kIgnored);
  }

 private:
  data::SourcePtr all_;
};

Case some_ignored(Case all) {
  all.name += " of which some are ignored";
  all.held_out = std::make_shared<SomeIgnored>(all.held_out);
  all.loss = [](const Tensor& y, const Tensor& t) { return cross_entropy_counted(y, t, {.ignore_index = kIgnored}); };
  return all;
}

struct Layout {
  int ranks;
  Parallel parallel;
};

// By a session whose evaluation runs in the step's memory, as a run makes it.
EvaluationResult evaluate(const Case& what, int64_t batch, int64_t eval_batch, const Layout& how) {
  EvaluationResult out;
  std::mutex mutex;
  const auto body = [&](comm::World* world) {
    std::vector<BatchField> step_fields = batch_fields(*what.held_out, batch);
    std::vector<BatchField> fields = batch_fields(*what.held_out, eval_batch);
    const StepOptions options{.name = what.name, .accuracy = true};
    const HandCut cut = cut_by_hand(how.parallel, how.ranks, step_fields);
    cut_by_hand(how.parallel, how.ranks, fields);
    Session session(training_step(what.model, what.loss, step_fields, AdamW{}, options, cut),
                    evaluation(what.model, what.loss, fields, options, cut),
                    {.world = world, .seed = 3, .compile = {.parallel = how.parallel}});
    session.initialise();
    const Evaluator evaluator(session.evaluation(), what.held_out, eval_batch, true);
    const EvaluationResult first = evaluator.run();
    const EvaluationResult again = evaluator.run();
    const std::lock_guard lock(mutex);
    EXPECT_EQ(first.loss, again.loss);
    if (!world || world->rank() == 0) out = first;
  };
  if (how.ranks == 1) {
    body(nullptr);
  } else {
    comm::spawn_ranks(how.ranks, "threads", [&](comm::World& world) { body(&world); });
  }
  return out;
}

// All samples in one batch, on one rank.
EvaluationResult in_one_pass(const Case& what) {
  return evaluate(what, what.held_out->size(), what.held_out->size(), {.ranks = 1, .parallel = {}});
}

const std::vector<Layout> kLayouts{
    {1, {}},
    {1, {.accumulation = 4}},
    {2, {}},
    {4, {}},
    {2, {.dataset = "full_batch"}},
    {4, {.mesh = "dp=2,tp=2", .dataset = "[dp*tp]"}},
    {4, {.optimizer = {.level = 3, .threshold_kb = 0}}},
    {2, {.accumulation = 2}},
    {2, {.by_hand = true}},
};

// A mean of at most 168 losses of f32, each good to some 1e-6.
constexpr double kClose = 2e-5;

TEST(Evaluator, every_held_out_sample_counts_once_in_every_layout) {
  for (const int64_t samples : {1, 5, 16, 21}) {
    for (const Case& what :
         {images(samples), tokens(samples), some_ignored(images(samples)), some_ignored(tokens(samples))}) {
      const EvaluationResult whole = in_one_pass(what);
      EXPECT_EQ(whole.samples, samples);
      for (const Layout& how : kLayouts) {
        for (const int64_t eval_batch : {int64_t{8}, int64_t{16}, int64_t{24}}) {
          const EvaluationResult found = evaluate(what, 8, eval_batch, how);
          const std::string where = fmt::format("{} {} of batch {} on {} ranks of '{}'", samples, what.name, eval_batch,
                                                how.ranks, to_string(how.parallel.mesh));
          EXPECT_EQ(found.samples, samples) << where;
          EXPECT_NEAR(found.loss, whole.loss, kClose) << where;
          EXPECT_NEAR(found.accuracy, whole.accuracy, 1e-9) << where;
        }
      }
    }
  }
}

TEST(Evaluator, refuses_samples_of_which_no_target_counts) {
  Case what = some_ignored(images(16));
  what.held_out = data::slice(what.held_out, 8, 8);
  std::string text;
  try {
    in_one_pass(what);
  } catch (const Error& e) {
    text = e.text();
  }
  EXPECT_EQ(text,
            "evaluation: none of the targets of the 8 held-out samples counts in the loss (are all labels ignored?); "
            "hold out "
            "others, or more of them");
}

TEST(Evaluator, a_limit_on_batches_takes_the_first_ones) {
  const Case all = images(21);
  Case some = all;
  some.held_out = data::slice(all.held_out, 0, 16);
  std::vector<BatchField> fields = batch_fields(*all.held_out, 8);
  Session session(training_step(all.model, class_loss(), fields, AdamW{}), evaluation(all.model, class_loss(), fields),
                  {.seed = 3});
  session.initialise();
  const EvaluationResult two = Evaluator(session.evaluation(), all.held_out, 8, false).run(2);
  EXPECT_EQ(two.samples, 16);
  EXPECT_EQ(two.loss, Evaluator(session.evaluation(), some.held_out, 8, false).run().loss);
  EXPECT_EQ(Evaluator(session.evaluation(), all.held_out, 8, false).run(3).samples, 21);
}

// What a run of two steps logs whose validation takes the samples in batches of `batch`.
std::string log_of_run(const LossFn& loss, int64_t batch) {
  std::string lines;
  set_log_sink([&](std::string_view line) { lines += line; });
  const Case what = images(8);
  Trainer trainer(what.model, loss, Sgd{}, {.progress = false});
  trainer.fit(what.held_out, {.steps = 1, .batch = 4, .validation = what.held_out, .eval_batch = batch});
  set_log_sink({});
  return lines;
}

TEST(Evaluator, a_scalar_that_is_no_mean_over_samples_is_told_of_where_batches_are_several) {
  const LossFn of_known = [](const Tensor& y, const Tensor& t) {
    const Tensor weights = cast(t, DType::kF32);
    return div(reduce_sum(mul(cross_entropy(y, t), weights)), reduce_sum(weights) + 1.0);
  };
  EXPECT_THAT(log_of_run(of_known, 4), testing::HasSubstr("the loss is a scalar that 'div' at "));
  EXPECT_EQ(log_of_run(of_known, 8), "");
  EXPECT_EQ(log_of_run(class_loss(), 4), "");
}

}  // namespace
}  // namespace trireme::evaluator_test
