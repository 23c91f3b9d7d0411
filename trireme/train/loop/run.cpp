#include "trireme/train/loop/run_impl.h"

#include <cmath>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/rank/rank_info.h"
#include "trireme/train/loop/measured_disk.h"
#include "trireme/train/report/utilisation.h"

namespace trireme {
namespace {

constexpr int64_t kDrawnStep = 3;  // of a run: its first ones make kernels and fill caches

}  // namespace

bool any_rank(comm::World* world, bool mine) {
  if (world == nullptr) return mine;
  int32_t flag = mine ? 1 : 0;
  world->all().all_reduce({reinterpret_cast<std::byte*>(&flag), {DType::kI32, {1}}}, comm::Reduce::kMax).wait();
  return flag != 0;
}

int64_t Run::steps_of(const data::Source& train, const FitOptions& fit) {
  require(fit.batch >= 1, "batch {}: it must be 1 or more", fit.batch);
  require(fit.steps >= 0 && fit.epochs >= 0 && (fit.steps > 0 || fit.epochs > 0),
          "fit: neither steps nor epochs are given; one of them must be 1 or more");
  require(fit.steps == 0 || fit.epochs == 0, "fit: {} steps and {} epochs both say how long; give one", fit.steps,
          fit.epochs);
  require(train.size() >= fit.batch, "the training set has {} samples and the batch {}; use a batch of at most {}",
          train.size(), fit.batch, train.size());
  constexpr int64_t kMost = int64_t{1} << 58;  // samples are counted in 64 bits
  const int64_t of_an_epoch = train.size() / fit.batch;
  require(fit.steps <= kMost / fit.batch && fit.epochs <= kMost / fit.batch / of_an_epoch,
          "fit: {} steps or {} epochs of {} steps, each of {} samples, are more than 2^58 samples", fit.steps,
          fit.epochs, of_an_epoch, fit.batch);
  return fit.steps > 0 ? fit.steps : fit.epochs * of_an_epoch;
}

data::BatchOptions Run::batch_options() {
  return {.global_batch = fit_.batch, .seed = options_.step.seed, .slices = slices_of(session_.step(), fields_)};
}

FitResult Run::run() {
  start();
  if (result_.nothing_left) return result_;
  const InterruptGuard interrupt;
  Recorder recorder({.out = job_.rank() == 0 ? options_.out : "",
                     .progress = options_.progress && job_.rank() == 0,
                     .total_steps = total_,
                     .resume_step = first_ > 0 ? first_ : -1,
                     .units_per_step = static_cast<double>(fit_.batch * options_.tokens_per_sample),
                     .unit = options_.unit,
                     .communicates = job_.size() > 1});
  disk_bytes_per_s_ = measured_disk(session_);
  Feed feed(train_, batch_options(), session_.step(), fields_, first_, total_);
  session_.step().set_timing(true);
  const double begin_s = now_s();
  result_.step = first_;
  try {
    train(feed, recorder, interrupt);
  } catch (const std::exception& e) {
    finish(recorder, now_s() - begin_s, e.what());
    throw;
  }
  const double total_s = now_s() - begin_s;
  summarise_communication();
  if (!options_.out.empty())
    peak_flops_per_s_ = peak_flops_per_s(job_.world(), job_.pool(), session_.device(), options_.step.compute);
  finish(recorder, total_s);
  if (result_.signal == 0) result_.signal = agree(nullptr, interrupt.take()).stop;  // one that came after the last step
  return result_;
}

void Run::train(Feed& feed, Recorder& recorder, const InterruptGuard& interrupt) {
  Tracer tracer({.path = options_.trace, .steps = options_.trace_steps}, session_.step(), job_.world(), first_ + 1);
  TimelineRecorder timeline(session_.compiled(), session_.step(), options_.out.empty() ? nullptr : job_.world(),
                            std::min(total_, first_ + kDrawnStep));
  saved_at_s_ = now_s();
  if (owes_validation_) {
    validate(recorder);
    save();  // the same step, with what was found
    result_.nothing_left = result_.stopped_early;
  }
  while (result_.step < total_ && !result_.interrupted && !result_.stopped_early) {
    tracer.begin(result_.step + 1);
    timeline.begin(result_.step + 1, tracer.is_open());
    train_step(feed, recorder);
    timeline.end(result_.step, tracer.is_open());
    tracer.end(result_.step);
    const int64_t step = result_.step;
    Wishes mine = interrupt.take();
    mine.due = !options_.out.empty() && fit_.save_every_minutes > 0 && job_.rank() == 0 &&
               now_s() - saved_at_s_ >= 60 * fit_.save_every_minutes;
    const Wishes wishes = agree(job_.world(), mine);
    result_.signal = wishes.stop;
    result_.interrupted = wishes.stop != 0 && step < total_;
    bool last = step == total_ || result_.interrupted;
    bool better = false;
    if (fit_.validation && !result_.interrupted && (last || is_validation_due())) {
      better = validate(recorder);
      last = last || result_.stopped_early;
    }
    const bool save_now = last || wishes.save || wishes.due || (better && fit_.keep_best) ||
                          (fit_.save_every > 0 && step % fit_.save_every == 0);
    if (!options_.out.empty() && save_now) {
      recorder.flush();
      save();
    }
    if (wishes.save) {
      interrupt.take();  // what came meanwhile is the same wish, sent to each rank by a cluster
      if (job_.rank() == 0) say_saved();
    }
  }
  tracer.finish();
  if (tracer.is_written()) result_.trace = options_.trace;
  timeline_ = timeline.timeline();
  if (unproven_ && validated_ == result_.step && std::isfinite(result_.validation_loss)) prune();
}

void Run::log_sent(const char* of, const std::function<void()>& work) {
  const comm::World* const world = log_on(LogLevel::kDebug, "train") ? job_.world() : nullptr;
  const int64_t before = world ? world->sent_bytes() : 0;
  work();
  if (world) TRIREME_LOG(kDebug, "train", "sent  of={} bytes={}", of, world->sent_bytes() - before);
}

void Run::train_step(Feed& feed, Recorder& recorder) {
  const double begin_s = now_s();
  const int64_t step = result_.step + 1;
  lr_ = rate_at(options_.schedule, learning_rate(optimizer_), step, total_);
  feed.take();
  data_s_ += now_s() - begin_s;
  Executor& executor = session_.step();
  if (executor.has_input("lr")) executor.write_number("lr", static_cast<float>(lr_));
  if (executor.has_input("step")) executor.write_number("step", step);
  log_sent("step", [&] { executor.run(); });
  result_.step = step;
  result_.loss = executor.read_number<float>("loss");
  StepRecord record{.step = step,
                    .loss = result_.loss,
                    .lr = lr_,
                    .seconds = now_s() - begin_s,
                    .communication = executor.communication()};
  communication_ += record.communication;
  steps_s_ += record.seconds;
  if (options_.step.clip_norm > 0) record.grad_norm = executor.read_number<float>("grad_norm");
  recorder.step(record);
  launch::note_step();
  if (!std::isfinite(result_.loss))
    fail_not_finite(fmt::format("the loss is {} at step {}", std::isnan(result_.loss) ? "NaN" : "infinite", step),
                    step - 1);
  if (unproven_) prune();
}

}  // namespace trireme
