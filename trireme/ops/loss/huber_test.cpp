#include <gtest/gtest.h>

#include "trireme/ops/ops.h"
#include "trireme/ops/run_op_for_tests.h"

namespace trireme::huber_test {
namespace {

TEST(Huber, is_half_the_square_within_delta_and_a_line_beyond) {
  const HostTensor x = vec({0, 1, 2, -3, 5});
  const HostTensor target = vec({0, 0.5, 0, 0, 5});

  EXPECT_EQ(values(run_op("huber", {x, target}, "{delta=1}")[0]), (std::vector<double>{0, 0.125, 1.5, 2.5, 0}));
  EXPECT_EQ(values(run_op("huber", {x, target}, "{delta=2}")[0]), (std::vector<double>{0, 0.125, 2, 4, 0}));
}

TEST(Huber, refuses_other_shapes_and_a_delta_that_is_not_above_zero) {
  const HostTensor x = vec({1, 2});
  const HostTensor three = vec({1, 2, 3});

  EXPECT_EQ(error_text([&] {
              run_op("huber", {x, three}, "{delta=1}");
            }),
            "huber: x and target must be of one floating type and shape (x f32[2], target f32[3])");
  EXPECT_EQ(error_text([&] { run_op("huber", {x, x}, "{delta=0}"); }), "huber: delta is 0; it must be above 0");
}

}  // namespace
}  // namespace trireme::huber_test
