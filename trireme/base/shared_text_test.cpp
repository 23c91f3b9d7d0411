#include "trireme/base/shared_text.h"

#include <gtest/gtest.h>

namespace trireme::shared_text_test {
namespace {

TEST(SharedText, reads_as_its_text) {
  const SharedText none, some = std::string("h.0.attn");
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.view(), "");
  EXPECT_EQ(none, SharedText(""));
  EXPECT_FALSE(some.empty());
  EXPECT_EQ(some, "h.0.attn");
  EXPECT_EQ(some, SharedText("h.0.attn")) << "equal texts are equal, shared or not";
  EXPECT_NE(some, none);
  EXPECT_EQ(fmt::format("{}|{}|", some, none), "h.0.attn||");
  const SharedText copy = some;
  EXPECT_EQ(copy.view().data(), some.view().data()) << "a copy is the same text";
}

}  // namespace
}  // namespace trireme::shared_text_test
