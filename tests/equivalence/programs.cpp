#include "tests/equivalence/programs.h"

#include <optional>
#include <utility>

#include "tests/equivalence/options.h"
#include "trireme/base/error.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/repeat.h"

namespace trireme::equivalence {
namespace {

// None where programs are to be repeated that do not repeat.
std::optional<std::vector<Program>> with_passes(const Case& test, CrewPrograms made, const PassOptions& passes) {
  std::vector<Program> out;
  for (Program& program : made.programs) {
    refuse(verify(program), "program of a crew");
    if (test.passes) program = run_passes(std::move(program), passes);
    if (!made.repeats.crews.empty()) {
      std::optional<Program> all = repeated(program, made.repeats.crews[out.size()], made.repeats.of_each);
      if (!all) return std::nullopt;
      program = std::move(*all);
      refuse(verify(program), "program of a crew that is repeated");
    }
    out.push_back(std::move(program));
  }
  return out;
}

}  // namespace

void refuse(const std::vector<std::string>& findings, std::string_view what) {
  if (!findings.empty()) fail(ErrorKind::kInternal, "{}: {}", what, findings.front());
}

CrewPrograms crew_programs(const Case& test, const Graph& graph, Program whole, bool may_repeat) {
  const int64_t count = micro_batches(whole.mesh);
  if (test.crews == 1 && test.seed % 2 == 0) {
    CrewPrograms out;
    out.programs.push_back(in_micro_batches(whole, {.sums_in_tree = true, .interleave = interleave_of(test, count)}));
    return out;
  }
  Compiled from;
  from.graph = graph;
  from.partitioned = std::move(whole);
  return unrolled(std::move(from), {.parallel = parallel_of(test, count), .numerics = test.numerics, .repeat_from = 0},
                  may_repeat);
}

Programs programs_of(const Case& test, const Graph& graph, const Program& whole, const PassOptions& passes) {
  CrewPrograms few = crew_programs(test, graph, whole, true);
  const int64_t repeated = few.whole.repeated;
  if (auto made = with_passes(test, std::move(few), passes)) return {std::move(*made), repeated};
  return {*with_passes(test, crew_programs(test, graph, whole, false), passes), 0};
}

}  // namespace trireme::equivalence
