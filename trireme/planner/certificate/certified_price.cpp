#include "trireme/planner/certificate/certified_price.h"

#include <algorithm>

#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
namespace {

int64_t forward_of(const CertifiedPart& part) {
  return exact_sum(part.forward, part.moving_forward);
}
// For whose gradients the stage before waits.
int64_t backward_of(const CertifiedPart& part) {
  return exact_sum(exact_sum(part.again, part.input_grad), part.moving_backward);
}
int64_t pass_of(const CertifiedPart& part) {
  return exact_sum(exact_sum(forward_of(part), backward_of(part)), part.weight_grad);
}
int64_t once_of(const CertifiedPart& part) {
  return exact_sum(part.update, part.sync);
}

// How many of the parts from `begin` up to `end` are blocks; part 0 is none, nor is the last.
int64_t blocks_in(int64_t begin, int64_t end, int64_t layers) {
  return std::max<int64_t>(0, std::min(end, layers + 1) - std::max<int64_t>(begin, 1));
}

}  // namespace

CertifiedPrice::CertifiedPrice(const CertifiedWay& way, const CertifiedTable& table, int64_t layers, int64_t memory)
    : way_(way), table_(table), layers_(layers), memory_(memory) {}

// 1F1B's stage s has run pp - s forward passes when its first gradient comes. A crew of zb-h1, which puts off weight
// gradients, has those of s micro-batches to do as well, and of one more when it has just put off one. One of zb-h2
// runs as far ahead again, and puts off up to two more.
int64_t CertifiedPrice::activations(int64_t stage, int64_t kept, int64_t waiting) const {
  const int64_t whole = way_.pp - stage;
  if (way_.schedule == "1f1b") return exact_product(kept, whole);
  const auto of = [&](int64_t in_flight, int64_t put_off) {
    return exact_sum(exact_product(kept, in_flight), exact_product(waiting, put_off));
  };
  if (way_.schedule == "zb-h1") return std::max(of(whole, stage), of(whole - 1, stage + 1));
  const int64_t ahead = 2 * whole - 1, more = std::min<int64_t>(ahead, 2);
  return std::max(of(ahead, 2 * stage), of(ahead - more, 2 * stage + more));
}

// What the pipeline idles: pp - 1 times a stage's forward pass and its input gradients; and weight gradients on top,
// which zb-h1 has idle crews compute instead. With zb-h2 they run forward passes while they wait for gradients.
int64_t CertifiedPrice::idle(int64_t weight_grads) const {
  const auto of_all = [&](auto value) {
    return exact_sum(exact_sum(value(table_.before), value(table_.after)), exact_product(value(table_.block), layers_));
  };
  const int64_t waited =
      way_.schedule == "zb-h2" ? of_all(forward_of) : exact_sum(of_all(forward_of), of_all(backward_of));
  const int64_t sum = way_.schedule == "1f1b"    ? exact_sum(waited, weight_grads)
                      : way_.schedule == "zb-h1" ? exact_sum(waited, -weight_grads)
                                                 : waited;
  return std::max<int64_t>(0, exact_product(sum, way_.pp - 1)) / way_.pp;
}

int64_t CertifiedPrice::fill() const {
  return idle(exact_sum(exact_sum(table_.before.weight_grad, table_.after.weight_grad),
                        exact_product(table_.block.weight_grad, layers_)));
}

int64_t CertifiedPrice::step_of(int64_t slowest, int64_t once) const {
  return exact_sum(exact_sum(exact_product(slowest, way_.micro_batches), fill()),
                   exact_sum(exact_product(table_.crossing, way_.pp - 1), once));
}

CertifiedPrice::Sum CertifiedPrice::sum_of(int64_t stage, int64_t begin, int64_t end) const {
  Sum out;
  int64_t kept = 0, waiting = 0, work = 0;
  const auto add = [&](const CertifiedPart& part, int64_t times) {
    if (times == 0) return;
    out.pass = exact_sum(out.pass, exact_product(pass_of(part), times));
    out.once = exact_sum(out.once, exact_product(once_of(part), times));
    out.bytes = exact_sum(out.bytes, exact_product(exact_sum(part.persistent, part.gradients), times));
    kept = exact_sum(kept, exact_product(part.kept, times));
    waiting = exact_sum(waiting, exact_product(part.waiting, times));
    work = std::max(work, part.work);
  };
  add(table_.before, begin == 0 ? 1 : 0);
  add(table_.block, blocks_in(begin, end, layers_));
  add(table_.after, end == layers_ + 2 ? 1 : 0);
  out.bytes = exact_sum(out.bytes, exact_sum(activations(stage, kept, waiting), work));
  return out;
}

CertifiedPrice::Cut CertifiedPrice::of_cut(const std::vector<int64_t>& begins) const {
  require(static_cast<int64_t>(begins.size()) == way_.pp && begins.front() == 0,
          "certificate: the best way has {} stages, and {} are given, from part {} on", way_.pp, begins.size(),
          begins.front());
  Cut out;
  int64_t slowest = 0, once = 0;
  for (size_t stage = 0; stage < begins.size(); ++stage) {
    const int64_t begin = begins[stage];
    const int64_t end = stage + 1 < begins.size() ? begins[stage + 1] : layers_ + 2;
    require(begin < end, "certificate: stage {} of the best way has the parts from {} up to {}: none", stage, begin,
            end);
    const Sum sum = sum_of(static_cast<int64_t>(stage), begin, end);
    slowest = std::max(slowest, sum.pass);
    once = std::max(once, sum.once);
    out.stage_bytes.push_back(sum.bytes);
  }
  out.step_ps = step_of(slowest, once);
  return out;
}

// The slowest stage takes its share of all parts, or the longest part.
int64_t CertifiedPrice::slowest_share() const {
  const int64_t all = exact_sum(exact_sum(pass_of(table_.before), pass_of(table_.after)),
                                exact_product(pass_of(table_.block), layers_));
  return std::max(
      {pass_of(table_.before), pass_of(table_.block), pass_of(table_.after), exact_sum(all, way_.pp - 1) / way_.pp});
}

int64_t CertifiedPrice::once_share() const {
  const int64_t all = exact_sum(exact_sum(once_of(table_.before), once_of(table_.after)),
                                exact_product(once_of(table_.block), layers_));
  return std::max(
      {once_of(table_.before), once_of(table_.block), once_of(table_.after), exact_sum(all, way_.pp - 1) / way_.pp});
}

int64_t CertifiedPrice::least_of_cuts() const {
  return step_of(slowest_share(), once_share());
}

// Longer weight gradients fill idle crews. As long as all stages have room below the slowest one they cost nothing; so
// that much of them is taken to be there. What is more makes the slowest stage longer: d of it by d / pp for each of at
// least pp micro-batches, and fills (pp - 1) * d / pp.
int64_t CertifiedPrice::least_of_longer_passes() const {
  const int64_t slowest = slowest_share();
  const auto of_all = [&](auto value) {
    return exact_sum(exact_sum(value(table_.before), value(table_.after)), exact_product(value(table_.block), layers_));
  };
  const int64_t others = exact_sum(of_all(forward_of), of_all(backward_of));
  const int64_t waits = way_.schedule == "zb-h1" ? idle(exact_sum(exact_product(slowest, way_.pp), -others)) : fill();
  return exact_sum(exact_sum(exact_product(slowest, way_.micro_batches), waits),
                   exact_sum(exact_product(table_.crossing, way_.pp - 1), once_share()));
}

// As many parts in each stage, or one more: the usual answer, and a quick one.
bool CertifiedPrice::even_cut_fits() const {
  const int64_t parts = layers_ + 2;
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    const int64_t begin = stage * parts / way_.pp, end = (stage + 1) * parts / way_.pp;
    if (sum_of(stage, begin, end).bytes > memory_) return false;
  }
  return true;
}

bool CertifiedPrice::fits() const {
  const int64_t parts = layers_ + 2;
  if (parts < way_.pp) return false;
  if (even_cut_fits()) return true;
  std::vector<char> ends(static_cast<size_t>(parts) + 1, 0);  // where the stages so far can end
  ends[0] = 1;
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    std::vector<char> next(ends.size(), 0);
    int64_t reached = stage;  // a later begin has room for as many parts or more
    for (int64_t begin = stage; begin < parts; ++begin) {
      if (ends[static_cast<size_t>(begin)] == 0) continue;
      for (int64_t end = std::max(reached, begin) + 1; end <= parts; ++end) {
        if (sum_of(stage, begin, end).bytes > memory_) break;
        next[static_cast<size_t>(end)] = 1;
        reached = end;
      }
    }
    ends = std::move(next);
  }
  return ends.back() != 0;
}

// Sums of neighbours' updates and sums of gradients, each once.
std::vector<int64_t> CertifiedPrice::onces_of_stages() const {
  std::vector<int64_t> out;
  for (int64_t blocks = 0; blocks <= layers_; ++blocks) {
    const int64_t inside = exact_product(once_of(table_.block), blocks);
    out.push_back(inside);
    out.push_back(exact_sum(inside, once_of(table_.before)));
    out.push_back(exact_sum(inside, once_of(table_.after)));
    out.push_back(exact_sum(out.back(), once_of(table_.before)));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The least that the slowest stage can take, within these limits of every stage: stage by stage, by where each ends.
std::optional<int64_t> CertifiedPrice::least_slowest(int64_t most_pass, int64_t most_once) const {
  constexpr int64_t kNone = -1;
  const int64_t parts = layers_ + 2;
  if (parts < way_.pp) return std::nullopt;
  std::vector<int64_t> least(static_cast<size_t>(parts) + 1, kNone);
  least[0] = 0;
  for (int64_t stage = 0; stage < way_.pp; ++stage) {
    std::vector<int64_t> next(least.size(), kNone);
    const int64_t last_end = parts - (way_.pp - 1 - stage);
    for (int64_t begin = stage; begin < last_end; ++begin) {
      const int64_t so_far = least[static_cast<size_t>(begin)];
      if (so_far == kNone) continue;
      for (int64_t end = begin + 1; end <= last_end; ++end) {
        const Sum sum = sum_of(stage, begin, end);
        if (sum.pass > most_pass || sum.once > most_once || sum.bytes > memory_) break;  // nor do longer stages
        int64_t& to = next[static_cast<size_t>(end)];
        const int64_t slowest = std::max(so_far, sum.pass);
        if (to == kNone || slowest < to) to = slowest;
      }
    }
    least = std::move(next);
  }
  if (least.back() == kNone) return std::nullopt;
  return least.back();
}

// A lower limit on what is done once makes the slowest stage no faster. So of limits whose slowest stages take as long
// at both ends the lowest is the best, and the rest is halved.
std::optional<int64_t> CertifiedPrice::least_below(int64_t limit) const {
  const std::vector<int64_t> onces = onces_of_stages();
  int64_t least = limit;
  const int64_t beside = step_of(0, 0);
  if (beside >= limit) return std::nullopt;
  const int64_t most_pass = (limit - 1 - beside) / way_.micro_batches;
  struct OnceRange {
    size_t low, high;
    int64_t at_high;
  };
  std::vector<OnceRange> open;
  const auto look_at = [&](size_t low, size_t high) {
    const auto slowest = least_slowest(most_pass, onces[high]);
    if (slowest) open.push_back({low, high, *slowest});
  };
  look_at(0, onces.size() - 1);
  while (!open.empty()) {
    const auto [low, high, at_high] = open.back();
    open.pop_back();
    least = std::min(least, step_of(at_high, onces[high]));
    if (low == high || step_of(at_high, onces[low]) >= least) continue;
    const size_t middle = low + (high - low) / 2;
    open.push_back({middle + 1, high, at_high});
    look_at(low, middle);
  }
  if (least >= limit) return std::nullopt;
  return least;
}

}  // namespace trireme
