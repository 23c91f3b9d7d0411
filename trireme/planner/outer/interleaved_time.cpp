#include "trireme/planner/outer/interleaved_time.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/planner/outer/stage_problem.h"

namespace trireme {
namespace {

// Runs a timetable in waves. Crew c begins one wave after crew c - 1, and then runs a forward pass in each; a backward
// pass comes before it from the wave on in which it has run `ahead` of them. So every pass that another one needs
// stands in a wave before, or in the same wave with a crew after it (PipelineShape::ahead says when that is so), and of
// what crews made the last `crews` passes are enough.
//
// From one wave to the next, crews, turns and slots are the same again after a group of `crews * chunks` waves. Once
// all times are later by the same than a group before, the groups that follow make them later by as much each, up to
// the one that has the last forward pass: these are skipped. This comes after two to four groups nearly always.
class Waves {
 public:
  Waves(const PipelineShape& shape, std::span<const StagePass> stages, int64_t micro_batches, int64_t crossing)
      : ahead_(shape.ahead),
        stages_(stages),
        crews_(shape.ahead.size()),
        chunks_(static_cast<size_t>(shape.chunks)),
        passes_(micro_batches * shape.chunks),
        crossing_(crossing),
        crew_(crews_),
        times_(crews_ + 2 * crews_ * crews_) {}

  int64_t run() {
    const auto group = static_cast<int64_t>(crews_ * chunks_);
    const int64_t full = ahead_.front() + static_cast<int64_t>(crews_);  // all crews run both, and all slots are known
    int64_t skipped = 0;
    for (int64_t wave = 0; wave < passes_ + ahead_.front(); ++wave) {
      if (wave >= full && (wave - full) % group == 0 && passes_ - wave >= group && skipped == 0) {
        const int64_t groups = (passes_ - wave) / group;
        skipped = groups * shift_since_last_group();
        if (skipped > 0) passes_ -= groups * group;
      }
      run(wave);
    }
    return *std::max_element(times_.begin(), times_.begin() + static_cast<std::ptrdiff_t>(crews_)) + skipped;
  }

 private:
  // Which of the passes of one kind comes next: passes go through a crew's stages `crews` micro-batches at a time.
  struct Place {
    size_t slot = 0, turn = 0;
    void next(size_t crews, size_t chunks) {
      if (++slot < crews) return;
      slot = 0;
      if (++turn == chunks) turn = 0;
    }
  };
  struct Crew {
    Place forward, backward;
  };

  void run(int64_t wave) {
    for (size_t crew = crews_; crew-- > 0;) {
      const int64_t forward = wave - static_cast<int64_t>(crew), backward = forward - ahead_[crew];
      if (backward >= 0 && backward < passes_) run_backward(crew);
      if (forward >= 0 && forward < passes_) run_forward(crew);
    }
  }
  void run_forward(size_t crew) {
    Place& at = crew_[crew].forward;
    int64_t& end = times_[crew];
    const size_t from = crew == 0 ? crews_ - 1 : crew - 1;
    if (crew > 0 || at.turn > 0) end = std::max(end, forward_end(from, at.slot) + crossing_);
    end += 2 * stages_[at.turn * crews_ + crew].forward;
    forward_end(crew, at.slot) = end;
    at.next(crews_, chunks_);
  }
  void run_backward(size_t crew) {
    Place& at = crew_[crew].backward;
    int64_t& end = times_[crew];
    const size_t from = crew + 1 == crews_ ? 0 : crew + 1;
    if (from > 0 || at.turn > 0) end = std::max(end, backward_end(from, at.slot) + crossing_);
    end += 2 * stages_[(chunks_ - 1 - at.turn) * crews_ + crew].backward;
    backward_end(crew, at.slot) = end;
    at.next(crews_, chunks_);
  }

  int64_t& forward_end(size_t crew, size_t slot) { return times_[(1 + crew) * crews_ + slot]; }
  int64_t& backward_end(size_t crew, size_t slot) { return times_[(1 + crews_ + crew) * crews_ + slot]; }

  // By how much all are later than at the last call; 0: not all by the same.
  int64_t shift_since_last_group() {
    const std::vector<int64_t> before = std::exchange(last_, times_);
    if (before.empty()) return 0;
    const int64_t shift = times_.front() - before.front();
    for (size_t i = 0; i < times_.size(); ++i) {
      if (times_[i] - before[i] != shift) return 0;
    }
    return shift;
  }

  const std::vector<int64_t>& ahead_;
  std::span<const StagePass> stages_;
  size_t crews_, chunks_;
  int64_t passes_;  // of each kind, of a crew; without those that are skipped
  int64_t crossing_;
  std::vector<Crew> crew_;
  // In halves of a ps: of each crew's last pass, and of each the last forward and backward passes, by slots.
  std::vector<int64_t> times_, last_;
};

// Stages of as many of `counted` parts, or one more, where the first part and the last one may not count: what the
// stages before each take. `before`: the same of the parts. False: there are too few.
bool stages_of_even(const std::vector<int64_t>& before, bool first, bool last, std::vector<int64_t>& stages) {
  const auto parts = static_cast<int64_t>(before.size()) - 1, count = static_cast<int64_t>(stages.size()) - 1;
  const int64_t counted = parts - 2 + (first ? 1 : 0) + (last ? 1 : 0);
  if (counted < count) return false;
  const int64_t each = counted / count, rest = counted % count;
  int64_t end = first ? 0 : 1, more = 0;
  for (size_t stage = 1; stage + 1 < stages.size(); ++stage) {
    end += each;
    more += rest;
    if (more >= count) {
      ++end;
      more -= count;
    }
    stages[stage] = before[static_cast<size_t>(end)];
  }
  stages.back() = before.back();
  return true;
}

}  // namespace

int64_t interleaved_time(const PipelineShape& shape, std::span<const StagePass> stages, int64_t micro_batches,
                         int64_t crossing) {
  invariant(micro_batches % shape.crews() == 0 && static_cast<int64_t>(stages.size()) == shape.stages(),
            "{} micro-batches in {} stages of {} crews", micro_batches, stages.size(), shape.crews());
  return Waves(shape, stages, micro_batches, crossing).run() / 2;
}

// What some chains of passes take of which each needs the one before; the longest is a bound. Such a chain has, for a
// crew, the first micro-batch's forward passes in the stages before the crew's first one, all passes of the crew, and
// the last micro-batch's backward passes in these stages. It may leave the crew and come back, where that is longer:
// - from the first micro-batch in a stage of the crew forward through those of others to the next of the crew, instead
//   of all `crews` micro-batches in that stage; and the last micro-batch back in the same way (`around`);
// - before the crew's first backward pass with the first micro-batch from the crew's last stage to the last of all and
//   back, instead of forward passes that the crew runs ahead; and after the crew's last forward pass with the last
//   micro-batch (`at_ends`);
// - where crews run as few ahead as they can, once in each stage and group of `crews` micro-batches to the last crew
//   and back: in as many passes of the crew a message comes and goes between it and each crew after it (`while_full`).
//   The first group, and all that comes after the last micro-batch is begun, have the other ones.
int64_t least_interleaved_time(std::span<const int64_t> before, const PipelineShape& shape, int64_t micro_batches,
                               int64_t crossing) {
  const size_t crews = shape.ahead.size(), last_turn = before.size() - 1 - crews;  // its first stage
  const auto all = static_cast<int64_t>(crews);
  const bool is_tight = shape.ahead.front() - shape.ahead.back() == all - 1;
  const int64_t full_groups = is_tight ? std::max<int64_t>(0, micro_batches / all - 2) : 0;
  int64_t least = 0, computed_after = 0;  // by the crews after this one, for a micro-batch
  for (size_t crew = crews; crew-- > 0;) {
    const auto pass = [&](size_t stage) { return before[stage + 1] - before[stage]; };
    const auto after = static_cast<int64_t>(crews - 1 - crew);
    int64_t computed = 0, around = 0;
    for (size_t stage = crew; stage < last_turn; stage += crews) {
      computed += pass(stage);
      around += std::max<int64_t>(0, before[stage + crews] - before[stage] + all * (crossing - pass(stage)));
    }
    const int64_t last = pass(last_turn + crew), ahead_in_last = shape.ahead[crew] - (shape.chunks - 1) * all;
    computed += last;
    int64_t at_ends = 0;
    if (shape.ahead[crew] < micro_batches * shape.chunks) {
      const int64_t beyond = before.back() - before[last_turn + crew + 1] + after * crossing;
      const int64_t ahead =
          std::min(ahead_in_last, all) * last + std::max<int64_t>(0, ahead_in_last - all) * pass(crew);
      at_ends = std::max<int64_t>(0, last + 2 * beyond - ahead);
    }
    const int64_t while_full =
        std::max<int64_t>(0, computed_after + after * (shape.chunks * crossing - computed)) * full_groups;
    const int64_t begins = before[crew] + static_cast<int64_t>(crew) * crossing;
    least = std::max(least, begins + micro_batches * computed + around + at_ends + while_full);
    computed_after += computed;
  }
  return least;
}

int64_t least_of_even_cuts(const std::vector<PassRun>& chain, const PipelineShape& shape, int64_t micro_batches,
                           int64_t crossing) {
  std::vector<int64_t> before{0}, stages(static_cast<size_t>(shape.stages()) + 1);
  before.reserve(256);
  int64_t longest = 0;
  for (const PassRun& run : chain) {
    longest = std::max(longest, run.pass);
    for (int64_t i = 0; i < run.count; ++i) before.push_back(before.back() + run.pass);
  }
  constexpr int64_t kNoCut = std::numeric_limits<int64_t>::max();
  int64_t least = kNoCut;
  for (const bool first : {true, false}) {
    for (const bool last : {true, false}) {
      if (stages_of_even(before, first, last, stages))
        least = std::min(least, least_interleaved_time(stages, shape, micro_batches, crossing));
    }
  }
  if (least != kNoCut) return least;
  return micro_batches * std::max(longest, (before.back() + shape.crews() - 1) / shape.crews());
}

}  // namespace trireme
