#include "trireme/exec/background/staged_work.h"

#include <gtest/gtest.h>

namespace trireme::staged_work_test {
namespace {

View device_bytes_at(std::vector<std::byte>& memory, int64_t begin, int64_t end) {
  View out{memory.data() + begin, {DType::kU8, {end - begin}}};
  out.memory = Memory::kDevice;
  return out;
}

// What is apart in device memory is apart in the staging, and what is part of something else is so there.
TEST(StagedWork, views_inside_of_others_are_staged_where_they_lie_in_them) {
  std::vector<std::byte> memory(2048), scratch(8192);
  const std::vector<View> in{device_bytes_at(memory, 256, 512), device_bytes_at(memory, 1280, 1536)};
  const std::vector<View> out{device_bytes_at(memory, 0, 1024), device_bytes_at(memory, 1024, 2048)};
  const Staging staging = stage(in, out, scratch, 0);
  const std::byte* const first = staging.out[0].data;
  EXPECT_EQ(staging.in[0].data - first, 256);
  EXPECT_EQ(staging.in[1].data - first, 1280);
  EXPECT_EQ(staging.out[1].data - first, 1024);
}

TEST(StagedWork, views_apart_are_staged_apart) {
  std::vector<std::byte> memory(4096), scratch(16384);
  const std::vector<View> in{device_bytes_at(memory, 0, 1024), device_bytes_at(memory, 64, 128)};
  const std::vector<View> out{device_bytes_at(memory, 2048, 3072)};
  const Staging staging = stage(in, out, scratch, 0);
  EXPECT_GT(staging.out[0].data - staging.in[0].data, 1024);
  EXPECT_EQ(staging.in[1].data - staging.in[0].data, 64);
}

}  // namespace
}  // namespace trireme::staged_work_test
