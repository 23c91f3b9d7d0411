#include "trireme/mesh/mesh_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::mesh_spec_test {
namespace {

TEST(MeshSpec, reserved_axes_take_no_ranks) {
  const MeshSpec spec = "dp=2,interleaved_parallel=3,tp=2,micro_batch=4";
  EXPECT_EQ(to_string(spec.ranks()), "dp=2,tp=2");
  EXPECT_EQ(spec.copies(), 3);
  EXPECT_EQ(spec.micro_batches(), 4);
  EXPECT_EQ(to_string(spec), "dp=2,interleaved_parallel=3,tp=2,micro_batch=4");
}

TEST(MeshSpec, none_is_given_by_nothing) {
  EXPECT_TRUE(MeshSpec().empty());
  EXPECT_TRUE(MeshSpec("").empty());
  EXPECT_FALSE(MeshSpec("dp=1").empty());
  EXPECT_EQ(MeshSpec("dp=2"), MeshSpec(Mesh({{"dp", 2}})));
}

TEST(MeshSpec, what_is_no_mesh_is_refused_where_it_is_written) {
  EXPECT_THAT([] { MeshSpec("dp=two"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("'dp=two' is not a mesh: 'two' is not a size")));
}

}  // namespace
}  // namespace trireme::mesh_spec_test
