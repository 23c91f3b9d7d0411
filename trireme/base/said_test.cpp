#include "trireme/base/said.h"

#include <gtest/gtest.h>

#include <string>

#include "trireme/base/error.h"

namespace trireme::said_test {
namespace {

struct Thing {
  int* made = nullptr;  // texts
};
std::string to_string(const Thing& thing) {
  ++*thing.made;
  return "thing";
}

TEST(Said, MakesATextWhereAMessageIsMade) {
  int made = 0;
  const Thing thing{&made};
  require(true, "{} is wrong", said(thing));
  EXPECT_EQ(made, 0);
  EXPECT_EQ(fmt::format("{} of {}", said(thing), said_by([] { return std::string("two"); })), "thing of two");
  EXPECT_EQ(made, 1);
  EXPECT_THROW(require(false, "{} is wrong", said(thing)), Error);
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace trireme::said_test
