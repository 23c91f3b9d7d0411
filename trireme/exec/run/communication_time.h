// How long a rank communicates in a step, and how much of that its computing hides.
#pragma once

#include <chrono>
#include <span>

namespace trireme {

struct Interval {
  std::chrono::steady_clock::time_point begin, end;
};

struct CommunicationTime {
  double busy_s = 0;     // in which an operation was under way, from its start to its end on this rank
  double exposed_s = 0;  // of it, in which the compute lane started an operation, waited for it or unpacked what came
  double begin_s =
      0;  // from the step's beginning to that of its first operation: no communication before it can be hidden
  double hidden_s() const { return busy_s - exposed_s; }
  double hidden_percent() const { return busy_s > 0 ? 100 * hidden_s() / busy_s : 0; }

  CommunicationTime& operator+=(const CommunicationTime& other) {
    busy_s += other.busy_s;
    exposed_s += other.exposed_s;
    begin_s += other.begin_s;
    return *this;
  }
  CommunicationTime& operator/=(double steps) {
    busy_s /= steps;
    exposed_s /= steps;
    begin_s /= steps;
    return *this;
  }
};

// `flights`: each operation from its start to its end; they may overlap. `stops`: what the compute lane spent on them,
// one after the other. Both in the order of their beginnings. Busy is the length of the union of all, so that exposed
// is never more. `begin_s` is left 0.
CommunicationTime communication_time(std::span<const Interval> flights, std::span<const Interval> stops);

}  // namespace trireme
