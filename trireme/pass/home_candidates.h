// What of a program may lie elsewhere than in the device's memory while nothing reads it, and what that costs: for the
// choice of homes under a budget (train/step/compile/choose_homes.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/parallel/asked/home_rules.h"
#include "trireme/pass/passes.h"

namespace trireme {

// All of one kind that belongs to one part of the model, "h.3": parameters, state, gradients, or what its ops make in
// the forward pass for the backward pass.
struct HomeCandidate {
  enum class Kind { kParameters, kState, kGradients, kKept };
  Kind kind = Kind::kState;
  std::string part;
  int64_t bytes = 0;     // on a rank
  int64_t moves = 2;     // of each byte in a step, on its way and back
  double idle_s = 0;     // that they lie there between two uses, in a step as it is modelled; the mean by bytes
  double again_s = -1;   // that computing them again takes instead; below 0: they cannot be
  bool on_host = false;  // they lie there anyway, for ops that run there, and may go on to the disk

  // Whether the device's memory has them at all: state of updates on the host never comes there.
  bool is_on_device() const { return !on_host || kind != Kind::kState; }

  // Bytes that are away for how long, for each byte that moves: what leaves first where memory is short.
  double worth() const { return idle_s / static_cast<double>(moves); }
};

// The best first. `program` has no moves between inputs' homes yet; what rules of `passes` give a home or keep
// otherwise is left out.
std::vector<HomeCandidate> home_candidates(const Program& program, const PassOptions& passes);

// What becomes of a candidate.
struct Leaving {
  const HomeCandidate* candidate = nullptr;
  Tier tier = Tier::kHost;
  bool again = false;  // instead it is computed again
};
// The first of them are the best to leave. Of what is kept, that is computed again which would take longer to move than
// computing it again, where the moves of all, each tier's in its lanes, have no room beside the computing.
void choose_again(std::vector<Leaving>& leaving, double step_s, const Machine& machine);

// Adds the rule for it, before those that are there.
void add_home(const Leaving& leaving, PassOptions& passes);

// The same as a job's file says it.
struct ChosenRule {
  std::string_view key;  // of the section [parallel]: "home" or "keep"
  std::string rule;      // "h.3/state = disk", "h.3 = again"
};
ChosenRule rule_of(const Leaving& leaving);
// "home = ["h.3/state = disk", "h.2/state = disk"]" and "keep = ["h.3 = again"]", as they can stand in [parallel].
std::vector<std::string> as_keys(std::span<const ChosenRule> rules);

}  // namespace trireme
