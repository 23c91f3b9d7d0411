#include "trireme/train/job/same_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/ops/ops.h"
#include "trireme/train/loop/feed.h"

namespace trireme::same_job_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Of a program that makes its model itself, without a configuration.
std::map<std::string, std::string> identity(int64_t heads, const Optimizer& optimizer, int64_t samples = 20,
                                            const TrainerOptions& options = {}) {
  nn::Gpt gpt({.vocabulary = 16, .context = 8, .layers = 1, .width = 8, .heads = heads});
  const data::SourcePtr source = data::synthetic_tokens({.samples = samples, .seq = 8, .vocabulary = 16});
  return identity_of({.model = [&](const Tensor& x) { return gpt(x); },
                      .loss = [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); },
                      .optimizer = optimizer,
                      .batch = batch_fields(*source, 4),
                      .options = options},
                     *source, nullptr, cpu_device());
}

std::string error_of(const std::map<std::string, std::string>& saved, const std::map<std::string, std::string>& now) {
  try {
    check_same_job(saved, now, "run/step-000006");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.text();
  }
  return "";
}

TEST(SameJob, is_the_same_whatever_it_computes_in_and_however_it_is_cut) {
  const auto saved = identity(2, AdamW{});
  EXPECT_THAT(check_same_job(saved,
                             identity(2, AdamW{.lr = 1}, 20,
                                      {.step = {.name = "other", .compute = DType::kBF16}, .mode = Mode::kSemiAuto}),
                             "c"),
              IsEmpty());
  EXPECT_THAT(check_same_job({}, saved, "c"), IsEmpty()) << "of an earlier version";
}

TEST(SameJob, a_model_of_the_same_parameters_and_an_optimizer_of_the_same_state_are_others) {
  EXPECT_THAT(error_of(identity(2, AdamW{}), identity(4, AdamW{})),
              HasSubstr("checkpoint 'run/step-000006' is of a model with other ops than this run's"));
  EXPECT_THAT(error_of(identity(2, AdamW{}), identity(2, Adam{})),
              HasSubstr("has the state of the optimizer 'adamw', and this run's is 'adam'"));
  auto earlier = identity(2, AdamW{});
  earlier["made_by"] = "0.0.9";
  EXPECT_THAT(check_same_job(earlier, identity(4, AdamW{}), "c"),
              ElementsAre(HasSubstr("as version 0.1.0 makes them, are not those of version 0.0.9")));
}

// The classes of a table in another order are other classes, with the same shapes.
TEST(SameJob, what_the_classes_of_pairs_of_texts_mean_stays) {
  const auto with_labels = [](const std::string& labels) {
    return std::map<std::string, std::string>{
        {"config",
         "[model]\nkind = 'bert_classifier'\nvocabulary = 259\n[data]\nkind = 'text_pairs'\npath = 'p.csv'\n"
         "first = 'a'\nsecond = 'b'\nlabel = 'c'\nlabels = " +
             labels + "\n[train]\nsteps = 1\n"}};
  };
  EXPECT_EQ(error_of(with_labels("['no', 'yes']"), with_labels("['no', 'yes']")), "");
  EXPECT_THAT(error_of(with_labels("['no', 'yes']"), with_labels("['yes', 'no']")),
              HasSubstr("was trained with data.labels = [ 'no', 'yes' ], and this run has [ 'yes', 'no' ]: it is "
                        "another job"));
}

TEST(SameJob, another_processor_is_said_where_bits_depend_on_it) {
  auto saved = identity(2, AdamW{});
  const auto now = identity(2, AdamW{});
  saved["processor"] = "another";
  EXPECT_THAT(check_same_job(saved, now, "c"),
              ElementsAre(HasSubstr("the processor '" + now.at("processor") + "', which was 'another'")));
  EXPECT_THAT(check_same_job(saved, identity(2, AdamW{}, 20, {.step = {.numerics = Numerics::kInvariant}}), "c"),
              IsEmpty());
}

TEST(SameJob, other_data_are_said) {
  EXPECT_THAT(check_same_job(identity(2, AdamW{}), identity(2, AdamW{}, 21), "c"),
              ElementsAre(testing::AllOf(HasSubstr("data of 21 samples, tokens i32[8], targets i32[8]"),
                                         HasSubstr("which were 20 samples"))));
}

}  // namespace
}  // namespace trireme::same_job_test
