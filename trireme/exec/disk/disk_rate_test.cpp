#include "trireme/exec/disk/disk_rate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::disk_rate_test {
namespace {

TEST(DiskRate, is_measured_by_a_file_that_leaves_nothing) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "trireme_disk_rate";
  std::filesystem::remove_all(directory);
  const DiskRate rate = measure_disk(directory.string(), 1);
  EXPECT_GT(rate.written_bytes_per_s, 0);
  EXPECT_GT(rate.read_bytes_per_s, 0);
  EXPECT_TRUE(rate.way == "io_uring" || rate.way == "threads") << rate.way;
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove_all(directory);
}

TEST(DiskRate, of_no_directory_is_an_error) {
  EXPECT_THROW(measure_disk("/dev/null/none", 1), Error);
}

}  // namespace
}  // namespace trireme::disk_rate_test
