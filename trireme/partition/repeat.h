// Repeating what a crew does for each micro-batch: from the program of a step with few micro-batches, after its passes,
// to that of a step with many. So passes work on a program that does not grow with micro-batches.
//
// A crew's program has a part that occurs several times in a row. Its nodes are the same each time, except that they
// belong to micro-batches that are a fixed number later, and that each reads what nodes the same number of values
// earlier made. What crosses from one repetition to the next is the same as well. So one more repetition, or many, make
// the program of a step with more micro-batches: what a repetition reads and leaves behind is, each time, what the next
// one reads.
#pragma once

#include <optional>

#include "trireme/ir/program.h"
#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

struct Repeat {
  int micro_batches = 1;  // of the timetable, that are done in the part that is repeated
  int times = 0;          // that it is repeated more
  Unit at;                // about where: before the nodes of this unit; stage -1: of any stage
};

// The program of a crew whose micro-batches are the first of more, with the others added; `of_each` micro-batches of
// the program are one of the timetable. Nothing if the program does not repeat as described, or repeats less often
// before the place than the distance over which it reads.
std::optional<Program> repeated(const Program& program, const Repeat& repeat, int of_each);

}  // namespace trireme
