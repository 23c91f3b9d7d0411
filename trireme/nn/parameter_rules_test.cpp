#include "trireme/nn/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/nn/optimizer.h"

namespace trireme::parameter_rules_test {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kNames{"wte.weight", "h.0.ln_1.bias", "h.0.fc.weight", "h.1.ln_1.bias", "h.1.fc.weight"};

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParameterRules, are_read_and_printed_alike) {
  const ParameterRule decay("*.bias = weight_decay 0");
  EXPECT_EQ(decay.pattern, "*.bias");
  EXPECT_EQ(decay.numbers.at("weight_decay"), 0);
  EXPECT_EQ(ParameterRule("*.bias=weight_decay = 0"), decay);
  EXPECT_EQ(to_string(ParameterRule("head.* = lr_scale 10, beta2 0.95")), "head.* = beta2 0.95, lr_scale 10");
  for (const char* text : {"wte.* = frozen", "h.0.* = trained", "a = eps 1e-06, weight_decay 0.1, lr_scale 0.5"})
    EXPECT_EQ(to_string(ParameterRule(text)), text);
}

TEST(ParameterRules, texts_that_are_none_are_refused) {
  for (const char* text : {"", "wte.*", "= frozen", "wte.* =", "wte.* = cold", "wte.* = weight_decay", "a = eps x",
                           "a = frozen, 3", "a = eps 1,"})
    EXPECT_THAT(error_of([&] { ParameterRule rule(text); }), HasSubstr("is not \"name = what is asked\"")) << text;
  EXPECT_THAT(error_of([] { ParameterRule rule("a = eps 1, eps 2"); }), HasSubstr("says eps twice"));
  EXPECT_THAT(error_of([] { ParameterRule rule("a = frozen, trained"); }), HasSubstr("says twice what is asked"));
  for (const char* text : {"a = lr_scale 0", "a = lr_scale -1", "a = lr_scale nan", "a = lr_scale 1e39"})
    EXPECT_THAT(error_of([&] { ParameterRule rule(text); }), HasSubstr("it must be above 0")) << text;
}

TEST(ParameterRules, the_last_that_says_a_number_counts) {
  const std::vector<ParameterRule> rules{"* = frozen, weight_decay 0.2", "h.* = trained, lr_scale 3",
                                         "*.bias = weight_decay 0"};
  EXPECT_EQ(nn::to_string(nn::group_of(rules, "wte.weight")), "frozen");
  EXPECT_EQ(nn::to_string(nn::group_of(rules, "h.0.fc.weight")), "weight_decay 0.2, lr_scale 3");
  EXPECT_EQ(nn::to_string(nn::group_of(rules, "h.1.ln_1.bias")), "weight_decay 0, lr_scale 3");
}

TEST(ParameterRules, numbers_are_those_of_the_optimizer) {
  const Optimizer adamw = AdamW{};
  EXPECT_EQ(nn::describe(*nn::with_numbers(adamw.spec(), {{"weight_decay", 0}, {"beta2", 0.95}}, "")),
            "AdamW, beta1 0.9, beta2 0.95, eps 1e-08");
  const auto error_with = [](const Optimizer& optimizer, const ParameterRule& rule) {
    return error_of([&] { nn::check_numbers({{rule}}, optimizer.spec(), "group "); });
  };
  EXPECT_THAT(error_with(adamw, "a = momentum 0.9"),
              HasSubstr("group \"a = momentum 0.9\": AdamW has no number \"momentum\" to set for a parameter. One of "
                        "'lr_scale', 'beta1', 'beta2', 'eps' or 'weight_decay'."));
  EXPECT_THAT(error_with(adamw, "a = weight_decay -1"), HasSubstr("weight_decay = -1; it must be 0 or more"));
  EXPECT_THAT(error_with(Sgd{.momentum = 0.9, .nesterov = true}, "a = momentum 0"),
              HasSubstr("nesterov = true needs a momentum above 0"));
  EXPECT_THAT(error_with(Sgd{}, "a = nesterov 1"), HasSubstr("SGD has no number \"nesterov\""));
}

TEST(ParameterRules, that_match_nothing_are_refused_with_the_names_there_are) {
  EXPECT_THAT(error_of([] { nn::check_matches({{ParameterRule("ln_* = frozen")}}, kNames); }),
              HasSubstr("parameter group \"ln_* = frozen\" matches no parameter of the model; it has 'wte.weight', "
                        "'h.*.ln_1.bias', 'h.*.fc.weight'"));
  const std::vector<ParameterRule> overtaken{"h.* = frozen", "h.0.*.bias = weight_decay 0"};
  EXPECT_THAT(error_of([&] { nn::check_matches(overtaken, kNames); }), HasSubstr("which a rule freezes"));
  const std::vector<ParameterRule> partly{"h.* = frozen", "*.weight = weight_decay 0"};
  EXPECT_EQ(error_of([&] { nn::check_matches(partly, kNames); }), "no error") << "wte.weight is trained";
}

}  // namespace
}  // namespace trireme::parameter_rules_test
