#include "trireme/planner/outer/least_slowest.h"

#include <algorithm>
#include <limits>

namespace trireme {
namespace {

constexpr int64_t kNoCut = std::numeric_limits<int64_t>::max();

// Stages that each have as many parts as take no more than so much, which is as long as the longest part or longer.
struct FilledStages {
  int64_t stages = 1;
  int64_t next = kNoCut;  // as long as they take no more than less than that, they have these parts
};
FilledStages filled(const std::vector<PassRun>& chain, int64_t most) {
  FilledStages out;
  int64_t room = most;
  for (const PassRun& run : chain) {
    if (run.pass == 0) continue;
    const int64_t in_this = std::min(run.count, room / run.pass), left = run.count - in_this;
    room -= in_this * run.pass;
    if (left == 0) continue;
    out.next = std::min(out.next, most - room + run.pass);
    const int64_t of_each = most / run.pass, more = (left + of_each - 1) / of_each;
    if (more > 1) out.next = std::min(out.next, (of_each + 1) * run.pass);
    out.stages += more;
    room = most - (left - (more - 1) * of_each) * run.pass;
  }
  return out;
}

int64_t least_bottleneck(const std::vector<PassRun>& chain, int64_t stages) {
  int64_t all = 0, longest = 0;
  for (const PassRun& run : chain) {
    all += run.count * run.pass;
    longest = std::max(longest, run.pass);
  }
  int64_t low = std::max(longest, (all + stages - 1) / stages);
  int64_t high = low + longest;  // it is enough: a stage that takes no further part has its share at least
  while (true) {
    const FilledStages least = filled(chain, low);
    if (least.stages <= stages) return low;
    low = least.next;
    const int64_t middle = low + (high - low) / 2;
    const FilledStages of = filled(chain, middle);
    if (of.stages <= stages) {
      high = middle;
    } else {
      low = of.next;
    }
  }
}

// Stages of as many of `counted` parts, or one more, where the first part and the last one may not count; `before`:
// what the parts before each take. `passes` is room for what each crew takes.
int64_t slowest_of_even(const std::vector<int64_t>& before, int64_t stages, bool first, bool last,
                        std::vector<int64_t>& passes) {
  const auto parts = static_cast<int64_t>(before.size()) - 1;
  const int64_t counted = parts - 2 + (first ? 1 : 0) + (last ? 1 : 0);
  if (counted < stages) return kNoCut;
  const int64_t each = counted / stages, rest = counted % stages;
  std::ranges::fill(passes, 0);
  int64_t end = first ? 0 : 1, more = 0, taken = 0;  // of the stage before
  size_t crew = 0;
  for (int64_t stage = 1; stage <= stages; ++stage) {
    end += each;
    more += rest;
    if (more >= stages) {
      ++end;
      more -= stages;
    }
    const int64_t until = before[static_cast<size_t>(stage == stages ? parts : end)];
    passes[crew] += until - taken;
    taken = until;
    if (++crew == passes.size()) crew = 0;
  }
  return std::ranges::max(passes);
}

int64_t least_of_even(const std::vector<PassRun>& chain, int64_t parts, int64_t crews, int64_t stages) {
  std::vector<int64_t> before{0}, passes(static_cast<size_t>(crews));
  before.reserve(static_cast<size_t>(parts) + 1);
  for (const PassRun& run : chain) {
    for (int64_t i = 0; i < run.count; ++i) before.push_back(before.back() + run.pass);
  }
  int64_t least = kNoCut;
  for (const bool first : {true, false}) {
    for (const bool last : {true, false}) least = std::min(least, slowest_of_even(before, stages, first, last, passes));
  }
  return least == kNoCut ? 0 : least;
}

}  // namespace

int64_t least_slowest(const std::vector<PassRun>& chain, int64_t crews, int64_t chunks) {
  int64_t parts = 0;
  for (const PassRun& run : chain) parts += run.count;
  if (parts < crews * chunks) return 0;
  return chunks > 1 ? least_of_even(chain, parts, crews, crews * chunks) : least_bottleneck(chain, crews);
}

}  // namespace trireme
