#include "trireme/planner/outer/least_part.h"

#include <algorithm>
#include <array>

namespace trireme {
namespace {

using LeastField = int64_t PartPrice::*;
constexpr std::array kOfRows{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                             &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward,
                             &PartPrice::leaving, &PartPrice::returning,      &PartPrice::kept,
                             &PartPrice::waiting, &PartPrice::kept_host,      &PartPrice::kept_disk};
constexpr std::array kOfPasses{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                               &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward,
                               &PartPrice::leaving, &PartPrice::returning};
constexpr std::array kOfSteps{&PartPrice::update, &PartPrice::sync,    &PartPrice::held,  &PartPrice::gradients,
                              &PartPrice::work,   &PartPrice::coming,  &PartPrice::going, &PartPrice::host,
                              &PartPrice::disk,   &PartPrice::updating};

// What is left of it on the device of `bytes` of the whole model.
int64_t share_of_persistent(int64_t persistent, int64_t bytes, const LeastPartOf& of) {
  constexpr int64_t kWhole = 1024;
  return persistent * (bytes / ((of.parameter_bytes + of.state_bytes) / kWhole + 1)) / kWhole;
}

void add_least_persistent(int64_t persistent, const LeastPartOf& of, PartPrice& out) {
  const int64_t ranks = of.zero >= 3 ? of.ranks : 1;
  if (of.update_elsewhere && (of.zero == 0 || of.zero >= 3)) {
    out.held = share_of_persistent(persistent, of.weight_bytes, of) / ranks;
  } else if (of.state_elsewhere || of.zero == 1 || of.zero == 2) {
    out.persistent = share_of_persistent(persistent, of.parameter_bytes, of) / ranks;
  } else {
    out.persistent = persistent / ranks;
  }
}

}  // namespace

// Those of the step, and moves, are of its own table without slices alone.
LeastPartOf LeastPartOf::for_times() const {
  LeastPartOf out{.rows = rows, .rows_of_table = rows_of_table, .is_own = is_own && zero == 0};
  if (!out.is_own) return out;
  out.state_elsewhere = state_elsewhere;
  out.update_elsewhere = update_elsewhere;
  return out;
}

PartPrice least_part(const PartPrice& alone, const LeastPartOf& of) {
  PartPrice out;
  for (const LeastField field : kOfRows) {
    const int64_t of_all = field == &PartPrice::weight_grad ? alone.adding : 0;
    out.*field = of_all + (alone.*field - of_all) * of.rows / of.rows_of_table;
  }
  add_least_persistent(alone.persistent, of, out);
  if (of.is_own && of.zero == 0) {
    for (const LeastField field : kOfSteps) {
      const bool is_time = field == &PartPrice::update || field == &PartPrice::sync;
      if (is_time || !of.state_elsewhere) out.*field = alone.*field;
    }
    out.update = of.update_elsewhere ? 0 : out.update - alone.tied_adding;
  }
  if (of.zero <= 1) {
    out.gradients = std::max(out.gradients, alone.sums);
    out.tied_sums = alone.tied_sums;
  }
  return out;
}

PartPrice least_of_cut_part(const PartPrice& uncut, const CutMore& by) {
  PartPrice out{.moving_forward = uncut.moving_forward / by.cp, .moving_backward = uncut.moving_backward / by.cp};
  if (by.more_ep) return out;
  const int64_t pieces = by.tp * by.cp;
  out.forward = uncut.forward / pieces;
  out.input_grad = uncut.input_grad / pieces;
  out.adding = uncut.adding / by.tp;
  out.weight_grad = out.adding + (uncut.weight_grad - uncut.adding) / pieces;
  return out;
}

void raise_kept_moves(PartPrice& part, const KeptOf& of) {
  for (const LeastField field : {&PartPrice::leaving, &PartPrice::returning})
    part.*field = std::max(part.*field, of.known.*field * of.rows / of.rows_of_table);
}

void raise_exchanged(PartPrice& part, const ExchangedBy& by) {
  if (by.zero == 1) {
    part.sync = std::max(part.sync, by.summed.sync);
  } else {
    const int64_t scattered = std::max<int64_t>(0, by.summed.sync - by.unsummed.sync) / 32 * 15;
    part.moving_backward = std::max(part.moving_backward, by.alone.moving_backward + scattered);
  }
}

void limit_tied(std::vector<PartPrice>& parts, const std::vector<PartPrice>& least) {
  PartPrice &first = parts.front(), &last = parts.back();
  const PartPrice &least_first = least.front(), &least_last = least.back();
  const int64_t more = std::min(first.update - least_first.update, first.once() - least_first.once());
  first.tied_adding = std::min(first.tied_adding, more);
  last.tied_forward = std::min(last.tied_forward, last.moving_forward - least_last.moving_forward);
  last.tied_backward = std::min(last.tied_backward, last.moving_backward - least_last.moving_backward);
}

void raise_passes(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : kOfPasses) part.*field = std::max(part.*field, least.*field);
}

void raise_moved(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : {&PartPrice::moving_forward, &PartPrice::moving_backward, &PartPrice::sync})
    part.*field = std::max(part.*field, least.*field);
}

void raise_part(PartPrice& part, const PartPrice& least) {
  for (const LeastField field : kOfRows) part.*field = std::max(part.*field, least.*field);
  for (const LeastField field : kOfSteps) part.*field = std::max(part.*field, least.*field);
  part.persistent = std::max(part.persistent, least.persistent);
}

}  // namespace trireme
