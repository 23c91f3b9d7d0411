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

}  // namespace

int64_t least_slowest(const std::vector<PassRun>& chain, int64_t stages) {
  int64_t parts = 0;
  for (const PassRun& run : chain) parts += run.count;
  return parts < stages ? 0 : least_bottleneck(chain, stages);
}

}  // namespace trireme
