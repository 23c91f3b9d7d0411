#include "trireme/op/conformance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/op/registry.h"

namespace trireme {
namespace {

using conformance::Property;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string join(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// -- every op has every property -------------------------------------------------------------------------------

class EveryOp : public ::testing::TestWithParam<std::tuple<const OpDef*, Property>> {};

TEST_P(EveryOp, HasTheProperty) {
  const auto& [op, property] = GetParam();

  EXPECT_THAT(property.check(*op, 1), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Conformance, EveryOp,
                         ::testing::Combine(::testing::ValuesIn(all_ops().begin(), all_ops().end()),
                                            ::testing::ValuesIn(conformance::all_properties().begin(),
                                                                conformance::all_properties().end())),
                         [](const auto& case_info) {
                           return fmt::format("{}_{}", std::get<0>(case_info.param)->name,
                                              std::get<1>(case_info.param).name);
                         });

}  // namespace
}  // namespace trireme
