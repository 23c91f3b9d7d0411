#include "trireme/train/job/kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/backend/device.h"
#include "trireme/base/joined_text.h"

namespace trireme::kinds_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string help_of(std::string_view name) {
  for (const KeyHelp& key : all_keys()) {
    if (key.name == name) return key.doc;
  }
  return "";
}

TEST(Kinds, what_help_says_of_ready_made_strategies_names_the_kinds_that_have_them) {
  std::vector<std::string> weights, positions;
  for (const std::string& kind : nn::model_kinds()) {
    const nn::Cuttable cuttable = nn::model_spec(kind)->cuttable();
    if (cuttable.weights) weights.push_back(kind);
    if (cuttable.positions) positions.push_back(kind);
  }
  EXPECT_THAT(weights, testing::Contains("wide_deep"));
  EXPECT_THAT(positions, testing::Not(testing::Contains("t5")));
  EXPECT_THAT(help_of("parallel.tp"), StartsWith(joined_text(weights, ", ") + ": ranks that"));
  EXPECT_THAT(help_of("parallel.cp"), StartsWith(joined_text(positions, ", ") + ": ranks that"));
  EXPECT_THAT(help_of("parallel.sp"), StartsWith(joined_text(positions, ", ") + ": the ranks of tp"));
  EXPECT_THAT(help_of("parallel.vocabulary"), HasSubstr("t5: the ranks of tp also cut the embedding"));
  EXPECT_THAT(help_of("parallel.ep"), HasSubstr("deepseek: data parallel ranks that share the experts"));
}

TEST(Kinds, what_help_says_of_devices_has_all_that_there_are) {
  const std::string help = help_of("train.device");
  for (const std::string& doc : device_docs()) EXPECT_THAT(help, HasSubstr(doc));
}

}  // namespace
}  // namespace trireme::kinds_test
