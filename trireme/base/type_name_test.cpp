#include "trireme/base/type_name.h"

#include <gtest/gtest.h>

namespace trireme::type_name_test {
namespace {

struct Inner {
  struct Nested {};
};

TEST(TypeName, is_without_what_is_around_it) {
  EXPECT_EQ(type_name<Inner>(), "Inner");
  EXPECT_EQ(type_name<Inner::Nested>(), "Nested");
  EXPECT_EQ(type_name<int>(), "int");
}

}  // namespace
}  // namespace trireme::type_name_test
