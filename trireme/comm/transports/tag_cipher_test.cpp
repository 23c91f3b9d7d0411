#include "trireme/comm/transports/tag_cipher.h"

#include <gtest/gtest.h>

namespace trireme::comm::tag_cipher_test {
namespace {

// Published vectors of XTEA.
TEST(TagCipher, EnciphersAsPublished) {
  const TagKey count{0x00010203, 0x04050607, 0x08090a0b, 0x0c0d0e0f};
  EXPECT_EQ(encipher(0x4142434445464748, count), 0x497df3d072612cb5U);
  EXPECT_EQ(encipher(0x4141414141414141, count), 0xe78f2d13744341d8U);
  EXPECT_EQ(encipher(0, TagKey{}), 0xdee9d4d8f7131ed9U);
}

}  // namespace
}  // namespace trireme::comm::tag_cipher_test
