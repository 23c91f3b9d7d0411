#include "trireme/base/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

namespace trireme::heap_test {
namespace {

constexpr size_t kBlock = 64 << 10;  // of the heap, not of a mapping of its own
constexpr size_t kBlocks = 1024;

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t whole = 0, resident = 0;
  file >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// 64 MiB that were written and are free, below a block that is in use.
std::unique_ptr<char[]> leave_holes() {
  std::vector<std::unique_ptr<char[]>> blocks;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks.emplace_back(new char[kBlock]);
    std::memset(blocks.back().get(), 1, kBlock);
  }
  return std::move(blocks.back());
}

TEST(Heap, GivesFreedMemoryBackWhereItKeepsTooMuch) {
  const std::unique_ptr<char[]> in_use = leave_holes();
  if (mallinfo2().fordblks < kBlock * kBlocks / 2) GTEST_SKIP() << "malloc belongs to a sanitizer";
  const size_t before = resident_bytes();
  EXPECT_FALSE(trim_heap(size_t{1} << 40));
  EXPECT_GT(resident_bytes() + kBlock * kBlocks / 2, before) << "so much may be kept";
  EXPECT_TRUE(trim_heap(size_t{1} << 20));
  EXPECT_LT(resident_bytes() + kBlock * kBlocks / 2, before);
  EXPECT_GT(mallinfo2().fordblks, kBlock * kBlocks / 2) << "what is given back is free as before";
  EXPECT_FALSE(trim_heap(size_t{1} << 20)) << "there is nothing new to give back";
  EXPECT_EQ(in_use[kBlock - 1], 1);
}

}  // namespace
}  // namespace trireme::heap_test
