// A timetable in virtual time: when each unit runs if passes take given times, how long crews idle, and how many
// micro-batches' activations a crew keeps.
#pragma once

#include <string>
#include <vector>

#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

struct UnitCosts {
  double forward = 1;     // of one stage, micro-batch and chunk; any unit of time
  double input_grad = 1;  // a whole backward pass takes both
  double weight_grad = 1;
  double transfer = 0;                // from the end of a unit until another crew can read its result
  std::vector<double> of_stage = {};  // factors, one for each stage; empty: all stages cost the same
};

// What a unit takes.
double cost_of(const Unit& unit, const UnitCosts& costs);

struct TimetableTime {
  struct Span {
    double begin = 0;
    double end = 0;
  };
  struct Crew {
    std::vector<Span> units;  // in the timetable's order
    double begin = 0;         // of the first
    double end = 0;           // of the last
    double busy = 0;
    // The most units at once whose forward pass has begun and whose backward pass, weights included, has not ended:
    // the activations that the crew keeps.
    int live = 0;
    double bubble() const { return end - begin - busy; }
  };
  std::vector<Crew> crews;
  double makespan = 0;
  double bubble = 0;  // the largest of a crew's, from its first unit to its last
};

// Each unit starts as soon as its crew is free and what it needs is there. Throws as check does.
TimetableTime time_of(const Timetable& timetable, const UnitCosts& costs = {});

// A line for each crew, a column of three characters for each of `columns` equal parts of the time: the unit at work
// with its micro-batch, "=" where it goes on, "." where the crew idles.
std::string picture_of(const Timetable& timetable, const TimetableTime& time, int columns);

}  // namespace trireme
