#include "trireme/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/data/batches.h"
#include "trireme/launch/rank_info.h"
#include "trireme/train/by_hand.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/interrupt.h"
#include "trireme/train/job.h"
#include "trireme/train/precision.h"
#include "trireme/train/recorder.h"
#include "trireme/train/session.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<BatchField> batch_fields(const data::Source& source, int64_t batch) {
  std::vector<BatchField> out;
  for (const data::FieldSpec& field : source.fields()) {
    TensorType type{field.sample.dtype, {batch}};
    for (const int64_t size : field.sample.shape) type.shape.push_back(size);
    out.push_back({field.name, type});
  }
  return out;
}

// This rank's part of each field, as the plan cuts it.
std::vector<data::FieldSlice> slices_of(const Executor& executor, const std::vector<BatchField>& fields) {
  std::vector<data::FieldSlice> out;
  for (const BatchField& field : fields) {
    const Box box = executor.input_box(field.name);
    out.push_back({box.start, box.size});
  }
  return out;
}

// The batches of a run, read ahead by a thread into staging memory while the step computes.
class Feed {
 public:
  Feed(const data::SourcePtr& source, const data::BatchOptions& options, Executor& executor,
       const std::vector<BatchField>& fields, int64_t first, int64_t end)
      : batches_(source, options), end_(end), next_(first) {
    for (const BatchField& field : fields) targets_.push_back(executor.input(field.name));
    for (auto& stage : stages_) {
      for (const View& target : targets_) stage.emplace_back(target.type);
    }
    for (size_t i = 0; i < stages_.size(); ++i) ask();
  }

  // Puts the next batch in place.
  void take() {
    batches_.wait();
    const std::vector<HostTensor>& stage = stages_[static_cast<size_t>(taken_++ % 2)];
    for (size_t i = 0; i < targets_.size(); ++i) {
      std::copy(stage[i].view().raw().begin(), stage[i].view().raw().end(), targets_[i].raw().begin());
    }
    ask();
  }
  const data::Batches& batches() const { return batches_; }

 private:
  void ask() {
    if (next_ >= end_) return;
    std::vector<View> views;
    for (const HostTensor& tensor : stages_[static_cast<size_t>(asked_++ % 2)]) views.push_back(tensor.view());
    batches_.request(next_++, std::move(views));
  }

  std::array<std::vector<HostTensor>, 2> stages_;  // outlive the reading thread in batches_
  data::Batches batches_;
  std::vector<View> targets_;
  int64_t end_;
  int64_t next_;
  int64_t asked_ = 0;
  int64_t taken_ = 0;
};

// One call of fit: its session, its feed, its records.
class Run {
 public:
  Run(const ModelFn& model, const LossFn& loss, const Optimizer& optimizer, const TrainerOptions& options,
      const data::SourcePtr& train, const FitOptions& fit, Job& job)
      : options_(options), fit_(fit), job_(job), optimizer_(optimizer), train_(train),
        fields_(batch_fields(*train, fit.batch)), total_(steps_of(*train, fit)),
        by_hand_(is_by_hand(model, loss)),
        session_(step_graph(model, loss), evaluation_graph(model, loss),
                 {.world = job.world(), .pool = &job.pool(), .seed = options.seed, .parallel = parallel(),
                  .parameter_broadcast = options.parameter_broadcast}) {}

  FitResult run() {
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
    Feed feed(train_, batch_options(), session_.step(), fields_, first_, total_);
    session_.step().set_timing(true);
    const auto begin = Clock::now();
    result_.step = first_;
    while (result_.step < total_ && !result_.interrupted) {
      train_step(feed, recorder);
      const int64_t step = result_.step;
      const Wishes wishes = agree(job_.world(), interrupt.take());
      result_.signal = wishes.stop;
      result_.interrupted = wishes.stop != 0 && step < total_;
      const bool last = step == total_ || result_.interrupted;
      if (fit_.validation && !result_.interrupted && (last || (fit_.eval_every > 0 && step % fit_.eval_every == 0))) {
        evaluate(recorder);
      }
      const bool save_now = last || wishes.save || (fit_.save_every > 0 && step % fit_.save_every == 0);
      if (!options_.out.empty() && save_now) save();
      if (wishes.save && job_.rank() == 0) say_saved();
    }
    const double total_s = seconds_since(begin);
    summarise_communication();
    finish(recorder, total_s);
    if (result_.signal == 0) result_.signal = agree(nullptr, interrupt.take()).stop;  // one that came after the last step
    return result_;
  }

 private:
  void say_saved() const {
    if (options_.out.empty()) {
      TRIREME_LOG(kWarn, "train", "SIGUSR1 asks to save, but this run has no folder to save to");
    } else {
      TRIREME_LOG(kInfo, "train", "saved '{}', as SIGUSR1 asked", result_.checkpoint);
    }
  }

  // Data parallel ranks hold the whole model, whatever its code asks.
  Parallel parallel() const {
    Parallel out = options_.parallel;
    if (options_.mode == Mode::kDataParallel) out.follow_requests = false;
    out.by_hand = by_hand_;
    return out;
  }

  // Data parallel ranks that have parameters of their own run what each would run by hand.
  bool is_by_hand(const ModelFn& model, const LossFn& loss) const {
    if (options_.mode == Mode::kHybrid) return true;
    if (options_.mode != Mode::kDataParallel) return false;
    const Graph graph = evaluation(model, loss, fields_, {.layerwise = options_.parallel.layerwise});
    return std::ranges::any_of(graph.inputs(), [](const Input& input) { return !input.piece.empty(); });
  }

  Graph step_graph(const ModelFn& model, const LossFn& loss) const {
    std::vector<BatchField> fields = fields_;
    StepOptions how = step_options();
    cut_by_hand(parallel(), job_.size(), fields, how);
    return training_step(model, loss, fields, optimizer_, how);
  }

  void write_strategy() const {
    const Compiled& made = session_.compiled();
    atomic_write(options_.save_strategy, options_.only_trained_parameters
                                             ? trained_parameters_to_string(made.graph, made.strategy)
                                             : trireme::to_string(made.graph, made.strategy));
    TRIREME_LOG(kInfo, "train", "wrote the strategy to '{}'", options_.save_strategy);
  }

  void log_ignored_requests() const {
    const std::vector<ShardRequest>& asked = session_.compiled().graph.shard_requests();
    if (options_.mode != Mode::kDataParallel || asked.empty()) return;
    TRIREME_LOG(kWarn, "train", "mode data_parallel: shard() is ignored, of {} modules, the first '{}'",
                asked.size(), asked.front().scope);
  }

  StepOptions step_options() const {
    return {.name = options_.name, .seed = options_.seed, .gradient_scale = options_.gradient_scale,
            .clip_norm = options_.clip_norm, .numerics = options_.parallel.numerics, .compute = options_.compute, .accuracy = options_.accuracy};
  }

  std::optional<Graph> evaluation_graph(const ModelFn& model, const LossFn& loss) const {
    if (!fit_.validation) return std::nullopt;
    require(fit_.validation->size() >= fit_.batch,
            "the validation set has {} samples and the batch {}; use a batch of at most {}, or a larger validation set",
            fit_.validation->size(), fit_.batch, fit_.validation->size());
    std::vector<BatchField> fields = batch_fields(*fit_.validation, fit_.batch);
    StepOptions how = step_options();
    cut_by_hand(parallel(), job_.size(), fields, how);
    return evaluation(model, loss, fields, how);
  }

  static int64_t steps_of(const data::Source& train, const FitOptions& fit) {
    require(fit.batch >= 1, "batch {}: it must be 1 or more", fit.batch);
    require(fit.steps > 0 || fit.epochs > 0, "fit: neither steps nor epochs are given; one of them must be 1 or more");
    require(train.size() >= fit.batch, "the training set has {} samples and the batch {}; use a batch of at most {}",
            train.size(), fit.batch, train.size());
    return fit.steps > 0 ? fit.steps : fit.epochs * (train.size() / fit.batch);
  }

  data::BatchOptions batch_options() {
    return {.global_batch = fit_.batch, .seed = options_.seed, .slices = slices_of(session_.step(), fields_)};
  }

  // Starting values, or those of the newest checkpoint.
  void start() {
    if (job_.rank() == 0) {
      log_slow_products(options_.compute);
      log_ignored_requests();
      if (!options_.save_strategy.empty()) write_strategy();
    }
    const std::string root = checkpoints();
    const bool restarted = flag_int("TRIREME_RESTART_COUNT", 0, 1'000'000).value_or(0) > 0;
    const bool may_restart = flag_int("TRIREME_RESTARTS", 0, 1'000'000).value_or(0) > 0;
    const bool goes_on = (fit_.resume || restarted) && !options_.out.empty();
    if (goes_on) agree_on_checkpoint(root);
    if (goes_on && ckpt::find_latest(root)) {
      const ckpt::Reader reader(root);
      result_.checkpoint = reader.path();
      result_.step = first_ = reader.step();
      require(reader.seed() == options_.seed,
              "the checkpoint '{}' was made with seed {}, this run has seed {}; go on with the same seed", reader.path(),
              reader.seed(), options_.seed);
      require(reader.data_position() == first_ * fit_.batch,
              "the checkpoint '{}' is at sample {} after {} steps, a batch of {}; this run's batch is {}", reader.path(),
              reader.data_position(), first_, first_ > 0 ? reader.data_position() / first_ : 0, fit_.batch);
      result_.nothing_left = first_ >= total_;
      if (result_.nothing_left) return;
      load(reader);
      TRIREME_LOG(kInfo, "train", "resumed at step {} from '{}'", first_, reader.path());
    } else {
      session_.initialise();
      // Whoever starts this job again must find only checkpoints of its own.
      if (may_restart && !restarted && !options_.out.empty()) move_earlier_run_away();
    }
    if (job_.world()) job_.world()->all().barrier().wait();
    const double expected_s = expected_seconds();
    if (options_.on_start && job_.rank() == 0) {
      options_.on_start(session_, {.first_step = first_, .last_step = total_, .data = describe_data(),
                                   .expected_s = expected_s});
    }
  }

  // Ranks whose folders are on different disks would go on from different steps.
  void agree_on_checkpoint(const std::string& root) {
    if (!job_.world()) return;
    const auto found = ckpt::find_latest(root);
    const std::string mine = found ? std::to_string(ckpt::Reader(root).step()) : "-";
    const std::vector<std::string> all = gather_texts(*job_.world(), mine);
    const auto other = std::ranges::find_if(all, [&](const std::string& step) { return step != mine; });
    const auto text = [](const std::string& step) { return step == "-" ? std::string("none") : "that of step " + step; };
    require(other == all.end(),
            "the newest checkpoint that rank {} finds in '{}' is {}, but rank {} finds {}; the folder must be on a disk that all "
            "ranks see", job_.rank(), root, text(mine), other - all.begin(), other == all.end() ? "" : text(*other));
  }

  // A step takes about three forward passes: one forward, two back. 0: there is nothing to time without changing it.
  double expected_seconds() {
    if (!session_.has_evaluation()) return 0;
    Executor& executor = session_.evaluation();
    double pass_s = 0;
    for (int i = 0; i < 2; ++i) {  // the first warms up
      for (const BatchField& field : batch_fields(*fit_.validation, fit_.batch)) {
        const View view = executor.input(field.name);
        std::fill(view.raw().begin(), view.raw().end(), std::byte{0});
      }
      const auto begin = Clock::now();
      executor.run();
      pass_s = seconds_since(begin);
    }
    return 3 * pass_s * static_cast<double>(total_ - first_);
  }

  void load(const ckpt::Reader& reader) {
    try {
      load_session(session_, reader);
    } catch (Error& e) {
      const std::vector<ckpt::Found> found = ckpt::list_checkpoints(checkpoints()).complete;
      if (e.kind() == ErrorKind::kCorrupt) {
        e.note(found.size() > 1 ? fmt::format("move '{}' away to go on from '{}'", reader.path(), found[found.size() - 2].path)
                                : std::string("there is no earlier checkpoint; start again without resuming"));
      } else if (e.kind() == ErrorKind::kNotFound || e.kind() == ErrorKind::kInvalidArgument) {
        e.note("a run goes on with the model and the optimizer it was started with");
      }
      throw;
    }
  }

  std::string describe_data() const {
    return fmt::format("{} samples to train on, {} held out", train_->size(),
                       fit_.validation ? fit_.validation->size() : 0);
  }

  void train_step(Feed& feed, Recorder& recorder) {
    const auto begin = Clock::now();
    const int64_t step = result_.step + 1;
    const double lr = rate_at(options_.schedule, learning_rate(optimizer_), step, total_);
    feed.take();
    data_s_ += seconds_since(begin);
    Executor& executor = session_.step();
    executor.input("lr").as<float>()[0] = static_cast<float>(lr);
    executor.input("step").as<int64_t>()[0] = step;
    executor.run();
    result_.step = step;
    result_.loss = executor.output("loss").as<float>()[0];
    StepRecord record{.step = step, .loss = result_.loss, .lr = lr, .seconds = seconds_since(begin),
                      .communication = executor.communication()};
    communication_ += record.communication;
    if (options_.clip_norm > 0) record.grad_norm = executor.output("grad_norm").as<float>()[0];
    recorder.step(record);
    launch::note_step();
    if (!std::isfinite(result_.loss)) {
      fail(ErrorKind::kInvalidArgument,
           "the loss is {} at step {}; lower the learning rate ({}), warm it up or clip gradients{}", result_.loss, step,
           lr, result_.checkpoint.empty() ? "" : fmt::format(", and resume from '{}'", result_.checkpoint));
    }
  }

  void evaluate(Recorder& recorder) {
    Executor& executor = session_.evaluation();
    const std::vector<BatchField> fields = batch_fields(*fit_.validation, fit_.batch);
    const int64_t all = fit_.validation->size() / fit_.batch;
    const int64_t count = fit_.eval_batches > 0 ? std::min(all, fit_.eval_batches) : all;
    const data::Batches batches(fit_.validation, {.global_batch = fit_.batch, .shuffle = false,
                                                  .slices = slices_of(executor, fields)});
    std::vector<View> views;
    for (const BatchField& field : fields) views.push_back(executor.input(field.name));
    double loss = 0;
    double correct = 0;
    for (int64_t i = 0; i < count; ++i) {
      batches.read(i, views);
      executor.run();
      loss += executor.output("loss").as<float>()[0];
      if (options_.accuracy) correct += executor.output("correct").as<float>()[0];
    }
    result_.validation_loss = loss / static_cast<double>(count);
    result_.accuracy = correct / static_cast<double>(count * fit_.batch);
    recorder.validation(result_.step, result_.validation_loss, options_.accuracy ? result_.accuracy : -1);
  }

  std::string checkpoints() const { return options_.out + "/checkpoints"; }

  // A run that starts from the beginning must not go on from, or be pruned among, the checkpoints of one before it. Those stay:
  // how many are kept is said of a run, and what another one trained is not this one's to remove.
  void move_earlier_run_away() {
    moved_ = true;
    const std::string root = checkpoints();
    if (job_.rank() == 0 && is_directory(root)) {
      int number = 1;
      while (is_directory(fmt::format("{}.{}", root, number))) ++number;
      disk().rename(root, fmt::format("{}.{}", root, number));
      TRIREME_LOG(kWarn, "train", "'{}' held the checkpoints of an earlier run; they are now in '{}.{}', where they stay", root, root,
                  number);
    }
    if (job_.world()) job_.world()->all().barrier().wait();
  }

  void save() {
    if (first_ == 0 && !moved_) move_earlier_run_away();
    result_.checkpoint = save_session(session_, job_.world(),
                                      {.root = checkpoints(),
                                       .step = result_.step,
                                       .seed = options_.seed,
                                       .data_position = result_.step * fit_.batch,
                                       .keep = fit_.keep,
                                       .meta = {{"name", options_.name}, {"config", options_.config_text}}});
  }

  // Whether this rank has all of every parameter.
  bool are_whole() {
    const std::vector<PlanInput>& inputs = session_.persistent();
    return std::all_of(inputs.begin(), inputs.end(), [&](const PlanInput& input) {
      const PlanValue& value = session_.compiled().plan.values[static_cast<size_t>(input.value)];
      return input.role != Role::kParameter || value.layout.is_replicated();
    });
  }

  // The trained parameters; where ranks have pieces of them, from the checkpoint.
  std::function<View(std::string_view)> parameters() {
    if (are_whole()) return [this](std::string_view name) { return session_.step().input(name); };
    const auto reader = std::make_shared<ckpt::Reader>(result_.checkpoint);
    const auto read = std::make_shared<std::map<std::string, HostTensor, std::less<>>>();
    return [reader, read](std::string_view name) {
      auto found = read->find(name);
      if (found == read->end()) found = read->emplace(std::string(name), reader->read(std::string(name))).first;
      return found->second.view();
    };
  }

  void summarise_communication() {
    const auto steps = static_cast<double>(result_.step - first_);
    CommunicationTime of_a_step = communication_;
    result_.communication = over_ranks(job_.world(), of_a_step /= steps);
  }

  void finish(Recorder& recorder, double total_s) {
    if (job_.rank() != 0) return;
    const int64_t steps = result_.step - first_;
    ReportData report;
    report.title = options_.name;
    report.summary = fmt::format("{} of {} steps on {} rank{}", result_.step, total_, job_.size(),
                                 job_.size() == 1 ? "" : "s");
    report.headline = {{"Training loss", fmt::format("{:.4f}", result_.loss)}};
    if (fit_.validation) report.headline.emplace_back("Validation loss", fmt::format("{:.4f}", result_.validation_loss));
    if (options_.accuracy) report.headline.emplace_back("Accuracy", fmt::format("{:.2f} %", 100 * result_.accuracy));
    report.headline.emplace_back("Throughput", fmt::format("{} {}/s", compact_number(recorder.mean_units_per_s()),
                                                           options_.unit));
    const ExecutionPlan& plan = session_.compiled().plan;
    report.facts = {{"Parameters", compact_number(static_cast<double>(session_.parameter_count()))},
                    {"Ranks", std::to_string(job_.size())},
                    {"Threads per rank", std::to_string(job_.pool().size())},
                    {"Transport", job_.world() ? std::string(job_.world()->transport()) : "none"},
                    {"Batch", fmt::format("{} samples over all ranks", fit_.batch)},
                    {"Arena per rank", fmt::format("{:.1f} MiB", static_cast<double>(plan.arena_bytes) / 1048576.0)},
                    {"Seed", std::to_string(options_.seed)},
                    {"Command", options_.command.empty() ? job_.command() : options_.command}};
    if (job_.size() > 1) report.facts.emplace_back("Communication", trireme::to_string(result_.communication));
    report.memory = memory_by_holding(plan);
    report.hidden_comm_ms = communication_.hidden_s() * 1e3 / static_cast<double>(steps);
    report.time = time_by_op(session_.step().times(), data_s_, total_s, steps);
    if (options_.sample && !result_.interrupted && (are_whole() || !result_.checkpoint.empty())) {
      report.samples = {{"", options_.sample(parameters())}};
    }
    result_.report = recorder.finish(std::move(report));
  }

  const TrainerOptions& options_;
  const FitOptions& fit_;
  Job& job_;
  const Optimizer& optimizer_;
  data::SourcePtr train_;
  std::vector<BatchField> fields_;
  int64_t total_;
  bool by_hand_;
  Session session_;
  int64_t first_ = 0;
  bool moved_ = false;  // what an earlier run left, if anything
  double data_s_ = 0;
  CommunicationTime communication_;  // of this rank, over all steps
  FitResult result_;
};

}  // namespace

Trainer::Trainer(ModelFn model, LossFn loss, Optimizer optimizer, TrainerOptions options)
    : model_(std::move(model)), loss_(std::move(loss)), optimizer_(std::move(optimizer)),
      options_(std::move(options)) {}
Trainer::~Trainer() = default;

FitResult Trainer::fit(const data::SourcePtr& train, const FitOptions& options) {
  Job& job = Job::current();
  require(options_.mode != Mode::kStandAlone || job.size() == 1,
          "mode stand_alone in a job of {} ranks; use data_parallel, or start one rank", job.size());
  return Run(model_, loss_, optimizer_, options_, train, options, job).run();
}

}  // namespace trireme
