#include "trireme/train/report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::tensorboard_test {
namespace {

// A reader of its own, bit by bit and field by field, that shares nothing with the writer.
uint32_t plain_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
  }
  return ~crc;
}

uint32_t plain_masked(std::string_view bytes) {
  const uint32_t crc = plain_crc32c(bytes);
  return static_cast<uint32_t>((crc >> 15 | static_cast<uint64_t>(crc) << 17) & 0xffffffff) + 0xa282ead8;
}

template <class T>
T little_endian(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);  // the machines we test on are little-endian
  return value;
}

std::vector<std::string> records_in(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const auto size = little_endian<uint64_t>(file);
    EXPECT_EQ(little_endian<uint32_t>(file.substr(8)), plain_masked(file.substr(0, 8)));
    records.emplace_back(file.substr(12, size));
    EXPECT_EQ(little_endian<uint32_t>(file.substr(12 + size)), plain_masked(records.back()));
    file.remove_prefix(12 + size + 4);
  }
  return records;
}

uint64_t take_varint(std::string_view& in) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(in[0]);
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// Field number to its raw content: the bytes of fixed and delimited fields, a varint's 8 bytes.
std::map<int, std::string> fields_of(std::string_view in) {
  std::map<int, std::string> fields;
  while (!in.empty()) {
    const uint64_t key = take_varint(in);
    size_t size = 0;
    switch (key & 7) {
      case 0: {
        const uint64_t value = take_varint(in);
        fields[static_cast<int>(key >> 3)] = std::string(reinterpret_cast<const char*>(&value), 8);
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(in);
        break;
      case 5:
        size = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
        return fields;
    }
    fields[static_cast<int>(key >> 3)] = std::string(in.substr(0, size));
    in.remove_prefix(size);
  }
  return fields;
}

struct Scalar {
  std::string tag;
  int64_t step;
  float value;
};

Scalar scalar_in(const std::string& record) {
  auto event = fields_of(record);
  auto summary = fields_of(event.at(5));
  auto value = fields_of(summary.at(1));
  return {value.at(1), little_endian<int64_t>(event.at(2)), little_endian<float>(value.at(2))};
}

TEST(Tensorboard, TheChecksumOfTheTestAgreesWithThePublishedOne) {
  EXPECT_EQ(plain_crc32c("123456789"), 0xe3069283);
}

TEST(Tensorboard, ARecordIsTheBytesThatTheFormatAsksFor) {
  const std::string record = event_bytes(1.0, 300, "ab", 0.5f);

  EXPECT_EQ(record, std::string("\x09\0\0\0\0\0\0\xf0\x3f"  // 1: double 1.0
                                "\x10\xac\x02"              // 2: varint 300
                                "\x2a\x0b\x0a\x09"          // 5: summary of 11 bytes, 1: value of 9
                                "\x0a\x02"
                                "ab"  // 1: tag
                                "\x15\0\0\0\x3f",
                                25));  // 2: float 0.5
}

TEST(Tensorboard, AFileHoldsItsVersionAndEveryScalarInOrder) {
  const TempDirectory dir;
  const std::vector<Scalar> written{{"loss/train", 1, 2.25f},
                                    {"loss/validation", 1, -1e-20f},
                                    {"loss/train", int64_t{1} << 40, 3.4e38f},
                                    {std::string(300, 't'), 0, 0.0f}};
  std::string path;
  {
    TensorboardWriter writer(dir / "run/tb");
    path = writer.path();
    for (const Scalar& s : written) writer.scalar(s.tag, static_cast<double>(s.value), s.step);
  }

  const auto records = records_in(read_file(path));

  ASSERT_EQ(records.size(), written.size() + 1);
  auto version = fields_of(records[0]);
  EXPECT_EQ(version.at(3), "brain.Event:2");
  EXPECT_GT(little_endian<double>(version.at(1)), 1.6e9);
  for (size_t i = 0; i < written.size(); ++i) {
    const Scalar read = scalar_in(records[i + 1]);
    EXPECT_EQ(read.tag, written[i].tag);
    EXPECT_EQ(read.step, written[i].step);
    EXPECT_EQ(read.value, written[i].value);
  }
}

TEST(Tensorboard, ValuesThatAreNoNumbersPassThrough) {
  EXPECT_TRUE(std::isnan(scalar_in(event_bytes(0, 1, "a", std::nanf(""))).value));
  EXPECT_EQ(scalar_in(event_bytes(0, 1, "a", std::numeric_limits<float>::infinity())).value,
            std::numeric_limits<float>::infinity());
}

TEST(Tensorboard, TheFileNameIsOneThatTensorboardLooksForAndIsNotTakenTwice) {
  const TempDirectory dir;
  const TensorboardWriter a(dir.path());
  const TensorboardWriter b(dir.path());

  EXPECT_THAT(base_name(a.path()), testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+"));
  EXPECT_NE(a.path(), b.path());
}

TEST(Tensorboard, WhatIsFlushedIsInTheFile) {
  const TempDirectory dir;
  TensorboardWriter writer(dir.path());
  EXPECT_EQ(records_in(read_file(writer.path())).size(), 1u);
  writer.scalar("loss", 1, 1);
  writer.flush();
  EXPECT_EQ(records_in(read_file(writer.path())).size(), 2u);
}

TEST(Tensorboard, APlaceThatCannotBeWrittenIsNamed) {
  EXPECT_THROW(TensorboardWriter("/proc/none"), Error);
}

}  // namespace
}  // namespace trireme::tensorboard_test
