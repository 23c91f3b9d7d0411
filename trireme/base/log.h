// Logging: one sink (standard error unless replaced), levels per component, one line per record:
//   I 12:03:04.123 r3 plan   chose 'dp,tp' for 'w_up'  cost_us=412 mem_mb=118
// which is level, time, rank, component, sentence, then key=value pairs after two spaces.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>

namespace trireme {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

// Grammar of TRIREME_LOG: "warn,plan=debug,comm=info". A level alone sets all components,
// so it comes first. Throws on unknown words and then changes nothing. Until it is called, levels
// come from the environment, warn without.
void set_log_levels(std::string_view levels);

// The rank printed in each line; 0 until set.
void set_log_rank(int rank);

// Where lines go, without their newline. Called by one thread at a time. An empty function restores
// standard error.
using LogSink = std::function<void(std::string_view line)>;
void set_log_sink(LogSink sink);

bool log_on(LogLevel level, std::string_view component);
// Writes the line whatever the levels say: use the macro below.
void write_log(LogLevel level, std::string_view component, std::string_view sentence);
// The line alone, for the sink's tests and for tools that write such lines elsewhere.
std::string log_line(LogLevel level, std::string_view time, int rank, std::string_view component,
                     std::string_view sentence);

}  // namespace trireme

// TRIREME_LOG(kInfo, "plan", "chose '{}' for '{}'  cost_us={}", layout, name, cost);
// A macro so that the arguments are evaluated only if the line is on.
#define TRIREME_LOG(level, component, ...)                                                     \
  do {                                                                                         \
    if (::trireme::log_on(::trireme::LogLevel::level, component)) {                            \
      ::trireme::write_log(::trireme::LogLevel::level, component, ::fmt::format(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)
