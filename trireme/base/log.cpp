#include "trireme/base/log.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme {

namespace {

// Those that have lines (tests/house), which TRIREME_LOG and its line of help (flags.cpp) name.
constexpr std::array<std::string_view, 9> kComponents{"ckpt",   "cli",  "comm", "dispatch", "exec",
                                                      "launch", "pass", "plan", "train"};
constexpr std::array<std::string_view, 4> kLevels{"error", "warn", "info", "debug"};

using Levels = std::array<LogLevel, kComponents.size()>;

struct Logger {
  std::array<std::atomic<LogLevel>, kComponents.size()> levels;
  std::atomic<LogLevel> highest{LogLevel::kWarn};  // most lines are off: one load decides
  std::atomic<int> rank{0};
  std::mutex mutex;  // of the sink
  LogSink sink;
};

LogLevel parse_level(std::string_view word, std::string_view whole) {
  const auto found = std::ranges::find(kLevels, word);
  require(found != kLevels.end(), "log levels '{}': '{}' is not a level; one of 'error', 'warn', 'info' or 'debug'",
          whole, word);
  return static_cast<LogLevel>(found - kLevels.begin());
}

Levels parse_levels(std::string_view whole) {
  Levels levels;
  levels.fill(LogLevel::kWarn);
  for (std::string_view rest = whole; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      levels.fill(parse_level(item, whole));
      continue;
    }
    const std::string_view name = item.substr(0, equals);
    const auto found = std::ranges::find(kComponents, name);
    if (found == kComponents.end()) {
      const std::vector<std::string> names(kComponents.begin(), kComponents.end());
      fail(ErrorKind::kInvalidArgument, "log levels '{}': no component named '{}'.{}", whole, name,
           suggestion(name, names));
    }
    levels[static_cast<size_t>(found - kComponents.begin())] = parse_level(item.substr(equals + 1), whole);
  }
  return levels;
}

void put_levels(Logger& logger, const Levels& levels) {
  for (size_t i = 0; i < levels.size(); ++i) logger.levels[i] = levels[i];
  logger.highest = *std::ranges::max_element(levels);
}

// The one piece of global state besides the environment. Never destroyed: threads may log at exit.
Logger& logger() {
  static Logger* const instance = [] {
    auto* fresh = new Logger;
    Levels levels;
    levels.fill(LogLevel::kWarn);
    std::string complaint;
    try {
      if (const auto text = flag_text("TRIREME_LOG")) levels = parse_levels(*text);
    } catch (const Error& e) {  // logging must not be what ends a program
      complaint = log_line(LogLevel::kWarn, time_of_day(), 0, "base", e.text()) + "\n";
    }
    put_levels(*fresh, levels);
    if (!complaint.empty()) (void)!write(STDERR_FILENO, complaint.data(), complaint.size());
    return fresh;
  }();
  return *instance;
}

}  // namespace

void set_log_levels(std::string_view levels) {
  put_levels(logger(), parse_levels(levels));
}

void set_log_rank(int rank) {
  logger().rank = rank;
}

void set_log_sink(LogSink sink) {
  Logger& log = logger();
  const std::lock_guard lock(log.mutex);
  log.sink = std::move(sink);
}

bool log_on(LogLevel level, std::string_view component) {
  const Logger& log = logger();
  if (level > log.highest.load(std::memory_order_relaxed)) return false;
  const auto found = std::ranges::find(kComponents, component);
  // A component outside the list is a slip of ours that must not cost the line.
  if (found == kComponents.end()) return level <= LogLevel::kWarn;
  return level <= log.levels[static_cast<size_t>(found - kComponents.begin())].load(std::memory_order_relaxed);
}

std::string log_line(LogLevel level, std::string_view time, int rank, std::string_view component,
                     std::string_view sentence) {
  const char letter = "EWID"[static_cast<size_t>(level)];
  return fmt::format("{} {} r{} {:<6} {}", letter, time, rank, component, sentence);
}

void write_log(LogLevel level, std::string_view component, std::string_view sentence) {
  Logger& log = logger();
  std::string line = log_line(level, time_of_day(), log.rank, component, sentence);
  const std::lock_guard lock(log.mutex);
  if (log.sink) {
    log.sink(line);
    return;
  }
  line += '\n';
  // One write call, so that lines of several processes on one terminal do not mix.
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace trireme
