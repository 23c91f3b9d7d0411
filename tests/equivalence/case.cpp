#include "tests/equivalence/case.h"

#include <fmt/ranges.h>

#include <sstream>

#include "tests/equivalence/oracle.h"
#include "tests/equivalence/random_graph.h"
#include "tests/equivalence/random_strategy.h"
#include "trireme/base/error.h"
#include "trireme/op/registry.h"
#include "trireme/partition/partition.h"
#include "trireme/plan/parallel.h"
#include "trireme/train/step/invariant.h"

namespace trireme::equivalence {
namespace {

constexpr std::string_view kStrategy = "strategy mesh=";

std::string word_after(std::string_view line, std::string_view key, const std::string& otherwise) {
  const size_t at = line.find(fmt::format(" {}=", key));
  if (at == std::string_view::npos) return otherwise;
  const std::string_view word = line.substr(at + key.size() + 2);
  return std::string(word.substr(0, word.find(' ')));
}

int64_t number_after(std::string_view line, std::string_view key, int64_t otherwise) {
  const std::string word = word_after(line, key, "");
  return word.empty() ? otherwise : std::stoll(word);
}

std::vector<int64_t> numbers_after(std::string_view line, std::string_view key) {
  std::vector<int64_t> out;
  std::stringstream all(word_after(line, key, ""));
  for (std::string number; std::getline(all, number, ',');) out.push_back(std::stoll(number));
  return out;
}

// How a training step is made, beside how it is cut.
void add_options(Case& test, Draw& draw) {
  if (draw.chance(20)) {
    test.bucket_bytes = 0;
    for (int64_t end = draw.below(3) + 1; end < 9; end += draw.below(3) + 1) test.bucket_ends.push_back(end);
  }
  test.is_saved = draw.chance(15);
  test.recompute = draw.chance(25);
  if (test.numerics == Numerics::kInvariant) return;  // has threads of its own, and takes no loss in pieces
  if (draw.chance(8)) test.threads = static_cast<int>(draw.of({2, 3}));
  if (draw.chance(40)) test.loss_pieces = draw.of({2, 3});
  const int64_t sums = draw.below(4);
  if (computes_in_bf16(test.graph) && sums < 2) test.sums = sums == 0 ? "narrow" : "f32";
}

Case any_case(uint32_t seed, Numerics numerics, Draw& draw) {
  Case out;
  out.seed = seed;
  out.numerics = numerics;
  out.graph = random_graph(draw, numerics);
  out.strategy = random_strategy(out.graph, draw, numerics);
  for (const Output& output : out.graph.outputs()) {
    if (output.updates != kNoValue) out.steps = computes_in_bf16(out.graph) ? 2 : 3;
  }
  out.bucket_bytes = draw.of({1, 200, 1000, 0});
  out.passes = draw.chance(80);
  out.all_to_all = draw.chance(80);
  if (draw.chance(10)) out.transport = draw.chance(25) ? "ucx" : "shm";
  add_options(out, draw);
  return out;
}

bool is_accepted(const Case& test) {
  try {
    require_invariant(test.graph, test.strategy);
    require_invariant(partitioned(test));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::kUnsupported) throw;
    return false;
  }
  return true;
}

}  // namespace

Case random_case(uint32_t seed) {
  Draw draw(seed);
  if (seed % 8 != 5) return any_case(seed, Numerics::kFast, draw);
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Case out = any_case(seed, Numerics::kInvariant, draw);
    if (is_accepted(out)) return out;
  }
  fail(ErrorKind::kInternal, "numerics = 'invariant' refuses {} random cases", kAttempts);
}

Program partitioned(const Case& test) {
  const bool added_up_later = test.numerics == Numerics::kFast && test.seed % 3 == 0;  // another tree of sums
  const Communication how{.all_to_all = test.all_to_all,
                          .gradients_in_f32 = test.sums != "narrow",
                          .all_in_f32 = test.sums == "f32",
                          .shard_accumulation = added_up_later};
  const Strategy saved = test.is_saved ? parse_strategy(to_string(test.graph, test.strategy), test.graph) : Strategy{};
  return partition(test.graph, test.is_saved ? saved : test.strategy,
                   {.costs = reshard_costs(how, test.strategy.mesh), .sum_types = sum_types(test.graph, how)});
}

std::string to_string(const Case& test) {
  return fmt::format(
      "case seed={} steps={} bucket={} ends={} passes={:d} alltoall={:d} transport={} threads={} recompute={:d} "
      "pieces={} "
      "saved={:d} sums={} invariant={:d}\n{}{}",
      test.seed, test.steps, test.bucket_bytes, fmt::join(test.bucket_ends, ","), test.passes, test.all_to_all,
      test.transport, test.threads, test.recompute, test.loss_pieces, test.is_saved, test.sums,
      test.numerics == Numerics::kInvariant, to_string(test.graph), to_string(test.graph, test.strategy));
}

Case parse_case(std::string_view text) {
  const size_t end = text.find('\n');
  const size_t strategy = text.find(kStrategy);
  require(end != std::string_view::npos && strategy != std::string_view::npos,
          "a case is a line, a graph and a strategy");
  const std::string_view line = text.substr(0, end);
  Case out;
  // What a line does not name is as a case has it that asks for nothing.
  require(line.starts_with("case seed="), "a case begins with 'case seed=...', not '{}'", line);
  out.seed = static_cast<uint32_t>(number_after(line, "seed", 0));
  out.steps = static_cast<int>(number_after(line, "steps", 1));
  out.bucket_bytes = number_after(line, "bucket", 0);
  out.bucket_ends = numbers_after(line, "ends");
  out.passes = number_after(line, "passes", 1) != 0;
  out.all_to_all = number_after(line, "alltoall", 1) != 0;
  out.transport = word_after(line, "transport", "threads");
  out.threads = static_cast<int>(number_after(line, "threads", 1));
  out.recompute = number_after(line, "recompute", 0) != 0;
  out.loss_pieces = number_after(line, "pieces", 1);
  out.is_saved = number_after(line, "saved", 0) != 0;
  out.sums = word_after(line, "sums", "own");
  out.numerics = number_after(line, "invariant", 0) != 0 ? Numerics::kInvariant : Numerics::kFast;
  out.graph = parse_graph(text.substr(end + 1, strategy - end - 1), find_op_base);
  out.strategy = parse_strategy(text.substr(strategy), out.graph);
  return out;
}

}  // namespace trireme::equivalence
