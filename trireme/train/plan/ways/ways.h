// Ways: how a job's keys can cut it over ranks. `trireme plan` compares them and takes the best.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/op/move.h"
#include "trireme/planner/way_choices.h"
#include "trireme/train/job/config.h"

namespace trireme {

// Where the optimizer's state lies, and where updates run: on the device or, with the state elsewhere, on the host.
struct UpdatePlace {
  Tier state = Tier::kDevice;
  Tier update = Tier::kDevice;
  friend auto operator<=>(const UpdatePlace&, const UpdatePlace&) = default;
};

// One way, by the keys that say it.
struct Way {
  int64_t pp = 1, tp = 1, cp = 1, ep = 1;
  bool sp = false, vocabulary = false;
  int64_t zero = 0;
  int64_t micro_batches = 1;
  WaySchedule schedule = WaySchedule::k1F1B;
  int64_t virtual_stages = 1;  // of each crew
  WayRecompute recompute = WayRecompute::kNone;
  bool kept_slices = false;   // what is kept for the backward pass lies in slices on ranks that have the same
  Tier keep = Tier::kDevice;  // where what is kept for the backward pass lies until then
  UpdatePlace place = {};     // all on the device: where the job says
  bool is_searched = false;   // mode auto_parallel, by which tp, cp, ep, sp, vocabulary and zero are open

  // "parallel.tp=2": all keys that say how a job is cut, whatever its file has of them.
  std::vector<std::string> keys() const;
  // Has the job cut so: what set_keys (train/job/config.h) does with all of keys().
  void set(JobConfig& job) const;
  std::string text() const;  // as flags, "--tp 2 --zero 1"; or "data parallel"
  friend bool operator==(const Way&, const Way&) = default;
};

// The keys that say where the optimizer's state lies and where updates run; none for the device.
std::vector<std::string> place_keys(const UpdatePlace& place);
// The key that says whether what is kept lies in slices.
std::string kept_slices_key(bool kept_slices);

// The key that says in which tier what is kept lies; none for the device.
std::vector<std::string> keep_keys(Tier keep);

// A measure that a way may take in addition to its cuts: it takes fewer bytes of the device, and makes nothing faster.
struct WayVariant {
  bool kept_slices = false;
  Tier keep = Tier::kDevice;
  UpdatePlace place = {};
  friend bool operator==(const WayVariant&, const WayVariant&) = default;
};
// The variants of ways over `tp` ranks, with the optimizer's state and updates on the device or in one of `places`, and
// what is kept on the device or in one of `keeps`. Each comes after those that have less of this. The first has
// nothing.
std::vector<WayVariant> variants_of(int64_t tp, const std::vector<UpdatePlace>& places,
                                    const std::vector<Tier>& keeps = {});
// Which of these have exactly one measure less than the one at `at`: what is kept is whole; or lies in the next nearer
// place; or the state lies in the next nearer place with the same updates; or, for updates on the host with their state
// there, everything is on the device. If what is kept lies elsewhere, slices leave fewer bytes to move, so that variant
// does not come after one without slices.
std::vector<size_t> variants_before(const std::vector<WayVariant>& variants, size_t at);

// Throws kInvalidArgument, naming the key, if the job says by rules, a mesh or a strategy how it is cut: a plan would
// not follow them. `cure` says what to do about it.
void refuse_rules(const JobConfig& job, std::string_view cure);

// Throws kInvalidArgument, naming the key, if the job is for another number of ranks, or has keys that depend on the
// number of ranks or micro-batches, which a plan varies.
void refuse_fixed_counts(const JobConfig& job, int64_t ranks);

// The job without the keys that a way sets, and for any number of ranks. Throws if it has rules.
JobConfig without_cuts(const JobConfig& job);
// Which of these keys the job sets, as "parallel.tp = 4", apart from its mode, and from a search that is a plan itself.
// `trireme plan` keeps none of them (auto/auto_plan.h does).
std::vector<std::string> cuts_left_out(const JobConfig& job);

// The ways to divide a crew of `ranks` ranks into axes, for `pp` crews.
std::vector<Way> axes_of(const nn::Cuttable& model, int64_t pp, int64_t ranks);
std::vector<int64_t> divisors_of(int64_t number);

// All ways for `ranks` ranks: stages, axes along which the model can be cut, or cuts of each op by a search,
// micro-batches, schedules, slices of state, recomputation. Whether they fit the batch and the model is seen when they
// are compiled. The variants of a way follow each other.
std::vector<Way> ways_of(const JobConfig& job, int64_t ranks, const std::vector<UpdatePlace>& places = {},
                         const std::vector<Tier>& keeps = {});

}  // namespace trireme
