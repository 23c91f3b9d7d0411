#include "trireme/data/batches.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"

namespace trireme::data {
namespace {

Shape with_batch(int64_t rows, const Shape& sample) {
  Shape out{rows};
  for (const int64_t size : sample) out.push_back(size);
  return out;
}

void check_slice(const FieldSpec& field, const FieldSlice& slice, const Shape& whole) {
  require(slice.start.rank() == whole.rank() && slice.size.rank() == whole.rank(),
          "slice of '{}' has {} starts and {} sizes; the batch {} needs {} of each", field.name, slice.start.rank(),
          slice.size.rank(), to_string(whole), whole.rank());
  for (int dim = 0; dim < whole.rank(); ++dim) {
    require(slice.start[dim] >= 0 && slice.size[dim] >= 0 && slice.start[dim] <= whole[dim] - slice.size[dim],
            "slice of '{}' takes [{}, {}) of dim {}, which has size {}", field.name, slice.start[dim],
            slice.start[dim] + slice.size[dim], dim, whole[dim]);
  }
}

// Without the batch's dimension.
Shape of_sample(const Shape& shape) {
  Shape out;
  for (int dim = 1; dim < shape.rank(); ++dim) out.push_back(shape[dim]);
  return out;
}

}  // namespace

Sampler::Sampler(int64_t size, uint64_t seed, bool shuffle) : size_(size), seed_(seed), shuffle_(shuffle) {
  require(size > 0, "a sampler needs at least one sample, the source has {}", size);
}

int64_t Sampler::sample(int64_t position) const {
  require(position >= 0, "position {} is negative", position);
  const int64_t index = position % size_;
  if (!shuffle_) return index;
  return Permutation(size_, seed_, static_cast<uint64_t>(epoch(position)))(index);
}

// Requests flow caller -> `open` -> reading thread -> `done` -> caller, in order.
struct Batches::Worker {
  struct Request {
    int64_t step = 0;
    std::vector<View> out;
    std::exception_ptr error;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Request> open;
  std::deque<Request> done;
  size_t unreturned = 0;
  bool stop = false;
  std::thread thread;
};

Batches::Batches(SourcePtr source, const BatchOptions& options)
    : source_(std::move(source)),
      options_(options),
      sampler_(source_->size(), options.seed, options.shuffle),
      samples_(source_->fields()) {
  require(options.global_batch > 0, "global batch {}; it must be positive", options.global_batch);
  require(options.global_batch <= source_->size(),
          "global batch {} is larger than the data set of {}; use a batch of at most {}", options.global_batch,
          counted(source_->size(), "sample"), source_->size());
  require(options.start_position >= 0,
          "batches: the start position {} is negative; it is the number of samples already taken",
          options.start_position);
  require(options.queue > 0, "a queue of {} requests; it must be positive", options.queue);
  if (options_.slices.empty()) options_.slices = row_slices(*source_, 0, options.global_batch);
  require(options_.slices.size() == samples_.size(), "{} slices for {} fields", options_.slices.size(),
          samples_.size());
  for (size_t i = 0; i < samples_.size(); ++i) {
    const FieldSlice& slice = options_.slices[i];
    check_slice(samples_[i], slice, with_batch(options.global_batch, samples_[i].sample.shape));
    fields_.push_back({samples_[i].name, {samples_[i].sample.dtype, slice.size}});
  }
}

Batches::~Batches() {
  if (!worker_) return;
  {
    const std::lock_guard lock(worker_->mutex);
    worker_->stop = true;
  }
  worker_->changed.notify_all();
  worker_->thread.join();
}

int64_t Batches::steps_per_epoch() const {
  return source_->size() / options_.global_batch;
}

int64_t Batches::position(int64_t step) const {
  require(step >= 0, "step {} is negative", step);
  return options_.start_position + step * options_.global_batch;
}

int64_t Batches::sample(int64_t step, int64_t row) const {
  return sampler_.sample(position(step) + row);
}

void Batches::check(std::span<const View> out) const {
  require(out.size() == fields_.size(), "{} views for {} fields", out.size(), fields_.size());
  for (size_t i = 0; i < out.size(); ++i) {
    require(out[i].type == fields_[i].sample, "view of field '{}' is {}; the batch is {}", fields_[i].name,
            to_string(out[i].type), to_string(fields_[i].sample));
  }
}

void Batches::read(int64_t step, std::span<const View> out) const {
  check(out);
  read_rows(
      *source_, options_.slices, [&](int64_t row) { return sample(step, row); }, out);
}

void Batches::request(int64_t step, std::vector<View> out) {
  check(out);
  require(step >= 0, "step {} is negative", step);
  if (!worker_) {
    worker_ = std::make_unique<Worker>();
    worker_->thread = std::thread([this, &w = *worker_] {
      std::unique_lock lock(w.mutex);
      while (true) {
        w.changed.wait(lock, [&] { return w.stop || !w.open.empty(); });
        if (w.stop) return;
        Worker::Request request = std::move(w.open.front());
        lock.unlock();
        try {
          read(request.step, request.out);
        } catch (...) {
          request.error = std::current_exception();
        }
        lock.lock();
        w.open.pop_front();
        w.done.push_back(std::move(request));
        w.changed.notify_all();
      }
    });
  }
  std::unique_lock lock(worker_->mutex);
  worker_->changed.wait(lock, [&] { return worker_->open.size() < static_cast<size_t>(options_.queue); });
  worker_->open.push_back({step, std::move(out), nullptr});
  ++worker_->unreturned;
  worker_->changed.notify_all();
}

int64_t Batches::wait() {
  require(worker_ != nullptr, "waiting for a batch, but none was requested");
  std::unique_lock lock(worker_->mutex);
  require(worker_->unreturned > 0, "waiting for a batch, but none was requested");
  worker_->changed.wait(lock, [&] { return !worker_->done.empty(); });
  const Worker::Request request = std::move(worker_->done.front());
  worker_->done.pop_front();
  --worker_->unreturned;
  if (request.error) std::rethrow_exception(request.error);
  return request.step;
}

void read_rows(const Source& source, std::span<const FieldSlice> slices,
               const std::function<int64_t(int64_t)>& sample_of, std::span<const View> out) {
  const std::vector<FieldSpec> fields = source.fields();
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = 0;
  std::vector<FieldPart> parts;
  for (size_t i = 0; i < fields.size(); ++i) {
    const FieldSlice& slice = slices[i];
    parts.push_back({of_sample(slice.start), {nullptr, {fields[i].sample.dtype, of_sample(slice.size)}}});
    if (slice.size.elements() == 0) continue;
    first = std::min(first, slice.start[0]);
    last = std::max(last, slice.start[0] + slice.size[0]);
  }
  for (int64_t row = first; row < last; ++row) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const FieldSlice& slice = slices[i];
      const int64_t at = row - slice.start[0];
      const bool wanted = slice.size.elements() > 0 && at >= 0 && at < slice.size[0];
      parts[i].to.data = wanted ? out[i].data + at * parts[i].to.bytes() : nullptr;
    }
    source.read_parts(sample_of(row), parts);
  }
}

std::vector<SampleRange> one_pass(int64_t size, int64_t batch) {
  require(size >= 1 && batch >= 1, "one pass over {} samples in batches of {}; both must be 1 or more", size, batch);
  std::vector<SampleRange> out;
  int64_t first = 0;
  for (int64_t count = batch; first < size;) {
    while (count > size - first || batch % count != 0) --count;
    out.push_back({first, count});
    first += count;
  }
  return out;
}

std::vector<FieldSlice> row_slices(const Source& source, int64_t first, int64_t last) {
  std::vector<FieldSlice> out;
  for (const FieldSpec& field : source.fields()) {
    FieldSlice slice{with_batch(first, field.sample.shape), with_batch(last - first, field.sample.shape)};
    for (int dim = 1; dim < slice.start.rank(); ++dim) slice.start[dim] = 0;
    out.push_back(slice);
  }
  return out;
}

}  // namespace trireme::data
