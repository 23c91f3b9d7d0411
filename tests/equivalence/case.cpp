#include "tests/equivalence/case.h"

#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <sstream>

#include "tests/equivalence/draw.h"
#include "tests/equivalence/random_timetable.h"
#include "tests/equivalence/shrink.h"
#include "trireme/base/error.h"
#include "trireme/op/registry.h"
#include "trireme/partition/by_hand.h"
#include "trireme/train/step/compile/crew_stages.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme::equivalence {
namespace {

constexpr std::string_view kStrategy = "strategy mesh=";

std::string word_after(std::string_view line, std::string_view key, const std::string& otherwise) {
  const size_t at = line.find(fmt::format(" {}=", key));
  if (at == std::string_view::npos) return otherwise;
  const std::string_view word = line.substr(at + key.size() + 2);
  return std::string(word.substr(0, word.find(' ')));
}

int64_t number_after(std::string_view line, std::string_view key, int64_t otherwise) {
  const std::string word = word_after(line, key, "");
  return word.empty() ? otherwise : std::stoll(word);
}

std::vector<int64_t> numbers_after(std::string_view line, std::string_view key) {
  std::vector<int64_t> out;
  std::stringstream all(word_after(line, key, ""));
  for (std::string number; std::getline(all, number, ',');) out.push_back(std::stoll(number));
  return out;
}

int64_t micro_batches_of(const Case& test) {
  const int64_t of_mesh = micro_batches(test.strategy.mesh);
  return of_mesh / interleave_of(test, of_mesh) / seq_chunks(test.strategy.mesh);
}

ScheduleSpec schedule_of(const Case& test) {
  if (test.schedule != "drawn") return test.schedule;
  return drawn_schedule(test.seed, test.crews, micro_batches_of(test), seq_chunks(test.strategy.mesh));
}

}  // namespace

ScheduleSpec drawn_schedule(uint32_t seed, int64_t crews, int64_t micro_batches, int64_t seq_chunks) {
  Draw draw(seed * 2246822519U + 79);
  const int64_t more_stages = draw.below(crews + 1);
  return to_string(random_timetable({.crews = static_cast<int>(crews),
                                     .stages = static_cast<int>(crews + more_stages),
                                     .micro_batches = static_cast<int>(micro_batches),
                                     .seq_chunks = static_cast<int>(seq_chunks)},
                                    draw));
}

Strategy as_by_hand(const Graph& graph, const Mesh& mesh) {
  return semi_auto(graph, mesh.devices(), {.mesh = to_string(mesh), .dataset = "full_batch", .follow_requests = false});
}

Graph evaluation_of(const Case& test) {
  const Graph& step = test.graph;
  std::vector<char> is_forward;
  for (const Output& output : step.outputs()) {
    const NodeId producer = step.value(output.value).producer;
    const bool made = output.updates == kNoValue && producer >= 0;
    is_forward.push_back(made && step.node(producer).phase == Phase::kForward ? 1 : 0);
  }
  return with_outputs(test, is_forward).graph;
}

Strategy evaluation_strategy(const Case& test, const Graph& evaluation) {
  const Mesh mesh = without_micro_batches(test.strategy.mesh);
  if (test.by_hand) return as_by_hand(evaluation, mesh);
  std::map<std::string, Layout> stored;
  for (size_t i = 0; i < test.graph.inputs().size(); ++i) {
    const Input& input = test.graph.inputs()[i];
    if (input.role == Role::kParameter || input.role == Role::kState)
      stored.emplace(input.name, test.strategy.inputs[i]);
  }
  const int64_t chunks = seq_chunks(test.strategy.mesh);
  Parallel parallel{.mesh = to_string(mesh), .accumulation = micro_batches(test.strategy.mesh) / chunks};
  if (chunks > 1) parallel.pipeline = {.crews = test.crews, .schedule = schedule_of(test), .seq_chunks = chunks};
  const auto cut = [&] {
    Strategy out = semi_auto(evaluation, mesh.devices(), parallel,
                             {.stored = &stored, .numerics = test.numerics, .stages = test.strategy.stages});
    out.stages = test.strategy.stages;
    return out;
  };
  try {
    return cut();
  } catch (const Error& e) {  // a batch that does not divide
    if (e.kind() != ErrorKind::kInvalidArgument) throw;
  }
  parallel.dataset = "full_batch";
  parallel.accumulation = 1;
  return cut();
}

Parallel parallel_of(const Case& test, int64_t count) {
  const int64_t chunks = seq_chunks(test.strategy.mesh);
  return {.accumulation = micro_batches_of(test),
          .interleave = interleave_of(test, count),
          .pipeline = {.crews = test.crews,
                       .schedule = schedule_of(test),
                       .seq_chunks = chunks > 1 ? chunks : 0,
                       .slice_crossings = test.slices ? SliceCrossings::kAlways : SliceCrossings::kNever}};
}

Timetable timetable_for(const Case& test, const Graph& graph, int64_t count) {
  return trireme::timetable_for(graph, parallel_of(test, count), count);
}

int64_t interleave_of(const Case& test, int64_t count) {
  return count % test.interleave == 0 ? test.interleave : 1;
}

Machine machine_of(const Case& test) {
  Draw draw(test.seed * 2654435761U + 1);
  const auto any = [&](double low, double high) { return std::exp(draw.between(std::log(low), std::log(high))); };
  const Mesh mesh = without_micro_batches(test.strategy.mesh);
  Machine out{.name = "drawn",
              .devices_per_host = mesh.devices(),
              .memory_bytes = int64_t{1} << 40,
              .memory_bytes_per_s = any(1e8, 1e11),
              .flops_per_s = {{"f32", any(1e6, 1e12)}, {"bf16", any(1e6, 1e12)}},
              .achievable = draw.between(0.1, 1)};
  for (int axis = mesh.axes(); axis-- > 0;) {  // the last joins ranks that are neighbours
    out.levels.push_back(
        {mesh.axis(axis).name, mesh.stride(axis) * mesh.axis(axis).size, any(1e-9, 1e-2), any(1e4, 1e11)});
  }
  if (out.levels.empty()) out.levels.push_back({"host", 1, 1e-6, 1e9});
  check(out, "the machine of a case");
  return out;
}

Rates rates_of(const Case& test) {
  Communication how{.all_to_all = test.all_to_all};
  if (test.rates != "usual") how.machine = machine_of(test);
  return {reshard_costs(how, test.strategy.mesh), how.machine};
}

PartitionOptions partition_options(const Case& test, const Graph& graph, const Mesh& mesh) {
  const bool added_up_later = test.numerics == Numerics::kFast && test.seed % 3 == 0;  // another tree of sums
  Communication how{.all_to_all = test.all_to_all,
                    .gradients_in_f32 = test.sums != "narrow",
                    .all_in_f32 = test.sums == "f32",
                    .shard_accumulation = added_up_later};
  if (test.rates == "named") how.machine = machine_of(test);
  PartitionOptions out{.costs = reshard_costs(how, mesh), .sum_types = sum_types(graph, how)};
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values().size()); ++id) {
    if ((test.seed / 3 + static_cast<uint32_t>(id)) % 3 == 0) out.summed_once.insert(id);  // others as the costs say
  }
  return out;
}

Program partitioned(const Case& test, const Graph& graph, const Strategy& strategy) {
  const Strategy saved = test.is_saved ? parse_strategy(to_string(graph, strategy), graph) : Strategy{};
  const Strategy& cuts = test.is_saved ? saved : strategy;
  if (test.by_hand) return by_hand(graph, cuts);
  PartitionOptions options = partition_options(test, graph, cuts.mesh);
  if (test.numerics == Numerics::kInvariant) options.costs.sum_before_micro_batches = axes_within_micro_batches(cuts);
  return partition(graph, cuts, options);
}

Program partitioned(const Case& test) {
  return partitioned(test, test.graph, test.strategy);
}

std::string to_string(const Case& test) {
  return fmt::format(
      "case seed={} steps={} bucket={} ends={} fusion={} reuse={} passes={:d} alltoall={:d} transport={} threads={} "
      "recompute={} "
      "homes={} homed={} tier={} part={} prefetch={} onhost={} "
      "pieces={} "
      "saved={:d} sums={} rates={} isa={} device={} lingers={:d} interleave={} crews={} schedule={} slices={:d} "
      "byhand={:d} "
      "evaluates={:d} "
      "invariant={:d}\n{}{}",
      test.seed, test.steps, test.bucket_bytes, fmt::join(test.bucket_ends, ","), test.fusion, test.reuse, test.passes,
      test.all_to_all, test.transport, test.threads, test.recompute, test.homes, test.homed, test.home_tier,
      test.update_part, test.prefetch, test.on_host, test.loss_pieces, test.is_saved, test.sums, test.rates, test.isa,
      test.device, test.lingers, test.interleave, test.crews, test.schedule, test.slices, test.by_hand, test.evaluates,
      test.numerics == Numerics::kInvariant, to_string(test.graph), to_string(test.graph, test.strategy));
}

Case parse_case(std::string_view text) {
  const size_t end = text.find('\n');
  const size_t strategy = text.find(kStrategy);
  require(end != std::string_view::npos && strategy != std::string_view::npos,
          "a case is a line, a graph and a strategy");
  const std::string_view line = text.substr(0, end);
  Case out;
  // What a line does not name is as a case has it that asks for nothing.
  require(line.starts_with("case seed="), "a case begins with 'case seed=...', not '{}'", line);
  out.seed = static_cast<uint32_t>(number_after(line, "seed", 0));
  out.steps = static_cast<int>(number_after(line, "steps", 1));
  out.bucket_bytes = number_after(line, "bucket", 0);
  out.bucket_ends = numbers_after(line, "ends");
  out.fusion = word_after(line, "fusion", "sizes");
  out.reuse = number_after(line, "reuse", 0);
  out.passes = number_after(line, "passes", 1) != 0;
  out.all_to_all = number_after(line, "alltoall", 1) != 0;
  out.transport = word_after(line, "transport", "threads");
  out.threads = static_cast<int>(number_after(line, "threads", 1));
  out.recompute = word_after(line, "recompute", "none");
  out.homes = word_after(line, "homes", "device");
  out.homed = word_after(line, "homed", "state");
  out.home_tier = word_after(line, "tier", "host");
  out.update_part = number_after(line, "part", 0);
  out.prefetch = number_after(line, "prefetch", 0);
  out.on_host = word_after(line, "onhost", "none");
  out.loss_pieces = number_after(line, "pieces", 1);
  out.is_saved = number_after(line, "saved", 0) != 0;
  out.sums = word_after(line, "sums", "own");
  out.rates = word_after(line, "rates", "usual");
  out.isa = word_after(line, "isa", "machine");
  out.device = word_after(line, "device", "cpu");
  out.lingers = number_after(line, "lingers", 0) != 0;
  out.interleave = number_after(line, "interleave", 1);
  out.crews = number_after(line, "crews", 1);
  out.schedule = word_after(line, "schedule", "1f1b");
  out.slices = number_after(line, "slices", 0) != 0;
  out.by_hand = number_after(line, "byhand", 0) != 0;
  out.evaluates = number_after(line, "evaluates", 0) != 0;
  out.numerics = number_after(line, "invariant", 0) != 0 ? Numerics::kInvariant : Numerics::kFast;
  out.graph = parse_graph(text.substr(end + 1, strategy - end - 1), find_op_base);
  out.strategy = parse_strategy(text.substr(strategy), out.graph);
  return out;
}

}  // namespace trireme::equivalence
