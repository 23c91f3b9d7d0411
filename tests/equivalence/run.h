// Runs cases on ranks that are threads, through the whole chain (partition, passes, execution plan,
// executor), and compares every output with what one device computes.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/equivalence/case.h"
#include "trireme/comm/comm.h"

namespace trireme::equivalence {

struct Verdict {
  enum class Kind {
    kAgrees,
    kDiffers,  // a result is wrong
    kSlope,    // a gradient is not that of the loss; found on one device
    kFails,    // something threw, or a check of the program or the plan found it unsound
    kWild,     // not compared: values grow out of bounds on one device
  };
  Kind kind = Kind::kAgrees;
  std::string text;
  int compared = 0;  // outputs
  int vague = 0;     // of these, outputs so ill-conditioned that little can be said of them

  bool is_bad() const { return kind != Kind::kAgrees && kind != Kind::kWild; }
};

// One verdict a case. Cases for the same number of ranks and transport share the threads.
std::vector<Verdict> run_cases(std::span<const Case> cases);

// One case on the ranks of this world, which are as many as its mesh has; collective. All ranks come to the same
// verdict.
Verdict run_case_over(comm::World& world, const Case& test);

// The ops, kernels and options of a case's plan, by name.
std::set<std::string> reached_by(const Case& test);

// The case's program as its ranks run it, of each crew; or what is wrong with it.
std::string program_text(const Case& test);

// Random cases of these seeds, up to the first that is bad: then what is wrong, the seed, and the
// smallest case that goes wrong in the same way. "" when all agree.
struct Tally {
  std::string failure;
  int cases = 0;
  int wild = 0;
  struct Outputs {
    int compared = 0;
    int vague = 0;
  };
  Outputs in_wide, in_bf16;  // of graphs that compute in f32 or f64, and in bf16
};
// On the device that each draws, or, with a name, cases of fast numerics on that one.
Tally run_seeds(uint32_t first, uint32_t count, bool shrink, const std::string& device = "");

}  // namespace trireme::equivalence
