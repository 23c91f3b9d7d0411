// Which collectives to take in one operation, by a model of when they can begin and how long they take. Of gradients:
//
// The backward pass makes gradients one after the other. The sum of a bucket begins when its last member is ready and
// the sum before it has ended, and takes start_s plus its bytes over bytes_per_s. Many small buckets pay start_s often;
// one large bucket begins only when the backward pass is over. best_buckets finds the cut into runs of neighbours that
// ends soonest, by dynamic programming over the ends e(i) of the first i gradients,
//   e(i) = min over j < i of max(e(j), ready(i)) + start_s + bytes(j..i) / bytes_per_s
// (the model of MG-WFBP, Shi, Chu and Li, 2019, with the exact optimum in place of its greedy merging).
//
// Gathers of weights are the same problem backward in time: a bucket must have ended when the first of its weights is
// read, and the best cut is the one with which the first gather may begin latest. Members are then in the opposite
// order, ready when they are read, counted from the end of the step.
//
// If several values are packed for one operation, copying their bytes through memory takes time as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct BucketMember {
  double ready_s = 0;  // not less than that of the member before it
  int64_t bytes = 0;
  size_t last = 0;  // the last member that may be in one bucket with it: later ones come after its first reader
};

struct BucketModel {
  double start_s = 0;             // of a sum of no bytes
  double bytes_per_s = 1;         // of the whole value; infinity: bytes cost nothing
  double packing_s_per_byte = 0;  // of a bucket of several
  // Members stop sharing a bucket where starting is less than a 64th of its time: more gains next to nothing, and
  // keeps gradients in memory for longer.
  double most_bytes() const { return 64 * start_s * bytes_per_s; }
  double seconds(int64_t bytes, bool several) const {
    const auto count = static_cast<double>(bytes);
    return start_s + count / bytes_per_s + (several ? count * packing_s_per_byte : 0);
  }
};

// One past the last member of each bucket, in order. Of several cuts that end equally soon: the one whose last bucket
// saves most by starting once and packing what it packs, and of those the largest; then the one before it, and so on.
// Without packing no two neighbours could be one without ending later.
std::vector<size_t> best_buckets(std::span<const BucketMember> members, const BucketModel& model);

// When the sum of the last bucket ends.
double end_of(std::span<const BucketMember> members, std::span<const size_t> buckets, const BucketModel& model);

}  // namespace trireme
