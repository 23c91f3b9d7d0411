// Cutting a chain of parts (embedding, blocks, head) into the stages of a pipeline, by the prices of the parts, which
// are integers: the least time of a step within each device's memory, exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/op/move.h"
#include "trireme/planner/outer/least_slowest.h"

namespace trireme {

// What a part takes of a rank: times in picoseconds, of one micro-batch unless stated otherwise.
struct PartPrice {
  int64_t forward = 0, input_grad = 0, weight_grad = 0, again = 0;  // computing
  int64_t moving_forward = 0, moving_backward = 0;                  // collectives
  int64_t update = 0, sync = 0;                                     // computing and collectives, once a step
  int64_t persistent = 0, gradients = 0;                            // bytes
  int64_t held = 0;     // bytes, while a step's micro-batches run: weights that came, or were cast, for all of them
  int64_t kept = 0;     // bytes of each micro-batch in flight
  int64_t waiting = 0;  // bytes of each whose weight gradients alone are still to be computed, instead of `kept`
  int64_t work = 0;     // bytes beside these, of one part at a time
  // What lies on the host or the disk: once a step it comes to the device and goes back, and the host updates it, all
  // three at a time (ps each), and the bytes that it takes there.
  int64_t coming = 0, going = 0, updating = 0;
  int64_t host = 0, disk = 0;
  // Where what is kept lies on the host or the disk: of each micro-batch it goes there beside the forward pass and
  // comes back beside the input gradients (ps), and the bytes that each in flight takes there.
  int64_t leaving = 0, returning = 0;
  int64_t kept_host = 0, kept_disk = 0;
  // Of what a micro-batch takes and a part holds, however many rows a micro-batch has: adding its gradients to those
  // before, of `weight_grad`; and what they lie in, of `gradients`.
  int64_t adding = 0, sums = 0;
  // Of the first part, where it has a weight that another part reads too (a table that is the head as well), in a stage
  // of all parts (in_one_stage). Of `sync`, what that stage takes for each micro-batch instead: as each keeps slices of
  // gradients, ranks scatter the sum of a micro-batch's, which crews send to each other once a step. And of the bytes
  // of `gradients` in all parts, those that it does not need, as it has one sum where they have one each.
  int64_t tied = 0, tied_sums = 0;
  // And of `update` what it takes less: of a step's gradients of the weight in another part the first is added to
  // nothing.
  int64_t tied_adding = 0;
  // Of the last part, which gathers that weight from its slices for each pass: of `moving_forward` and
  // `moving_backward`, what a stage of all parts does without, as the first part's gather serves both.
  int64_t tied_forward = 0, tied_backward = 0;

  // What leaves and returns is moved beside the pass, which then takes the longer of both; and one part in
  // kLeastExposed of the moves is not hidden, as they come in bursts.
  static constexpr int64_t kLeastExposed = 8;
  static int64_t beside(int64_t pass, int64_t moves) { return std::max(pass + moves / kLeastExposed, moves); }
  int64_t forward_pass() const { return beside(forward + moving_forward, leaving); }
  int64_t input_pass() const { return beside(again + input_grad + moving_backward, returning); }
  int64_t pass() const { return forward_pass() + input_pass() + weight_grad; }
  int64_t moves() const { return std::max({coming, going, updating}); }  // as if no computing hid them
  int64_t once() const { return update + sync + moves(); }
  friend bool operator==(const PartPrice&, const PartPrice&) = default;
};

// The sums over all parts, and the longest of them.
struct PartTotals {
  int64_t forward_pass = 0, input_pass = 0, weight_grad = 0, once = 0;
  int64_t longest_pass = 0, longest_once = 0;  // of one part
  std::vector<PassRun> chain;                  // in their order

  // The next parts, of which there are so many.
  void add(const PartPrice& part, int64_t count);
  int64_t pass() const { return forward_pass + input_pass + weight_grad; }
};

// Micro-batches that a crew holds of a stage at a moment: those in flight, and those whose weight gradients alone are
// to come.
struct HeldMicroBatches {
  int64_t whole = 0, waiting = 0;
  int64_t all() const { return whole + waiting; }
  friend auto operator<=>(const HeldMicroBatches&, const HeldMicroBatches&) = default;
};
using HeldMoment = std::vector<HeldMicroBatches>;  // of each of a crew's stages, in their order

// A schedule with so many crews, each of `chunks` stages: crew c has the stages c, c + crews, c + 2 * crews and so on.
// Where a crew has one stage, a step takes for each micro-batch what the stage takes, and on top these multiples of a
// stage's forward pass, its input gradients and its weight gradients.
struct PipelineShape {
  int64_t idle_forward = 0, idle_input = 0, idle_weight = 0;
  // Stages that take unequally long wait for the slowest one alone: a step takes this for each micro-batch but one, and
  // all stages once. (Of stages that are alike it is what the multiples above say.)
  bool waits_for_slowest = false;
  // Likewise messages between crews that are waited for: so many, plus `more_transfers` for every `crews()`
  // micro-batches. The others arrive before they are needed.
  int64_t transfers = 0, more_transfers = 0;
  std::vector<std::vector<HeldMoment>> held;  // of each crew: at no moment more than at one of these
  int64_t chunks = 1;
  // Where a crew has several stages: how many forward passes each runs before its first backward pass; from then on a
  // backward and a forward pass in turn. Each crew has one or two more than the next. What a step takes follows from
  // these and from what each stage takes (interleaved_time.h).
  std::vector<int64_t> ahead = {};
  int64_t crews() const { return static_cast<int64_t>(held.size()); }
  int64_t stages() const { return crews() * chunks; }
  friend bool operator==(const PipelineShape&, const PipelineShape&) = default;
};

// Bytes that a rank may take: of its device, and beside it.
struct RankRoom {
  int64_t device = 0, host = 0, disk = 0;
};

// Times and bytes of a step are sums of these that stay below 2^61 (check_range).
struct StageProblem {
  std::vector<PartPrice> parts;
  PipelineShape shape;
  int64_t micro_batches = 1;
  int64_t crossing = 0;        // ps: activations over one boundary, and their gradients back
  int64_t memory = 0;          // bytes of a rank's device
  int64_t host = 0, disk = 0;  // bytes beside it that a rank may take

  RankRoom room() const { return {.device = memory, .host = host, .disk = disk}; }
};

// The time of the step: micro_batches * slowest + fill + crossings + once. Of crews with several stages the fill is
// what the timetable takes beside the slowest crew's passes, and crossings what messages add to that.
struct CutPrice {
  int64_t slowest = 0;    // of the crews, for one micro-batch
  int64_t fill = 0;       // in which the pipeline fills and empties
  int64_t crossings = 0;  // messages that are waited for
  int64_t once = 0;       // the longest of the crews: sums of gradients, updates
  int64_t total = 0;
};

// Makes of the parts by themselves those of one stage that has them all: PartPrice::tied and those after it.
void in_one_stage(std::vector<PartPrice>& parts);
// Of that only what takes less time: the last part's gathers, and adding.
void take_off_tied(std::vector<PartPrice>& parts);

// Throws kInvalidArgument where a step may take 2^61 ps (26 days) or more, or a stage so many bytes.
void check_range(const StageProblem& problem);
// Micro-batches that a crew holds of all its stages at its fullest moment.
int64_t most_held(const PipelineShape& shape);

// `begins`: the first part of each stage.
CutPrice price_of_cut(const StageProblem& problem, const std::vector<int64_t>& begins);
std::vector<int64_t> bytes_of_crews(const StageProblem& problem, const std::vector<int64_t>& begins);
// What they hold on the host, or the disk.
std::vector<int64_t> bytes_elsewhere(const StageProblem& problem, const std::vector<int64_t>& begins, Tier tier);
// Whether no crew holds more than it may, of the device and beside it.
bool cut_fits(const StageProblem& problem, const std::vector<int64_t>& begins);

// Cuts into stages of as many parts, or one more, where the first part (what stands before the blocks) and the last one
// count as a part or not: at most four. Of several stages a crew these are the cuts that are looked at: a schedule has
// the crews go from stage to stage together, and idles the more the less alike these are.
std::vector<std::vector<int64_t>> even_cuts(int64_t parts, int64_t stages);

// No cut takes less, without memory: the slowest crew as fast as it can be, or of several stages a crew the fastest of
// all cuts that are looked at; and all crews alike in what they do once.
int64_t bound_of_cuts(const StageProblem& problem);
// No cut takes less, of these parts or of parts that take as long or longer in each of their passes.
int64_t bound_of_longer_parts(const StageProblem& problem);
// The same by what they take together. Throws as check_range, for times.
int64_t bound_of_longer_parts(const PartTotals& totals, const PipelineShape& shape, int64_t micro_batches,
                              int64_t crossing);
bool some_cut_fits(const StageProblem& problem);
class StageSums;  // planner/outer/stage_sums.h
bool some_cut_fits(const StageSums& sums, const PipelineShape& shape, const RankRoom& room);
// The same where even_cuts are known, of several stages a crew.
bool some_cut_fits(const StageSums& sums, const PipelineShape& shape, const RankRoom& room,
                   const std::vector<std::vector<int64_t>>& even);
// What the fullest crew holds on the device with the cut for which this is the least; nothing if there are fewer parts
// than stages, or if no cut has room beside the device.
std::optional<int64_t> fewest_bytes_of_cuts(const StageProblem& problem);

// Of all cuts, or of even ones where crews have several stages, the one with the least total; of equal ones the one
// with the least `slowest`. Nothing where none fits.
std::optional<std::vector<int64_t>> best_cut(const StageProblem& problem);

}  // namespace trireme
