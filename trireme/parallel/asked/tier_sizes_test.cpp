#include "trireme/parallel/asked/tier_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::tier_sizes_test {
namespace {

using testing::HasSubstr;

TEST(TierSizes, are_numbers_with_units) {
  EXPECT_EQ(MemorySize("2GB").bytes(), 2000000000);
  EXPECT_EQ(MemorySize("1.5 MiB").bytes(), 3 << 19);
  EXPECT_EQ(MemorySize("17B").bytes(), 17);
  EXPECT_EQ(MemorySize("").bytes(), 0);
  EXPECT_EQ(MemorySize("0").bytes(), 0);
  for (const char* const text : {"2GB", "512MiB", "3KB", "1025B", "40TB", "1GiB", ""})
    EXPECT_EQ(to_string(MemorySize(text)), text);
  EXPECT_EQ(to_string(MemorySize("1024MiB")), "1GiB");
}

TEST(TierSizes, what_is_no_size_is_refused) {
  for (const char* const text : {"2", "GB", "-1GB", "2 gb", "nanGB", "1e30TB", "0.1B", "2GB more"}) {
    try {
      MemorySize size(text);
      ADD_FAILURE() << text << " is " << size.bytes();
    } catch (const Error& e) {
      EXPECT_THAT(e.text(), HasSubstr("is no number of bytes with a unit, like '2GB' or '512MiB'"));
    }
  }
}

TEST(TierSizes, a_disk_is_a_directory_and_a_size) {
  const DiskSpace space("/scratch/a:b:40GB");
  EXPECT_EQ(space.directory(), "/scratch/a:b");
  EXPECT_EQ(space.size().bytes(), 40000000000);
  EXPECT_EQ(to_string(space), "/scratch/a:b:40GB");
  EXPECT_EQ(DiskSpace("/scratch:dir").directory(), "/scratch:dir");
  EXPECT_FALSE(DiskSpace("/scratch").size().is_given());
  EXPECT_EQ(DiskSpace(":40GB").directory(), "");
  EXPECT_EQ(to_string(DiskSpace(":40GB")), ":40GB");
  EXPECT_THROW(DiskSpace("/scratch:40"), Error);
}

}  // namespace
}  // namespace trireme::tier_sizes_test
