#include "tests/equivalence/case.h"

#include "tests/equivalence/random_graph.h"
#include "tests/equivalence/random_strategy.h"
#include "trireme/base/error.h"
#include "trireme/op/registry.h"

namespace trireme::equivalence {
namespace {

constexpr std::string_view kStrategy = "strategy mesh=";

int64_t number_after(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  require(at != std::string_view::npos,
          "a case begins with 'case seed=... steps=... bucket=... passes=... alltoall=... "
          "shm=...', not '{}'",
          line);
  return std::stoll(std::string(line.substr(at + key.size())));
}

}  // namespace

Case random_case(uint32_t seed) {
  Draw draw(seed);
  Case out;
  out.seed = seed;
  out.graph = random_graph(draw);
  out.strategy = random_strategy(out.graph, draw);
  for (const Output& output : out.graph.outputs()) {
    if (output.updates != kNoValue) out.steps = 3;
  }
  out.bucket_bytes = draw.of({1, 200, 1000, 0});
  out.passes = draw.chance(80);
  out.all_to_all = draw.chance(80);
  if (draw.chance(10)) out.transport = "shm";
  return out;
}

std::string to_string(const Case& test) {
  return fmt::format("case seed={} steps={} bucket={} passes={:d} alltoall={:d} shm={:d}\n{}{}",
                     test.seed, test.steps, test.bucket_bytes, test.passes, test.all_to_all,
                     test.transport == "shm", to_string(test.graph),
                     to_string(test.graph, test.strategy));
}

Case parse_case(std::string_view text) {
  const size_t end = text.find('\n');
  const size_t strategy = text.find(kStrategy);
  require(end != std::string_view::npos && strategy != std::string_view::npos,
          "a case is a line, a graph and a strategy");
  const std::string_view line = text.substr(0, end);
  Case out;
  out.seed = static_cast<uint32_t>(number_after(line, "seed="));
  out.steps = static_cast<int>(number_after(line, "steps="));
  out.bucket_bytes = number_after(line, "bucket=");
  out.passes = number_after(line, "passes=") != 0;
  out.all_to_all = number_after(line, "alltoall=") != 0;
  out.transport = number_after(line, "shm=") != 0 ? "shm" : "threads";
  out.graph = parse_graph(text.substr(end + 1, strategy - end - 1), find_op_base);
  out.strategy = parse_strategy(text.substr(strategy), out.graph);
  return out;
}

}  // namespace trireme::equivalence
