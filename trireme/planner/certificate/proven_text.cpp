#include <fmt/format.h>

#include <algorithm>

#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/certificate/verify_certificate.h"

namespace trireme {
namespace {

std::string certified_ms(int64_t ps) {
  return fmt::format("{:.3f} ms", static_cast<double>(ps) * 1e-9);
}

std::string certified_mib(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

}  // namespace

std::string proven_text(const Certificate& c) {
  std::string out = fmt::format("certificate for step {}, {} ranks of '{}' with {} each\n", c.graph, c.ranks, c.machine,
                                certified_mib(c.memory));
  const CertifiedLedger& l = c.ledger;
  const auto counts = [&] {
    const size_t tables = c.alone.size() + c.prices.size();
    return fmt::format(
        "its {} ways are {}\n"
        "  {:>8} do not divide, or are refused by the compiler\n"
        "  {:>8} are too large by their parameters and state alone\n"
        "  {:>8} are slower by their arithmetic alone\n"
        "  {:>8} are slower by what their tables, or bounds from others, say\n"
        "  {:>8} fit by no cut into stages\n"
        "  {:>8} have state, updates or kept activations farther, or these in slices, without need\n"
        "  {:>8} fit, {}\n"
        "it rests on {} tables of what parts of the model take\n",
        l.ways, certified_space_text(), l.do_not_divide, l.memory_least, l.bound, l.slower, l.memory, l.needless,
        l.solved, c.best.empty() ? "which is none" : "and no cut of them is faster than the best", tables);
  };
  if (c.best.empty()) return out + "proven: no way in its space fits in the memory of a rank\n" + counts();
  const CertifiedPlan& best = c.best.front();
  const int64_t most = *std::ranges::max_element(best.crew_bytes);
  out += fmt::format("plan {} micro_batches={}\n", certified_way_text(best.way), best.way.micro_batches);
  out += fmt::format("proven: by its tables it fits, the fullest rank holds {}; it takes {} a step, exactly {} ps\n",
                     certified_mib(most), certified_ms(best.step_ps), best.step_ps);
  out += "proven: no other way in its space takes less; the gap is 0\n";
  for (size_t i = 1; i < c.best.size(); ++i)
    out += fmt::format("proven: the next best, {}, takes {}\n", certified_way_text(c.best[i].way),
                       certified_ms(c.best[i].step_ps));
  return out + counts();
}

}  // namespace trireme
