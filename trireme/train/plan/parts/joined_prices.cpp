#include "trireme/train/plan/parts/joined_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/mesh/machine.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/parts/crew_sums.h"

namespace trireme {
namespace {

using Counts = std::vector<int64_t>;  // of blocks, by kind
using JoinedField = int64_t PartPrice::*;

constexpr int64_t kFewBlocks = 2;  // of a kind: an end of the blocks may have what others do not

constexpr std::array kJoinedTimes{&PartPrice::forward, &PartPrice::input_grad,     &PartPrice::weight_grad,
                                  &PartPrice::again,   &PartPrice::moving_forward, &PartPrice::moving_backward,
                                  &PartPrice::update,  &PartPrice::sync,           &PartPrice::coming,
                                  &PartPrice::going,   &PartPrice::updating};
constexpr std::array kJoinedBytes{&PartPrice::persistent, &PartPrice::kept, &PartPrice::host, &PartPrice::disk};

// Of all that a rank runs in the step, with one micro-batch: its arena is what is persistent and what is kept.
PartPrice price_of_step(const CrewSums& sums) {
  PartPrice out = sums.last;
  out.update = sums.all.forward + sums.all.input_grad + sums.all.weight_grad + sums.all.again - out.forward -
               out.input_grad - out.weight_grad - out.again;
  out.sync = sums.all.moving_forward + sums.all.moving_backward - out.moving_forward - out.moving_backward;
  for (const JoinedField field : {&PartPrice::coming, &PartPrice::going, &PartPrice::updating, &PartPrice::persistent,
                                  &PartPrice::host, &PartPrice::disk})
    out.*field = sums.all.*field;
  out.kept = out.waiting = sums.all.work - sums.all.persistent;
  out.adding = out.sums = out.tied = out.tied_sums = 0;
  return out;
}

PartPrice minus(PartPrice a, const PartPrice& b, int64_t times) {
  for (const JoinedField field : kJoinedTimes) a.*field -= times * b.*field;
  for (const JoinedField field : kJoinedBytes) a.*field -= times * b.*field;
  return a;
}

// None is less than nothing; of times that are, the others are so much less, so that their sum stays.
void make_positive(PartPrice& part) {
  int64_t missing = 0;
  for (const JoinedField field : kJoinedTimes) {
    if (part.*field < 0) missing -= std::exchange(part.*field, 0);
  }
  for (const JoinedField field : kJoinedTimes) {
    const int64_t taken = std::min(missing, part.*field);
    part.*field -= taken;
    missing -= taken;
  }
  for (const JoinedField field : kJoinedBytes) part.*field = std::max<int64_t>(0, part.*field);
  part.waiting = part.kept;
}

}  // namespace

struct JoinedPrices::Impl {
  Impl(const JobConfig& of, const ModelParts& model_parts, int of_rank)
      : job(of), parts(model_parts), threads(of_rank), blocks(static_cast<size_t>(parts.kind_count())) {
    set_keys(job, {"data.validation=0"});
    if (!job.parallel.machine.empty()) {  // which is read once
      machine = read_machine(job.parallel.machine);
      job.parallel.machine.clear();
    }
    device = make_device(job.train.device);
    for (const int64_t kind : parts.kinds) ++blocks[static_cast<size_t>(kind)];
  }

  // Keys of a job with one block of each kind say how blocks of its kinds are added: `layers` has all of them, and of
  // two kinds another key those of the first.
  JobConfig with_blocks(const Counts& counts) const {
    JobConfig out = job;
    for (const std::string& key : one_block_keys(job)) {
      const std::string name = key.substr(0, key.find('='));
      if (!name.starts_with("model.")) continue;
      const int64_t of_key =
          name == "model.layers" ? std::accumulate(counts.begin(), counts.end(), int64_t{0}) : counts[0];
      set_keys(out, {fmt::format("{}={}", name, of_key)});
    }
    return out;
  }

  // The way's batch, which is another one where a smaller batch is asked about, with its share of the experts' groups.
  void set_batch(JobConfig& of, int64_t samples) const {
    of.train.fit.batch = samples;
    const int64_t batch = job.train.fit.batch;
    const int64_t groups = model_of(job).cuttable().expert_groups;
    if (samples == batch || groups <= 1) return;
    require(groups * samples % batch == 0,
            "plan: {} groups of a batch of {} samples are no whole number of groups in {} samples", groups, batch,
            samples);
    set_keys(of, {fmt::format("model.expert_groups={}", groups * samples / batch)});
  }

  // Blocks of another batch differ from the model's in it alone.
  void check_blocks(const Graph& step, const Counts& counts, int64_t samples) const {
    std::vector<int64_t> expected;
    for (size_t kind = 0; kind < counts.size(); ++kind)
      expected.insert(expected.end(), static_cast<size_t>(counts[kind]), static_cast<int64_t>(kind));
    const ModelParts made = parts_of(step);
    const bool are_alike = made.signatures == parts.signatures || samples != job.train.fit.batch;
    if (made.kinds == expected && are_alike) return;
    fail(ErrorKind::kUnsupported,
         "plan: the exact search prices blocks of {} kinds, and the model '{}' with {} blocks has others; use --search "
         "compiled",
         counts.size(), job.model.kind, expected.size());
  }

  PartPrice price(const InnerWay& inner, const Counts& counts) {
    JobConfig of = with_blocks(counts);
    inner.way().set(of);
    set_batch(of, inner.samples());
    const auto model = make_model(of);
    Assembly assembly = assembly_without_text(of, *model, inner.ranks());
    if (machine) assembly.options.parallel.communication.machine = machine;
    CompileOptions options = compile_options(assembly, parallel_of(assembly), inner.ranks(), threads, device);
    options.passes.verify = false;  // of many programs that are priced one is trained
    options.says_why = false;
    options.reshards = reshards;
    const BeforeCrews& from = before_crews_of(inner, counts, assembly, options);
    const std::array<size_t, 1> all{0};
    const std::vector<CompiledCrew> crews =
        compile_some_crews(from.whole, programs_of_crews(from, options, all), all, options);
    PartPrice out = price_of_step(sums_of_crew(crews.front(), from.whole.rates, {}));
    if (inner.place == UpdatePlace()) out.host = out.disk = 0;
    return out;
  }

  // Before passes: whatever is computed again, kept in slices or lies elsewhere.
  const BeforeCrews& before_crews_of(const InnerWay& inner, const Counts& counts, const Assembly& assembly,
                                     const CompileOptions& options) {
    std::pair<InnerWay, Counts> key(all_kept(inner), counts);
    key.first.place = {};
    const auto known = std::ranges::find(begun, key, &Begun::first);
    if (known != begun.end()) return known->second;
    constexpr size_t kMostKept = 8;
    if (begun.size() == kMostKept) begun.pop_front();
    BeforeCrews made = before_crews(step_of(counts, inner, assembly), options);
    made.whole.partitioned = Program();
    return begun.emplace_back(std::move(key), std::move(made)).second;
  }

  const Graph& step_of(const Counts& counts, const InnerWay& inner, const Assembly& assembly) {
    const auto [known, is_new] = steps.try_emplace({counts, inner.samples(), inner.vocabulary});
    if (is_new) {
      known->second = graphs_of(assembly, inner.ranks()).step;
      check_blocks(known->second, counts, inner.samples());
    }
    return known->second;
  }

  JobConfig job;
  ModelParts parts;
  int threads;
  Counts blocks;  // of the model
  std::optional<Machine> machine;
  std::shared_ptr<Device> device;
  std::shared_ptr<ReshardMemory> reshards = std::make_shared<ReshardMemory>();
  std::map<std::tuple<Counts, int64_t, bool>, Graph> steps;  // by the batch, and whether the vocabulary is cut
  using Begun = std::pair<std::pair<InnerWay, Counts>, BeforeCrews>;
  std::deque<Begun> begun;
};

JoinedPrices::JoinedPrices(const JobConfig& job, const ModelParts& parts, int threads)
    : impl_(std::make_unique<Impl>(job, parts, threads)) {}
JoinedPrices::~JoinedPrices() = default;

PartPrices JoinedPrices::of(const InnerWay& way) {
  const auto price = [&](const Counts& counts) {
    ++jobs_compiled_;
    return impl_->price(way, counts);
  };
  Counts few = impl_->blocks;
  for (int64_t& count : few) count = std::min(count, kFewBlocks);
  PartPrices out{.parts = std::vector<PartPrice>(few.size() + 2), .is_joined = true};
  PartPrice& first = out.parts.front();
  const PartPrice of_few = price(few);
  first = of_few;
  for (size_t kind = 0; kind < few.size(); ++kind) {
    if (impl_->blocks[kind] == few[kind]) continue;
    Counts more = few;
    ++more[kind];
    PartPrice& block = out.parts[kind + 1];
    block = minus(price(more), of_few, 1);
    make_positive(block);
    first = minus(first, block, few[kind]);
  }
  make_positive(first);
  return out;
}

}  // namespace trireme
