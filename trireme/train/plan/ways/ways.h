// Ways: how a job's keys can cut it over ranks. `trireme plan` compares them and takes the best.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/op/move.h"
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
  std::string schedule = "1f1b";
  int64_t virtual_stages = 1;  // of each crew
  std::string recompute = "none";
  bool kept_slices = false;   // what is kept for the backward pass lies in slices on ranks that have the same
  Tier keep = Tier::kDevice;  // where what is kept for the backward pass lies until then
  UpdatePlace place = {};     // all on the device: where the job says
  bool is_searched = false;   // mode auto_parallel; none of the above but recompute and place

  // "parallel.tp=2": all keys that say how a job is cut, whatever its file has of them.
  std::vector<std::string> keys() const;
  // Has the job cut so: what set_keys (train/job/config.h) does with all of keys().
  void set(JobConfig& job) const;
  std::string text() const;  // as flags, "--tp 2 --zero 1"; or "data parallel"
  friend bool operator==(const Way&, const Way&) = default;
};

// The keys by which the optimizer's state lies and updates run there; none for the device.
std::vector<std::string> place_keys(const UpdatePlace& place);
// The key by which what is kept lies in slices, or does not.
std::string kept_slices_key(bool kept_slices);

// The key by which what is kept lies there; none for the device.
std::vector<std::string> keep_keys(Tier keep);

// What a way may have beside how it is cut: it takes fewer bytes of the device, and nothing is faster with it.
struct WayVariant {
  bool kept_slices = false;
  Tier keep = Tier::kDevice;
  UpdatePlace place = {};
  friend bool operator==(const WayVariant&, const WayVariant&) = default;
};
// Of ways over `tp` ranks, with the optimizer's state and updates on the device or in one of `places`, and what is kept
// on the device or in one of `keeps`: each after those that have less of it. The first has nothing.
std::vector<WayVariant> variants_of(int64_t tp, const std::vector<UpdatePlace>& places,
                                    const std::vector<Tier>& keeps = {});
// Which of these have just one thing less than the one at `at`: what is kept whole, or the next nearer place of what is
// kept, or of the same updates, and of updates on the host with their state there that is all on the device. With what
// is kept elsewhere slices have fewer bytes to move, so that it is after none for them.
std::vector<size_t> variants_before(const std::vector<WayVariant>& variants, size_t at);

// Throws kInvalidArgument naming the key where the job says how it is cut by rules, a mesh or a strategy: what is
// planned would not be what they ask. `cure` is what to do about it.
void refuse_rules(const JobConfig& job, std::string_view cure);

// The job without what a way says. Throws where it has rules.
JobConfig without_cuts(const JobConfig& job);
// What the job says of that, "parallel.tp = 4", which no plan keeps; its mode aside.
std::vector<std::string> cuts_left_out(const JobConfig& job);

// What may be computed again, as train.recompute says it: nothing, activation functions and norms, all modules.
std::vector<std::string> recompute_choices();
// The axes of a crew of so many ranks, of `pp` crews.
std::vector<Way> axes_of(const nn::Cuttable& model, int64_t pp, int64_t ranks);
std::vector<int64_t> divisors_of(int64_t number);

// All of them for so many ranks: stages, axes for what the model can be cut by, micro-batches, schedules, slices of
// state, recomputation. Whether they go together with the batch and the model is seen when they are compiled. Of each
// all variants follow each other.
std::vector<Way> ways_of(const JobConfig& job, int64_t ranks, const std::vector<UpdatePlace>& places = {},
                         const std::vector<Tier>& keeps = {});

}  // namespace trireme
