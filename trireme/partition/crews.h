// From the program of all stages of a pipeline to one program for each crew. Each takes the nodes of its stages, in the
// order of the timetable's units, and receives a message where it reads what another crew makes.
//
// A unit has the nodes of its pass, stage and micro-batch (or micro-batches, where several are interleaved). Of nodes
// that belong to all micro-batches,
//   what depends on parameters or the batch alone stands where it is first read,
//   sums over micro-batches after the unit that has the last term,
//   the rest, updates among them, after all units, or before the first unit that depends on it, by way of this crew or
//   of others; first what waits for no other crew, such as squares for a norm that is summed from crew to crew.
// A message is sent as soon as its value is made, and asked for one unit before that of its first reader. A parameter
// that another crew reads, too, is sent once a step. What a step reports (outputs that update nothing) all crews have.
//
// If a timetable has the backward pass in two halves, weight gradients are the nodes on which no other gradient of the
// stage depends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/parallel/timetable/timetable.h"

namespace trireme {

// Throws kInvalidArgument where the program's micro-batches do not divide into the timetable's, or where an op works on
// all micro-batches at once (batch statistics, places of experts) and the timetable does not have all forward passes,
// and all backward passes, in a row.
std::vector<Program> in_crews(const Program& program, const Timetable& timetable);
// Of these crews alone.
std::vector<Program> in_crews(const Program& program, const Timetable& timetable, std::span<const size_t> crews);

}  // namespace trireme
