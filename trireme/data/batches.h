// Sampler: which sample is at each position of the endless training sequence. Batches: the rows
// (or any slice) of a global batch that a rank's layout needs, read straight into memory the caller
// owns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/data/permutation.h"
#include "trireme/data/source.h"

namespace trireme::data {

// Position p is element p % size of epoch p / size; each epoch is a permutation of all samples
// drawn from (seed, epoch), or the samples in order. Neither ranks nor batch size matter, so the
// one integer "position" is all there is to resume from, at any number of ranks and any batch size.
class Sampler {
 public:
  Sampler(int64_t size, uint64_t seed, bool shuffle = true);

  int64_t sample(int64_t position) const;
  int64_t epoch(int64_t position) const { return position / size_; }
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  uint64_t seed_;
  bool shuffle_;
};

// A part of a field's global batch [global_batch, sample dims...]: first element and count per
// dimension. A part without elements means that the rank does not need the field.
struct FieldSlice {
  Shape start;
  Shape size;
};

struct BatchOptions {
  int64_t global_batch = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t start_position = 0;           // of step 0; a resumed run passes the checkpoint's position
  std::vector<FieldSlice> slices = {};  // one per field, in the order of fields(); none = all of each
  int queue = 2;                        // requests that may wait for the reading thread
};

// Step s takes positions start_position + s * global_batch and the global_batch - 1 after it.
// Nothing is dropped: a batch at the end of an epoch goes on with the next epoch's first samples,
// so each sample comes exactly once per epoch whatever the batch size.
class Batches {
 public:
  Batches(SourcePtr source, const BatchOptions& options);
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  ~Batches();  // ends the reading thread; requests not yet read are dropped

  // The fields of a batch as this rank sees them: [rows, sample dims...], or the size of its slice.
  const std::vector<FieldSpec>& fields() const { return fields_; }
  int64_t steps_per_epoch() const;       // whole batches in an epoch, rounded down
  int64_t position(int64_t step) const;  // of the step's first sample; position(n) resumes after n steps
  int64_t sample(int64_t step, int64_t row) const;

  // Reads a step's part into one view per field, on the calling thread.
  void read(int64_t step, std::span<const View> out) const;

  // The same in the background: request() hands the views to the reading thread and waits only
  // while `queue` requests are open; wait() returns the oldest request's step once its views are
  // filled, and throws what its reading threw. After an error later requests are still served. The
  // views' memory must live until their wait() returns or this object has ended.
  void request(int64_t step, std::vector<View> out);
  int64_t wait();

 private:
  struct Worker;

  void check(std::span<const View> out) const;

  SourcePtr source_;
  BatchOptions options_;
  Sampler sampler_;
  std::vector<FieldSpec> samples_;  // of the source
  std::vector<FieldSpec> fields_;
  std::unique_ptr<Worker> worker_;
};

// Fills one view per field with a rank's part of one batch, whose row r is sample `sample_of(r)`; asked for the rows
// that a slice needs only.
void read_rows(const Source& source, std::span<const FieldSlice> slices,
               const std::function<int64_t(int64_t)>& sample_of, std::span<const View> out);

// Samples [first, first + count), to be read in one batch: each as often as the others.
struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const SampleRange&, const SampleRange&) = default;
};
// Every sample once, in batches of one size: whole batches, and what is left in parts whose sizes divide the batch, so
// that repeating a part's samples fills it and the mean over the batch is the mean over the part.
std::vector<SampleRange> one_pass(int64_t size, int64_t batch);

// Rows [first, last) of every field: what a rank of a data-parallel group needs.
std::vector<FieldSlice> row_slices(const Source& source, int64_t first, int64_t last);

}  // namespace trireme::data
