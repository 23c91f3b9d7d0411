#include "trireme/planner/certificate/certified_interleaved.h"

#include <algorithm>
#include <optional>

#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
namespace {

// The timetable of so many groups of pp micro-batches: each crew runs what comes next in its order as soon as what it
// needs has ended. Times are in halves of a ps, as a message takes half a crossing, and none is more than all passes
// and messages together, which the caller has added up exactly.
class CertifiedTimetable {
 public:
  CertifiedTimetable(const CertifiedWay& way, const std::vector<CertifiedStage>& stages, int64_t crossing,
                     int64_t groups)
      : stages_(stages),
        crossing_(crossing),
        pp_(way.pp),
        virtual_stages_(way.virtual_stages),
        groups_(groups),
        micro_batches_(groups * way.pp),
        forward_(stages.size() * static_cast<size_t>(micro_batches_), kNotYet),
        backward_(forward_.size(), kNotYet),
        crews_(static_cast<size_t>(way.pp)) {
    for (int64_t crew = 0; crew < pp_; ++crew) {
      const int64_t later = pp_ - 1 - crew;
      crews_[static_cast<size_t>(crew)].ahead =
          (virtual_stages_ - 1) * pp_ + 1 + (way.schedule == WaySchedule::kInterleaved ? 2 * later : later);
    }
    run();
  }

  int64_t end() const { return std::ranges::max(crews_, {}, &Crew::end).end; }

  // By how much a further group would make it longer, however many there are: what all passes forward of the last group
  // but one, and all passes back of the group before it, end later than those a group earlier, if it is the same for
  // all. Whatever else is run in the order of a crew follows these, of which each is later by as much; and so does what
  // is run once the last forward pass is done.
  std::optional<int64_t> each_further_group() const {
    const int64_t group = groups_ - 2;
    if (group < 2) return std::nullopt;
    const int64_t shift = later_than_before(forward_, 0, group * pp_);
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      for (int64_t i = 0; i < pp_; ++i) {
        if (later_than_before(forward_, stage, group * pp_ + i) != shift ||
            later_than_before(backward_, stage, (group - 1) * pp_ + i) != shift)
          return std::nullopt;
      }
    }
    return shift;
  }

 private:
  static constexpr int64_t kNotYet = -1;
  // Passes of a crew one way: how many it has run, and which comes next. They go through its stages pp micro-batches at
  // a time.
  struct Passes {
    int64_t done = 0, turn = 0, micro_batch = 0;
  };
  struct Crew {
    int64_t ahead = 0;  // how many it runs first
    Passes forward, backward;
    int64_t end = 0;  // of the last
  };

  int64_t& at(std::vector<int64_t>& of, int64_t stage, int64_t micro_batch) const {
    return of[static_cast<size_t>(stage * micro_batches_ + micro_batch)];
  }
  int64_t later_than_before(const std::vector<int64_t>& of, size_t stage, int64_t micro_batch) const {
    const size_t now = stage * static_cast<size_t>(micro_batches_) + static_cast<size_t>(micro_batch);
    return of[now] - of[now - static_cast<size_t>(pp_)];
  }

  void run() {
    for (bool has_run = true; has_run;) {
      has_run = false;
      for (int64_t crew = 0; crew < pp_; ++crew) {
        while (run_next(crew)) has_run = true;
      }
    }
    for (const Crew& crew : crews_)
      require(crew.backward.done == micro_batches_ * virtual_stages_, "certificate: a crew waits for ever");
  }

  // Whether it could.
  bool run_next(int64_t of) {
    Crew& crew = crews_[static_cast<size_t>(of)];
    const int64_t all = micro_batches_ * virtual_stages_;
    const bool is_forward = crew.forward.done < std::min(all, crew.ahead + crew.backward.done);
    Passes& next = is_forward ? crew.forward : crew.backward;
    if (next.done == all) return false;
    const int64_t stage = (is_forward ? next.turn : virtual_stages_ - 1 - next.turn) * pp_ + of;
    std::vector<int64_t>& ends = is_forward ? forward_ : backward_;
    const int64_t from = is_forward ? stage - 1 : stage + 1;
    int64_t begin = crew.end;
    if (from >= 0 && from < static_cast<int64_t>(stages_.size())) {
      const int64_t needed = at(ends, from, next.micro_batch);
      if (needed == kNotYet) return false;
      begin = std::max(begin, needed + crossing_);
    }
    const CertifiedStage& takes = stages_[static_cast<size_t>(stage)];
    crew.end = begin + 2 * (is_forward ? takes.forward : takes.backward);
    at(ends, stage, next.micro_batch) = crew.end;
    ++next.done;
    if (++next.micro_batch % pp_ == 0) {  // on with the next stage, or with the next micro-batches
      next.turn = (next.turn + 1) % virtual_stages_;
      if (next.turn > 0) next.micro_batch -= pp_;
    }
    return true;
  }

  const std::vector<CertifiedStage>& stages_;
  int64_t crossing_, pp_, virtual_stages_, groups_, micro_batches_;
  std::vector<int64_t> forward_, backward_;  // when each ends, by stages and micro-batches
  std::vector<Crew> crews_;
};

void require_exact(const CertifiedWay& way, const std::vector<CertifiedStage>& stages, int64_t crossing) {
  int64_t all = 0;
  for (const CertifiedStage& stage : stages)
    all = exact_sum(all, exact_sum(exact_sum(stage.forward, stage.backward), crossing));
  exact_product(exact_product(all, way.micro_batches), 2);
}

}  // namespace

std::vector<std::vector<int64_t>> certified_even_cuts(int64_t parts, int64_t stages) {
  std::vector<std::vector<int64_t>> out;
  for (int64_t uncounted = 0; uncounted < 4; ++uncounted) {
    const int64_t before = uncounted / 2, counted = parts - before - uncounted % 2;
    if (counted < stages) continue;
    std::vector<int64_t> begins(static_cast<size_t>(stages), 0);
    for (int64_t stage = 1; stage < stages; ++stage)
      begins[static_cast<size_t>(stage)] = before + counted * stage / stages;
    out.push_back(std::move(begins));
  }
  return out;
}

int64_t certified_interleaved_ps(const CertifiedWay& way, const std::vector<CertifiedStage>& stages, int64_t crossing) {
  require_exact(way, stages, crossing);
  const int64_t groups = way.micro_batches / way.pp;
  for (int64_t few = 5; few < groups; few *= 2) {
    const CertifiedTimetable timetable(way, stages, crossing, few);
    const auto each = timetable.each_further_group();
    if (each) return (timetable.end() + exact_product(*each, groups - few)) / 2;
  }
  return CertifiedTimetable(way, stages, crossing, groups).end() / 2;
}

// Of what follows from each other the longest: the first micro-batch has to reach a crew, the crew to compute, and the
// last micro-batch to get back. On the way a micro-batch may pass through other crews instead of waiting for those that
// a crew computes with it, where that takes longer.
bool certified_interleaved_takes_more(const CertifiedWay& way, const std::vector<int64_t>& passes, int64_t crossing,
                                      int64_t limit) {
  const int64_t pp = way.pp, stages = pp * way.virtual_stages, groups = way.micro_batches / pp;
  const bool is_delayed = way.schedule == WaySchedule::kInterleavedDelayed;
  int64_t all = 0;
  for (const int64_t pass : passes) all = exact_sum(all, exact_sum(pass, crossing));
  exact_product(exact_product(all, way.micro_batches), 2);  // so that nothing below is too large
  const auto of = [&](int64_t stage) { return passes[static_cast<size_t>(stage)]; };
  const auto sum = [&](int64_t first, int64_t end) {  // with a message there and back for each
    int64_t out = (end - first) * crossing;
    for (int64_t stage = first; stage < end; ++stage) out += of(stage);
    return out;
  };
  for (int64_t crew = 0; crew < pp; ++crew) {
    const int64_t last = stages - pp + crew, later = pp - 1 - crew;
    int64_t own = 0, longest = sum(0, crew);
    for (int64_t stage = crew; stage < stages; stage += pp) {
      own += of(stage);
      longest += way.micro_batches * of(stage);
      // From this stage to the next of the crew through all others.
      if (stage < last) longest += std::max<int64_t>(0, sum(stage, stage + pp) - pp * of(stage));
    }
    // To the last crew and back, of the first micro-batch while the crew runs ahead in its last stage (and the first,
    // again), and of the last one.
    const int64_t ahead = is_delayed ? later + 1 : 2 * later + 1;
    if (stages - pp + ahead < groups * stages) {
      const int64_t again = std::max<int64_t>(0, ahead - pp);
      longest +=
          std::max<int64_t>(0, of(last) + 2 * sum(last + 1, stages) - (ahead - again) * of(last) - again * of(crew));
    }
    // Crews that run no farther ahead than they must do so once in each stage of each group, but the first and the
    // last.
    if (is_delayed && groups > 2) {
      int64_t others = 0;
      for (int64_t stage = 0; stage < stages; ++stage) others += stage % pp > crew ? of(stage) + crossing : 0;
      longest += std::max<int64_t>(0, others - later * own) * (groups - 2);
    }
    if (longest > limit) return true;
  }
  return false;
}

}  // namespace trireme
