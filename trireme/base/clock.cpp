#include "trireme/base/clock.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace trireme {

double now_s() {
  return std::chrono::duration<double>(SteadyClock::now().time_since_epoch()).count();
}

std::chrono::milliseconds Deadline::remaining() const {
  const auto left = start_ + span_ - SteadyClock::now();
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(left), std::chrono::milliseconds(0));
}

std::string time_of_day() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec, now.tv_nsec / 1'000'000);
}

std::string utc_text(double unix_time) {
  const auto whole = static_cast<time_t>(unix_time);
  tm utc{};
  gmtime_r(&whole, &utc);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour,
                     utc.tm_min);
}

double unix_time_s() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds > 1e9) return "?";
  const long whole = std::lround(seconds);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  const long minutes = std::lround(seconds / 60);
  if (minutes < 24 * 60) return fmt::format("{}h{:02}m", minutes / 60, minutes % 60);
  const long hours = std::lround(seconds / 3600);
  return fmt::format("{}d{:02}h", hours / 24, hours % 24);
}

double seconds_since_start_of(int pid) {
  std::string text;
  std::getline(std::ifstream(fmt::format("/proc/{}/stat", pid)), text, '\0');  // "" where it has ended
  // The second field is the program's name in parentheses and may hold spaces; the 22nd is the start.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) fields >> word;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double ticks = std::strtod(word.c_str(), nullptr);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace trireme
