#include "trireme/train/plan/calibrate.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <utility>

#include "trireme/backend/device.h"
#include "trireme/base/rng.h"
#include "trireme/cost/op_seconds.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/assembly.h"
#include "trireme/train/step/session/measure_rates.h"

namespace trireme {
namespace {

constexpr size_t kTurns = 3;        // that the jobs take, one after the other
constexpr size_t kWarmUps = 1;      // steps of a turn,
constexpr size_t kTimedSteps = 3;   // and those after
constexpr size_t kMiddleSteps = 5;  // of all timed ones, by their length

struct SampleJob {
  std::string_view name;
  std::vector<std::string> keys;
  int64_t batch = 1;
};

// Every family of ops, small and large. Some accumulate, where products add to sums.
std::vector<SampleJob> sample_jobs() {
  const std::string in_two = "parallel.gradient_accumulation_steps=2";
  const auto gpt = [](const char* layers, const char* width, const char* seq) {
    return std::vector<std::string>{"model.kind=gpt", layers, width, "model.heads=4", "model.dropout=0.1", seq};
  };
  return {
      {"a GPT of width 128", gpt("model.layers=2", "model.width=128", "data.seq=64"), 4},
      {"a GPT of width 256", gpt("model.layers=2", "model.width=256", "data.seq=256"), 4},
      {"a GPT of two micro-batches",
       {"model.kind=gpt", "model.layers=1", "model.width=256", "model.heads=4", "data.seq=256", in_two},
       8},
      {"a GPT of width 512", gpt("model.layers=1", "model.width=512", "data.seq=256"), 4},
      {"a GPT of few rows", gpt("model.layers=1", "model.width=512", "data.seq=64"), 1},
      {"a Llama", {"model.kind=llama", "model.layers=2", "model.width=256", "model.heads=4", "data.seq=128"}, 8},
      {"a mixture of experts",
       {"model.kind=llama", "model.layers=1", "model.width=128", "model.heads=4", "model.experts=4", "data.seq=128"},
       8},
      {"an MLP", {"model.kind=mlp", "model.hidden=[640,640]", "data.image=[28,28,1]"}, 192},
      {"an MLP of few rows", {"model.kind=mlp", "model.hidden=[1024,1024]", "data.image=[28,28,1]", in_two}, 32},
      {"LeNet", {"model.kind=lenet"}, 32},
      {"a ResNet", {"model.kind=resnet", "model.blocks=[1,1,1]", "model.stem=32", "data.image=[64,64,3]"}, 8},
      {"a vision transformer", {"model.kind=vit", "model.layers=1", "data.image=[32,32,3]"}, 16},
  };
}

JobConfig config_of(const SampleJob& job) {
  JobConfig config;
  std::vector<std::string> keys = job.keys;
  keys.emplace_back("data.kind=synthetic");
  keys.push_back(fmt::format("data.samples={}", job.batch));
  set_keys(config, keys);
  config.name = job.name;
  config.data.validation = 0;
  config.train.fit.steps = 1;
  config.train.fit.batch = job.batch;
  return config;
}

// What each action of a usual step takes: its mean over the steps of middle length. Medians of actions would leave out
// what now and then interrupts one of them, which some action or other of each step meets.
std::vector<double> usual_seconds(std::vector<std::vector<double>> steps) {
  std::ranges::sort(steps, std::ranges::less{},
                    [](const std::vector<double>& step) { return std::accumulate(step.begin(), step.end(), 0.0); });
  std::vector<double> out(steps[0].size(), 0.0);
  for (size_t step = (steps.size() - kMiddleSteps) / 2, count = 0; count < kMiddleSteps; ++step, ++count) {
    for (size_t i = 0; i < out.size(); ++i) out[i] += steps[step][i] / kMiddleSteps;
  }
  return out;
}

// A sample job that stays ready, as the steps of all jobs are timed in turns: what slows the machine down for a second
// slows all of them.
class ReadyJob {
 public:
  ReadyJob(const SampleJob& job, ThreadPool& pool)
      : config_(config_of(job)),
        model_(make_model(config_)),
        session_(session_of(assembly_of(config_, *model_, 1), nullptr, &pool)) {
    session_.initialise();
  }

  // Ranks begin each step at the same time, so that they want the memory at the same time, as in a step of them all.
  void run(comm::World* world) {
    Executor& executor = session_.step();
    for (size_t step = 0; step < kWarmUps + kTimedSteps; ++step) {
      fill();
      executor.set_timing(true);  // from zero
      if (world != nullptr) world->all().barrier().wait();
      executor.run();
      if (step < kWarmUps) continue;
      std::vector<double>& seconds = steps_.emplace_back();
      for (const ActionTime& time : executor.times()) seconds.push_back(time.seconds);
    }
  }

  void add_samples(const Machine& machine, std::vector<OpSample>& samples) const {
    const std::vector<double> times = usual_seconds(steps_);
    const ExecutionPlan& plan = session_.plan();
    for (size_t i = 0; i < times.size(); ++i) {
      const Action& action = plan.actions[i];
      if (action.kernel.empty() || !action.op->kernel) continue;
      std::vector<TensorType> in, out;
      for (const int id : action.in) in.push_back(plan.values[static_cast<size_t>(id)].type);
      for (const int id : action.out) out.push_back(plan.values[static_cast<size_t>(id)].type);
      const OpBound bound = bound_of(*action.op, {in, out, action.attrs}, machine);
      if (bound.flops_s > 0 || bound.bytes_s > 0) samples.push_back({std::string(action.op->name), bound, times[i]});
    }
  }

 private:
  void fill() {
    Executor& executor = session_.step();
    const std::vector<FieldSpec> fields = fields_of(config_);
    const std::vector<FieldNeed> needs = model_of(config_).needs();
    for (size_t i = 0; i < fields.size(); ++i) {
      executor.fill_inputs({&fields[i].name, 1}, [&](std::span<const View> views) {
        if (views[0].type.dtype == DType::kF32) return fill_normal({1, 1}, 0, 0, views[0].as<float>());
        const auto below = static_cast<uint32_t>(needs[i].below);
        uint64_t at = 0;
        for (int32_t& id : views[0].as<int32_t>()) id = static_cast<int32_t>(random_bits({1, 2}, at++, 0) % below);
      });
    }
    if (executor.has_input("lr")) executor.write_number("lr", 1e-4F);
    if (executor.has_input("step")) executor.write_number("step", ++step_);
  }

  JobConfig config_;
  std::unique_ptr<nn::Module> model_;
  Session session_;
  int64_t step_ = 0;
  std::vector<std::vector<double>> steps_;  // timed, of each the seconds of its actions
};

void measure_disks(comm::World* world, const DiskToMeasure& how, Calibration& out) {
  if (world != nullptr) world->all().barrier().wait();
  out.disk = measure_disk(how.directory, how.bytes);
  float slowest = static_cast<float>(std::min(out.disk->written_bytes_per_s, out.disk->read_bytes_per_s));
  if (world != nullptr && world->size() > 1)
    world->all().all_reduce({reinterpret_cast<std::byte*>(&slowest), {DType::kF32, {}}}, comm::Reduce::kMin).wait();
  out.machine.disk_bytes_per_s = slowest;
}

}  // namespace

Calibration calibrate(comm::World* world, ThreadPool& pool, const std::function<void(std::string_view)>& tell,
                      const DiskToMeasure& disk) {
  const auto say = [&](std::string_view what) {
    if (tell) tell(what);
  };
  Calibration out;
  Machine& machine = out.machine;
  machine = Machine::this_host();
  say("arithmetic and memory");
  const Device& device = cpu_device();  // that the sample jobs run on
  const Peak peak = device.measure_peak(pool, {}).value();
  machine.flops_per_s = {{"f32", peak.f32_flops_per_s}, {"bf16", peak.bf16_flops_per_s}};
  machine.memory_bytes_per_s = peak.triad_bytes_per_s;
  machine.achievable = 1;
  if (world != nullptr && world->size() > 1) {
    say("links");
    const LinkLevel link = measure_rates(*world, pool, Mesh({{"ranks", world->size()}}), device).levels.back();
    const int64_t total = machine.memory_bytes * machine.devices_per_host;
    machine.devices_per_host = std::max<int64_t>(machine.devices_per_host, world->size());
    machine.memory_bytes = total / machine.devices_per_host;
    machine.levels = {{"host", machine.devices_per_host, link.latency_s, link.bytes_per_s}};
    machine.overlap_slowdown = measure_overlap_slowdown(*world, pool);
  }
  std::deque<ReadyJob> jobs;
  for (size_t turn = 0; turn < kTurns; ++turn) {
    for (size_t i = 0; const SampleJob& job : sample_jobs()) {
      say(fmt::format("{}, turn {} of {}", job.name, turn + 1, kTurns));
      if (turn == 0) jobs.emplace_back(job, pool);
      jobs[i++].run(world);
    }
  }
  for (const ReadyJob& job : jobs) job.add_samples(machine, out.samples);
  machine.op_rates = fit_op_rates(out.samples);
  if (!disk.directory.empty()) {
    say("the disk");
    measure_disks(world, disk, out);
  }
  return out;
}

}  // namespace trireme
