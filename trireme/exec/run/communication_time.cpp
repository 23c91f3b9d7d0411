#include "trireme/exec/run/communication_time.h"

#include <algorithm>

namespace trireme {

CommunicationTime communication_time(std::span<const Interval> flights, std::span<const Interval> stops) {
  using Duration = std::chrono::steady_clock::duration;
  Duration busy{}, exposed{};
  std::chrono::steady_clock::time_point covered =
      std::chrono::steady_clock::time_point::min();  // nothing after is counted
  const auto cover = [&](const Interval& next) {
    const auto begin = std::max(next.begin, covered);
    if (next.end <= begin) return;
    busy += next.end - begin;
    covered = next.end;
  };
  size_t flight = 0;
  for (const Interval& stop : stops) {
    while (flight < flights.size() && flights[flight].begin <= stop.begin) cover(flights[flight++]);
    cover(stop);
    exposed += stop.end - stop.begin;
  }
  while (flight < flights.size()) cover(flights[flight++]);
  return {std::chrono::duration<double>(busy).count(), std::chrono::duration<double>(exposed).count()};
}

}  // namespace trireme
