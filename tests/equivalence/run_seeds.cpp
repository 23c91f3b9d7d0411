// Many random cases, up to the first that is bad, which is made smaller.
#include <fmt/core.h>

#include "tests/equivalence/oracle.h"
#include "tests/equivalence/run.h"
#include "tests/equivalence/shrink.h"

namespace trireme::equivalence {
namespace {

constexpr uint32_t kBatch = 48;  // cases that are made, run and compared together

std::string beginning(const std::string& text) {
  return text.substr(0, 24);
}

std::string report(const Case& test, const Verdict& verdict, bool shrink) {
  const std::string what = fmt::format("seed {}: {}\n", test.seed, verdict.text);
  if (!shrink) return what;
  // A gradient belongs to its whole graph.
  if (verdict.kind == Verdict::Kind::kSlope) return what + to_string(test);
  const Case small = shrunk(test, [&](const Case& smaller) {
    const Verdict now = run_cases({&smaller, 1}).front();
    if (now.kind != verdict.kind || !is_accepted(smaller)) return false;
    return now.kind == Verdict::Kind::kDiffers || beginning(now.text) == beginning(verdict.text);
  });
  const std::string program = program_text(small);
  return fmt::format("{}the smallest case like it: {}\n{}its program:\n{}", what, run_cases({&small, 1}).front().text,
                     to_string(small), program);
}

}  // namespace

Tally run_seeds(uint32_t first, uint32_t count, bool shrink, const std::string& device) {
  Tally tally;
  for (uint32_t from = first; from < first + count; from += kBatch) {
    std::vector<Case> cases;
    for (uint32_t seed = from; seed < std::min(from + kBatch, first + count); ++seed) {
      try {
        Case& test = cases.emplace_back(random_case(seed));
        if (!device.empty() && test.numerics == Numerics::kFast) test.device = device, test.lingers = false;
      } catch (const std::exception& e) {
        tally.failure = fmt::format("seed {}: no case can be made: {}", seed, e.what());
        return tally;
      }
    }
    const std::vector<Verdict> verdicts = run_cases(cases);
    for (size_t i = 0; i < cases.size(); ++i) {
      ++tally.cases;
      tally.wild += verdicts[i].kind == Verdict::Kind::kWild ? 1 : 0;
      Tally::Outputs& outputs = computes_in_bf16(cases[i].graph) ? tally.in_bf16 : tally.in_wide;
      outputs.compared += verdicts[i].compared;
      outputs.vague += verdicts[i].vague;
      if (!verdicts[i].is_bad()) continue;
      tally.failure = report(cases[i], verdicts[i], shrink);
      return tally;
    }
  }
  return tally;
}

}  // namespace trireme::equivalence
