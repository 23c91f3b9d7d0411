#include "trireme/ckpt/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/ckpt/checkpoint.h"

namespace trireme::ckpt::retention_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string save_one(const std::string& root, int64_t step, const Keep& keep = {}) {
  const HostTensor weight({DType::kF32, {4, 3}});
  const std::vector<Piece> pieces{
      {.name = "fc.weight", .whole = {4, 3}, .box = Box::whole({4, 3}), .data = weight.view()}};
  return save(root, pieces, {.step = step, .keep_last = keep.last, .keep_steps = keep.steps}).path;
}

std::vector<int64_t> steps_in(const std::string& root) {
  std::vector<int64_t> out;
  for (const Found& found : list_checkpoints(root).complete) out.push_back(found.step);
  return out;
}

TEST(Retention, WhatIsToStayStaysBesidesTheNewest) {
  const TempDirectory dir;
  for (const int64_t step : {1, 2, 3, 4, 5}) save_one(dir.path(), step, {.last = 2, .steps = {2}});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(2, 4, 5));
  EXPECT_THAT(prune(dir.path(), {.last = 1, .steps = {4}}), IsEmpty());
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(4, 5));
  prune(dir.path(), {.last = 0});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(4, 5)) << "0 keeps all";
}

TEST(Retention, WhatIsSetAsideIsNeitherFoundNorCounted) {
  const TempDirectory dir;
  for (const int64_t step : {1, 2, 3}) save_one(dir.path(), step);
  EXPECT_EQ(set_aside(dir / "step-000003", "damaged"), dir / "step-000003.damaged");
  save_one(dir.path(), 3);
  EXPECT_EQ(set_aside(dir / "step-000003", "damaged"), dir / "step-000003.damaged2");
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(1, 2));
  prune(dir.path(), {.last = 1});
  EXPECT_THAT(steps_in(dir.path()), ElementsAre(2));
  EXPECT_TRUE(is_file(dir / "step-000003.damaged2/COMMIT"));
}

}  // namespace
}  // namespace trireme::ckpt::retention_test
