#include "trireme/plan/updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

using testing::ElementsAre;

TEST(Updates, a_state_belongs_to_the_longest_name_of_its_type) {
  Graph graph;
  const TensorType wide{DType::kF32, {4}};
  const TensorType narrow{DType::kF32, {2}};
  graph.add_input("w", wide, Role::kParameter);
  graph.add_input("w.b", wide, Role::kParameter);
  graph.add_input("w.c", narrow, Role::kParameter);
  graph.add_input("w.m", wide, Role::kState);    // 3
  graph.add_input("w.b.m", wide, Role::kState);  // 4
  graph.add_input("w.c.m", wide, Role::kState);  // 5: not of w.c, which is narrower
  graph.add_input("running", wide, Role::kState);

  const std::map<std::string_view, Update> updates = updates_of(graph);

  EXPECT_EQ(updates.size(), 3U);
  EXPECT_THAT(updates.at("w").state, ElementsAre(3, 5));
  EXPECT_THAT(updates.at("w.b").state, ElementsAre(4));
  EXPECT_THAT(updates.at("w.c").state, ElementsAre());
  for (const auto& [name, update] : updates) EXPECT_EQ(update.gradient, kNoValue) << name;
}

}  // namespace
}  // namespace trireme
