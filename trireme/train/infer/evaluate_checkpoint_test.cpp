#include "trireme/train/infer/evaluate_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/loop/trainer.h"
#include "trireme/train/step/session/session.h"

namespace trireme::evaluate_checkpoint_test {
namespace {

// Sums of some ten losses of f32.
constexpr double kClose = 1e-5;

TEST(EvaluateCheckpoint, takes_batches_of_the_step_whatever_batch_the_validation_has) {
  const JobConfig config = parse_config(
      "[model]\nkind = 'mlp'\nhidden = [8]\n[data]\nkind = 'synthetic'\nsamples = 60\nvalidation = 0.4\n[train]\n"
      "steps = 2\nbatch = 8\neval_batch = 4\n",
      "job.toml", {});
  const TempDirectory folder;
  const auto model = make_model(config);
  const data::Split samples = make_data(config);
  TrainerOptions options = trainer_options(config, 1);
  options.out = folder.path();
  options.progress = false;
  FitOptions fit = config.train.fit;
  fit.validation = samples.validation;
  const FitResult trained = Trainer(*model, make_loss(config), make_optimizer(config), options).fit(samples.train, fit);

  const ckpt::Reader reader(trained.checkpoint);
  const EvaluationResult found = evaluate_checkpoint(reader, config, samples.validation, Job::current());
  EXPECT_EQ(found.samples, samples.validation->size());
  EXPECT_NEAR(found.loss, trained.validation_loss, kClose);
  EXPECT_NEAR(found.accuracy, trained.accuracy, 1e-9);
}

}  // namespace
}  // namespace trireme::evaluate_checkpoint_test
