#include "trireme/train/report/run_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace trireme {

namespace {

constexpr size_t kMaxBuffer = 65'536;

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// JSON has no infinite numbers, and reads -0 as the whole number 0.
std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  return value == 0 && std::signbit(value) ? "-0.0" : fmt::format("{}", value);
}

std::optional<RunRecord> parse_line(std::string_view line) {
  const nlohmann::json written = nlohmann::json::parse(line, nullptr, false);
  if (!written.is_object() || !written.contains("step") || !written["step"].is_number_integer()) {
    return std::nullopt;
  }
  RunRecord record;
  for (const auto& [key, value] : written.items()) {
    if (key == "step") {
      record.step = value.get<int64_t>();
    } else if (value.is_number() || value.is_null()) {
      record.values.emplace_back(key, value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
    } else {
      return std::nullopt;
    }
  }
  return record;
}

// Bytes of the lines to keep when the run goes on after `step`.
size_t kept_bytes(std::string_view text, int64_t step) {
  size_t kept = 0;
  while (kept < text.size()) {
    const size_t end = text.find('\n', kept);
    if (end == std::string_view::npos) break;  // cut short by a crash
    const auto record = parse_line(text.substr(kept, end - kept));
    if (!record || record->step > step) break;
    kept = end + 1;
  }
  return kept;
}

}  // namespace

std::string json_line(const RunRecord& record) {
  std::string line = fmt::format("{{\"step\":{}", record.step);
  for (const auto& [key, value] : record.values) {
    line += fmt::format(",{}:{}", json_string(key), json_number(value));
  }
  return line + "}\n";
}

RunLog::RunLog(std::string path, const RunLogOptions& options)
    : path_(std::move(path)), flush_s_(options.flush_s), flushed_at_s_(now_s()) {
  size_t keep = 0;
  if (options.resume_step >= 0 && is_file(path_)) {
    keep = kept_bytes(read_file(path_), options.resume_step);
  }
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(keep)) != 0) {
    const int error = errno;
    if (file_ >= 0) close(file_);
    fail(ErrorKind::kIo, "run log '{}': cannot write it: {}", path_, why_not_written(error));
  }
}

RunLog::~RunLog() {
  try {
    flush();
  } catch (const Error& e) {
    TRIREME_LOG(kError, "train", "{}", e.text());
  }
  close(file_);
}

void RunLog::write(const RunRecord& record) {
  buffer_ += json_line(record);
  if (buffer_.size() >= kMaxBuffer || now_s() - flushed_at_s_ >= flush_s_) flush();
}

void RunLog::flush() {
  flushed_at_s_ = now_s();
  while (!buffer_.empty()) {
    const ssize_t n = ::write(file_, buffer_.data(), buffer_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::kIo, "run log '{}': cannot write it: {}", path_, why_not_written(errno));
    buffer_.erase(0, static_cast<size_t>(n));
  }
}

std::vector<RunRecord> read_run_log(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<RunRecord> records;
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    auto record = parse_line(std::string_view(text).substr(begin, end - begin));
    if (!record) {
      fail(ErrorKind::kCorrupt, "run log '{}': line {} is not an object with a step and numbers", path, number);
    }
    records.push_back(std::move(*record));
    begin = end + 1;
  }
  return records;
}

}  // namespace trireme
