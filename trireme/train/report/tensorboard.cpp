#include "trireme/train/report/tensorboard.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <span>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/hash.h"
#include "trireme/base/log.h"

namespace trireme {

namespace {

constexpr double kFlushS = 2;

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
namespace event {
constexpr int kWallTime = 1;     // double
constexpr int kStep = 2;         // int64
constexpr int kFileVersion = 3;  // string
constexpr int kSummary = 5;      // Summary
constexpr int kSessionLog = 7;   // SessionLog
}  // namespace event
namespace summary {
constexpr int kValue = 1;  // repeated Value
}  // namespace summary
namespace session_log {
constexpr int kStatus = 1;  // enum
constexpr uint64_t kStart = 1;
}  // namespace session_log
namespace value {
constexpr int kTag = 1;          // string
constexpr int kSimpleValue = 2;  // float
}  // namespace value

enum Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_fixed(std::string& out, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(bits >> (8 * i) & 0xff);
}

void put_varint(std::string& out, uint64_t number) {
  while (number >= 0x80) {
    out += static_cast<char>((number & 0x7f) | 0x80);
    number >>= 7;
  }
  out += static_cast<char>(number);
}

void put_tag(std::string& out, int field, Wire wire) {
  put_varint(out, static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_tag(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_double(std::string& out, int field, double number) {
  put_tag(out, field, kFixed64);
  put_fixed(out, std::bit_cast<uint64_t>(number), 8);
}

// TFRecord files store checksums in this form, so that checksums of data holding checksums stay
// good.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8u;
}

}  // namespace

std::string event_bytes(double wall_time_s, int64_t step, std::string_view tag, float number) {
  std::string one;
  put_bytes(one, value::kTag, tag);
  put_tag(one, value::kSimpleValue, kFixed32);
  put_fixed(one, std::bit_cast<uint32_t>(number), 4);
  std::string all;
  put_bytes(all, summary::kValue, one);
  std::string out;
  put_double(out, event::kWallTime, wall_time_s);
  put_tag(out, event::kStep, kVarint);
  put_varint(out, static_cast<uint64_t>(step));
  put_bytes(out, event::kSummary, all);
  return out;
}

std::string version_event_bytes(double wall_time_s) {
  std::string out;
  put_double(out, event::kWallTime, wall_time_s);
  put_bytes(out, event::kFileVersion, "brain.Event:2");
  return out;
}

std::string session_start_event_bytes(double wall_time_s, int64_t first_step) {
  std::string log;
  put_tag(log, session_log::kStatus, kVarint);
  put_varint(log, session_log::kStart);
  std::string out;
  put_double(out, event::kWallTime, wall_time_s);
  put_tag(out, event::kStep, kVarint);
  put_varint(out, static_cast<uint64_t>(first_step));
  put_bytes(out, event::kSessionLog, log);
  return out;
}

std::string tfrecord(std::string_view data) {
  std::string out;
  put_fixed(out, data.size(), 8);
  put_fixed(out, masked_crc(out), 4);
  out += data;
  put_fixed(out, masked_crc(data), 4);
  return out;
}

TensorboardWriter::TensorboardWriter(const std::string& directory, int64_t first_step) {
  disk().make_directory(directory);
  char host[256] = "host";
  (void)gethostname(host, sizeof host - 1);
  const std::string stem =
      join_path(directory, fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<int64_t>(unix_time_s()), host,
                                       static_cast<int64_t>(getpid())));
  // Two writers of one process and second get files of their own.
  for (int number = 0; file_ < 0 && number < 1000; ++number) {
    path_ = fmt::format("{}.{}", stem, number);
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) {
    fail(ErrorKind::kIo, "tensorboard log '{}': cannot write it: {}", path_, why_not_written(errno));
  }
  record(version_event_bytes(unix_time_s()));
  if (first_step > 0) record(session_start_event_bytes(unix_time_s(), first_step));
  flush();
}

TensorboardWriter::~TensorboardWriter() {
  try {
    flush();
  } catch (const Error& e) {
    TRIREME_LOG(kError, "train", "{}", e.text());
  }
  close(file_);
}

void TensorboardWriter::scalar(std::string_view tag, double value, int64_t step) {
  record(event_bytes(unix_time_s(), step, tag, static_cast<float>(value)));
  if (now_s() - flushed_at_s_ >= kFlushS) flush();
}

void TensorboardWriter::record(std::string_view bytes) {
  buffer_ += tfrecord(bytes);
}

void TensorboardWriter::flush() {
  flushed_at_s_ = now_s();
  while (!buffer_.empty()) {
    const ssize_t n = write(file_, buffer_.data(), buffer_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::kIo, "tensorboard log '{}': cannot write it: {}", path_, why_not_written(errno));
    buffer_.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace trireme
