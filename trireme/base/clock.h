// Time: deadlines and elapsed seconds on the steady clock, the time of day for people, durations as
// text.
#pragma once

#include <chrono>
#include <string>

namespace trireme {

using SteadyClock = std::chrono::steady_clock;

// Seconds on the steady clock since some fixed moment: for differences only.
double now_s();

// A moment by which something must be done.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds from_now) : start_(SteadyClock::now()), span_(from_now) {}
  bool passed() const { return SteadyClock::now() - start_ >= span_; }
  // Never negative; rounded up to a whole millisecond, so that a poll with it does not end too
  // early.
  std::chrono::milliseconds remaining() const;
  double elapsed_s() const { return std::chrono::duration<double>(SteadyClock::now() - start_).count(); }
  std::chrono::milliseconds span() const { return span_; }

 private:
  SteadyClock::time_point start_;
  std::chrono::milliseconds span_;
};

// Local time of day, "12:03:04.123".
std::string time_of_day();
// Seconds since 1970 with fraction.
double unix_time_s();
std::string utc_text(double unix_time);  // "2026-01-31 09:05 UTC"

// Seconds since a process began (to the kernel's clock tick, 10 ms); 0 when that is not known.
double seconds_since_start_of(int pid);

// "412 us", "3.1 ms", "59.2 s", "12m05s", "3h04m", "2d03h".
std::string duration_text(double seconds);

}  // namespace trireme
