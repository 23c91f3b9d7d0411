#include "trireme/comm/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace trireme::comm::copy_test {
namespace {

// Copies with `copy` at every alignment and around every size at which the method changes, between
// guard bytes.
template <class Copy>
void check(Copy copy) {
  for (const size_t bytes : {0, 1, 31, 127, 128, 129, 511, 513, 700, 2047, 2049, 5000, 70'001}) {
    for (const size_t to_offset : {0, 1, 8, 31}) {
      for (const size_t from_offset : {0, 3, 16}) {
        std::vector<std::byte> from(bytes + 64);
        std::vector<std::byte> to(bytes + 128, std::byte{0xee});
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 % 251);

        copy(to.data() + 32 + to_offset, from.data() + from_offset, bytes);

        std::vector<std::byte> wanted(bytes + 128, std::byte{0xee});
        for (size_t i = 0; i < bytes; ++i) wanted[32 + to_offset + i] = from[from_offset + i];
        ASSERT_EQ(to, wanted) << bytes << " bytes, to " << to_offset << " from " << from_offset;
      }
    }
  }
}

TEST(Copy, ThroughTheCacheAndPastItCopiesTheBytesAndNoOthers) {
  check([](std::byte* to, const std::byte* from, size_t bytes) { copy_bytes(to, from, bytes, bytes); });
  check([](std::byte* to, const std::byte* from, size_t bytes) { copy_bytes(to, from, bytes, size_t{1} << 40); });
  check([](std::byte* to, const std::byte* from, size_t bytes) { hand_over(to, from, bytes); });
}

}  // namespace
}  // namespace trireme::comm::copy_test
