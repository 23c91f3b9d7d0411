#include "trireme/base/hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/rng.h"

namespace trireme::hash_test {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(size_t size) {
  std::vector<uint32_t> words(size / 4 + 1);
  fill_random_bits({1, 2}, 0, 0, words);
  const auto raw = std::as_bytes(std::span(words)).first(size);
  return {raw.begin(), raw.end()};
}

// Bit by bit, from the definition.
uint32_t crc32c_by_definition(std::span<const std::byte> bytes) {
  uint32_t crc = ~0U;
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
  }
  return ~crc;
}

TEST(Hash, Crc32cGivesThePublishedCheckValues) {
  const std::vector<std::byte> zeros(32);
  const std::vector<std::byte> ones(32, std::byte{0xff});

  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(ones), 0x62A8AB43U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Hash, BothWaysOfCrc32cAgreeWithTheDefinitionAtEveryLengthAndAlignment) {
  const auto data = random_bytes(20000);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (const size_t size : {0U, 1U, 7U, 8U, 9U, 63U, 6143U, 6144U, 6145U, 14000U, 19000U}) {
      const auto part = std::span(data).subspan(offset, size);
      const uint32_t expected = crc32c_by_definition(part);
      EXPECT_EQ(crc32c(part), expected) << offset << " " << size;
      EXPECT_EQ(crc32c_by_table(part), expected) << offset << " " << size;
    }
  }
}

TEST(Hash, Crc32cOfPartsIsTheCrc32cOfTheWhole) {
  const auto data = random_bytes(10000);
  for (const size_t cut : {0U, 1U, 100U, 6144U, 9999U, 10000U}) {
    const auto all = std::span<const std::byte>(data);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
  }
}

TEST(Hash, Sha256GivesTheVectorsOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hash, Sha256InPartsEqualsSha256AtOnce) {
  const auto data = random_bytes(300);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    Sha256 parts;
    parts.update(std::span(data).first(cut));
    parts.update(std::span(data).subspan(cut));
    Sha256 whole;
    whole.update(data);
    ASSERT_EQ(parts.finish(), whole.finish()) << cut;
  }
}

TEST(Hash, Hash64IsXxh3) {
  EXPECT_EQ(hash64(std::string_view("")),
            0x2d06800538d394c2ULL);  // published by the xxHash project
  EXPECT_NE(hash64(std::string_view("a")), hash64(std::string_view("a"), 1));
}

TEST(Hash, TextInPartsHasTheHashOfAll) {
  std::string all;
  TextHash in_parts;
  for (int i = 0; i < 300; ++i) {
    const std::string part(static_cast<size_t>(i % 7), static_cast<char>('a' + i % 26));
    in_parts.add(part);
    all += part;
    ASSERT_EQ(in_parts.value(), hash64(std::string_view(all))) << i;
  }
}

}  // namespace
}  // namespace trireme::hash_test
