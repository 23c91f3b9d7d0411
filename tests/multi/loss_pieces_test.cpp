// A loss in pieces (pass/loss_in_pieces): training goes as with the loss in one piece, on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::loss_pieces_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

int count(const Compiled& compiled, std::string_view op) {
  int out = 0;
  for (const Action& action : compiled.plan().actions) out += action.op->name == op ? 1 : 0;
  return out;
}

Graph text_step(DType compute = DType::kF32) {
  nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4, .dropout = 0.1});
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), gpt_batch(), Sgd{.momentum = 0.9},
                       {.name = "gpt", .seed = 3, .clip_norm = 0.5, .compute = compute});
}

struct Case {
  std::string name;
  int ranks = 1;
  int64_t pieces = 2;
  int64_t tp = 1;
  int zero = 0;
  int64_t micro_batches = 1;
  bool recompute = false;
};

class LossPieces : public testing::TestWithParam<Case> {};

TEST_P(LossPieces, TrainAsTheWholeLossDoes) {
  const Case& c = GetParam();
  JobConfig config;
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.train.passes.loss_pieces = c.pieces;
  config.train.passes.recompute.rows = c.recompute;
  const Graph graph = text_step();
  const TrainerOptions options = trainer_options(config, c.ranks);
  PassOptions pieces_alone = options.passes;
  pieces_alone.disabled = {"sum_in_products"};  // which adds to sums over micro-batches, too
  EXPECT_EQ(count(compile(graph, {.ranks = c.ranks, .parallel = options.parallel, .passes = pieces_alone}),
                  "linear_weight_grad_onto"),
            c.micro_batches * (c.pieces - 1));
  EXPECT_EQ(difference_on(c.ranks, graph, options.parallel, 0.1F, options.passes), "");
}

INSTANTIATE_TEST_SUITE_P(Cuts, LossPieces,
                         testing::Values(Case{"two", 1, 2}, Case{"five", 1, 5}, Case{"recompute", 1, 3, 1, 0, 1, true},
                                         Case{"dp2_three", 2, 3}, Case{"tp2_two", 2, 2, 2},
                                         Case{"zero1_dp2_two", 2, 2, 1, 1}, Case{"zero2_dp2_two", 2, 2, 1, 2},
                                         Case{"dp2_three_of_two_micro_batches", 2, 3, 1, 0, 2}),
                         [](const auto& each) { return each.param.name; });

TEST(LossPiecesInBf16, StayAsNearToTheWholeLossAsItsRounding) {
  const Graph graph = text_step(DType::kBF16);
  const PassOptions pieces{.loss_pieces = 3};
  EXPECT_EQ(count(compile(graph, {.passes = pieces}), "linear_weight_grad_onto"), 2);
  const Curve whole = train_curve(graph, nullptr, {}, 0.1F);
  for (const Curve& curve : train_curves(graph, 2, {}, 0.1F, pieces)) {
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(curve.losses[i], whole.losses[i], 0.02F) << "step " << i + 1;
    }
  }
}

TEST(LossPiecesInvariant, AreRefused) {
  try {
    (void)compile(text_step(), {.numerics = Numerics::kInvariant, .passes = {.loss_pieces = 2}});
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    EXPECT_THAT(e.text(), HasSubstr("loss_pieces = 2 in pieces; leave one out"));
  }
}

TEST(LossPiecesConfig, WhatCannotBeIsRefused) {
  const auto why = [](const std::string& toml) -> std::string {
    try {
      (void)parse_config("[data]\nkind = 'synthetic'\n[train]\nsteps = 1\n" + toml, "job.toml");
    } catch (const Error& e) {
      return e.text();
    }
    return "";
  };
  EXPECT_THAT(why("loss_pieces = 0\n"), HasSubstr("train.loss_pieces = 0; it must be 1 or more"));
  EXPECT_THAT(why("loss_pieces = 4\nnumerics = 'invariant'\n"),
              HasSubstr("train.loss_pieces = 4 changes; leave one out"));
  EXPECT_EQ(why("loss_pieces = 4\n"), "");
}

}  // namespace
}  // namespace trireme::loss_pieces_test
