// What a step takes by a certificate's tables: with one cut into stages, the least with any cut, and a lower bound over
// all cuts. This is the verifier's own arithmetic: exact, or refused.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certified_interleaved.h"

namespace trireme {

// Bytes that a rank has, of its device and beside it.
struct CertifiedRoom {
  int64_t device = 0, host = 0, disk = 0;
};

class CertifiedPrice {
 public:
  // The parts are what stands before the blocks, the blocks of these runs, and what stands after them. `table` and
  // `runs` must outlive it.
  CertifiedPrice(const CertifiedWay& way, const CertifiedTable& table, const std::vector<CertifiedRun>& runs,
                 const CertifiedRoom& room);
  CertifiedPrice(const CertifiedPrice&) = delete;
  CertifiedPrice& operator=(const CertifiedPrice&) = delete;

  struct Cut {
    int64_t step_ps = 0;
    std::vector<int64_t> crew_bytes;  // of the device
    bool has_room_beside = true;      // the host's memory and the disk hold what lies there
  };
  // Throws if these are not valid stages: they must ascend from 0 on and, with several stages per crew, be an even cut.
  Cut of_cut(const std::vector<int64_t>& begins) const;

  // Whether every cut takes longer than `limit`, ignoring memory: by the slowest crew of each cut, and the crews' share
  // of what they do once.
  bool every_cut_exceeds(int64_t limit) const;
  // The same for every table whose passes are these or longer; what crews do once takes `more` in all on top of this
  // table's.
  bool longer_passes_exceed(int64_t limit, int64_t more = 0) const;

  // The average of a crew over all passes of a micro-batch.
  int64_t share_of_passes() const;

  // Whether some cut fits in the memory.
  bool fits() const;
  // The least of all cuts that fit, where that is below `limit`.
  std::optional<int64_t> least_below(int64_t limit) const;

 private:
  struct Sum {
    int64_t pass = 0, forward = 0, once = 0, persistent = 0, kept = 0, waiting = 0, work = 0, host = 0, disk = 0;
    int64_t kept_host = 0, kept_disk = 0;  // of each micro-batch
  };
  static constexpr std::array kSums{&Sum::pass,    &Sum::forward, &Sum::once, &Sum::persistent, &Sum::kept,
                                    &Sum::waiting, &Sum::host,    &Sum::disk, &Sum::kept_host,  &Sum::kept_disk};
  bool stage_fits(int64_t stage, const Sum& sum) const;
  // Of the parts from `begin` up to but not `end`.
  Sum sum_of(int64_t begin, int64_t end) const;
  void add_up() const;
  template <class Value>
  int64_t of_all(Value value) const;
  template <class Value>
  int64_t share_of_crew(Value value, int64_t more = 0) const;

  // Of a crew that has this stage alone; and of what it keeps of micro-batches, with so much of each in flight, and of
  // each whose weight gradients alone are to come.
  int64_t bytes_of_stage(int64_t stage, const Sum& sum) const;
  int64_t most_of_stage(int64_t stage, int64_t of_whole, int64_t of_put_off) const;
  // Of a crew with several.
  int64_t bytes_of_crew(int64_t crew, const std::vector<Sum>& stages) const;
  int64_t most_of_crew(int64_t crew, const std::vector<Sum>& stages, int64_t Sum::*kept) const;
  // On the host, or the disk.
  bool has_room_beside(int64_t crew, const std::vector<Sum>& stages) const;
  bool has_room_beside(int64_t stage, const Sum& sum) const;
  int64_t bytes_of(int64_t crew, const std::vector<Sum>& stages) const;
  bool crews_fit(const std::vector<Sum>& stages) const;
  std::vector<Sum> stages_of(const std::vector<int64_t>& begins) const;
  Cut cut_of(const std::vector<Sum>& stages) const;
  static std::vector<CertifiedStage> passes_of(const std::vector<Sum>& stages);

  // `step_of(slowest)`: at least, where the slowest crew takes so much for each micro-batch; more of it takes longer.
  template <class StepOf>
  bool every_slowest_exceeds(int64_t limit, StepOf step_of) const;
  bool some_crew_takes_more(int64_t pass) const;
  // Where crews have several stages, and do `once` once: by their passes, or what `exceeds(begins)` says.
  template <class Exceeds>
  bool every_even_cut_exceeds(int64_t limit, int64_t once, Exceeds exceeds) const;

  int64_t idle(int64_t weight_grads) const;
  int64_t fill(int64_t slowest) const;
  int64_t crossings() const;
  int64_t step_of(int64_t slowest, int64_t once) const;
  std::vector<std::vector<int64_t>> even_cuts_of_parts() const {
    return certified_even_cuts(parts_, way_.pp * way_.virtual_stages);
  }
  bool even_cut_fits() const;
  std::vector<int64_t> onces_of_stages() const;
  std::optional<int64_t> least_slowest(int64_t most_pass, int64_t most_once) const;
  std::optional<int64_t> least_even_cut_below(int64_t limit) const;

  const CertifiedWay& way_;
  const std::optional<CertifiedTable> of_one_stage_;
  const CertifiedTable& table_;
  const std::vector<CertifiedRun>& runs_;
  CertifiedRoom room_;
  int64_t parts_;
  mutable std::vector<Sum> sums_;  // of the parts before each; empty until one is asked for
};

}  // namespace trireme
