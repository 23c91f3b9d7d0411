#include "trireme/train/plan/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/ways/ways.h"

namespace trireme {
namespace {

constexpr std::string_view kFirstLine = "trireme plan 1";

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

// What became of ways that were refused; nothing where none was.
std::string first_refusal_text(const PlanLedger& ledger) {
  return ledger.first_refusal.empty()
             ? ""
             : fmt::format("  {} refused: {}\n", counted(ledger.do_not_divide, "way"), ledger.first_refusal);
}

// "14.3 MiB, 1.3 too many", of the device, and of what else a way uses.
std::string taken_text(const PlannedWay& way, int64_t memory_bytes, const BesideBytes& beside) {
  const WayCost& cost = way.cost;
  const auto of = [](int64_t taken, int64_t room) {
    return fmt::format("{:.1f} MiB{}", mib(taken),
                       taken > room ? fmt::format(", {:.1f} too many", mib(taken - room)) : "");
  };
  std::string out = of(cost.most_bytes(), memory_bytes);
  if (way.way.place == UpdatePlace() && way.way.keep == Tier::kDevice) return out;
  const int64_t host = cost.most_bytes_of(&WayCost::Memory::host), disk = cost.most_bytes_of(&WayCost::Memory::disk);
  if (host > 0) out += "; on the host " + of(host, beside.host);
  if (disk > 0) out += "; on the disk " + of(disk, beside.disk);
  return out;
}

std::string infeasible_text(const JobPlan& plan) {
  if (plan.ledger.memory + plan.ledger.memory_least == 0)
    return "no way of cutting it goes with the model, the batch and the ranks\n" + first_refusal_text(plan.ledger);
  std::string out = fmt::format("no way of cutting it fits in {:.1f} MiB on each rank\n", mib(plan.memory_bytes));
  if (!plan.smallest)
    return out +
           fmt::format(
               "  parameters and state alone are too much, {:.1f} MiB at least: use more ranks, or devices with "
               "more memory\n",
               mib(plan.least_bytes)) +
           first_refusal_text(plan.ledger);
  const WayCost& cost = plan.smallest->cost;
  out += fmt::format("  the smallest takes {}: {}\n", taken_text(*plan.smallest, plan.memory_bytes, plan.beside),
                     plan.smallest->way.text());
  const auto largest = std::ranges::max_element(cost.memory, {}, &WayCost::Memory::arena);
  std::vector<int> kinds(kHoldings);
  for (int kind = 0; kind < kHoldings; ++kind) kinds[static_cast<size_t>(kind)] = kind;
  std::ranges::stable_sort(kinds, std::greater<>(),
                           [&](int kind) { return largest->kinds[static_cast<size_t>(kind)]; });
  for (int i = 0; i < 3; ++i) {
    const int kind = kinds[static_cast<size_t>(i)];
    out += fmt::format("    {:<11} {:>10.1f} MiB\n", to_string(static_cast<Holding>(kind)),
                       mib(largest->kinds[static_cast<size_t>(kind)]));
  }
  return out + first_refusal_text(plan.ledger);
}

}  // namespace

std::string tiers_text(const WayCost& cost) {
  const int64_t host = cost.most_bytes_of(&WayCost::Memory::host), disk = cost.most_bytes_of(&WayCost::Memory::disk);
  if (cost.tiers_s == 0) return "";
  std::string out = fmt::format(
      "  of {:.3f} ms in which values go between the device and the host or the disk {:.3f} are hidden behind "
      "computing; ",
      cost.tiers_s * 1e3, (cost.tiers_s - cost.tiers_exposed_s) * 1e3);
  out += fmt::format("on the host lie {} bytes", host);
  if (disk > 0) out += fmt::format(", on the disk {}", disk);
  return out + "\n";
}

std::string plan_text(const JobPlan& plan, int64_t ranks, int64_t tokens, std::string_view unit) {
  std::string out = fmt::format("plan for {} rank{} by the rates of {}, {:.1f} MiB of memory a rank\n", ranks,
                                ranks == 1 ? "" : "s", named_rates(plan.machine), mib(plan.memory_bytes));
  const PlanLedger& ledger = plan.ledger;
  const auto finish = [&] {
    out += fmt::format(
        "{}: {} fit, {} compiled and too large, {} too large by their parameters alone, {} recompute{} without "
        "need, "
        "{} do not go with the model, the batch or the ranks\n",
        counted(ledger.ways, "way"), ledger.fit, ledger.memory, ledger.memory_least, ledger.needless,
        plan.beside.keeps().empty() ? "" : " or have state, updates or kept activations elsewhere",
        ledger.do_not_divide);
    return out;
  };
  if (plan.best.empty()) {
    out += infeasible_text(plan);
    return finish();
  }
  const WayCost& cost = plan.best.front().cost;
  const auto ms = [](double seconds) { return seconds * 1e3; };
  out += fmt::format("best: {}\n", plan.best.front().way.text());
  out += fmt::format("step {:>12.3f} ms, {:.4g} {}/s, MFU {:.1f} %\n", ms(cost.step_s),
                     static_cast<double>(tokens) / cost.step_s, unit,
                     100 * cost.flops / (cost.step_s * plan.peak_flops_per_s));
  const std::pair<const char*, double> parts[] = {{"forward", cost.forward_s},  {"backward", cost.backward_s},
                                                  {"recomputed", cost.again_s}, {"update", cost.update_s},
                                                  {"exposed", cost.exposed_s},  {"waiting", cost.waiting_s}};
  for (const auto& [name, seconds] : parts) out += fmt::format("  {:<12} {:>10.3f} ms\n", name, ms(seconds));
  const double exchanged_s = cost.moving_s - cost.tiers_s;
  out += fmt::format("  of {:.3f} ms in which ranks exchange values {:.3f} are hidden behind computing\n",
                     ms(exchanged_s), ms(exchanged_s - (cost.exposed_s - cost.tiers_exposed_s - cost.host_exposed_s)));
  if (cost.host_s > 0)
    out += fmt::format("  of {:.3f} ms in which the host computes {:.3f} are hidden behind computing\n",
                       ms(cost.host_s), ms(cost.host_s - cost.host_exposed_s));
  out += tiers_text(cost);
  for (size_t crew = 0; crew < cost.memory.size(); ++crew) {
    const WayCost::Memory& memory = cost.memory[crew];
    out += fmt::format("memory{} {} bytes: {} persistent",
                       cost.memory.size() > 1 ? fmt::format(" of crew {}", crew) : "", memory.arena, memory.persistent);
    for (int kind = 0; kind < kHoldings; ++kind) {
      const int64_t bytes = memory.kinds[static_cast<size_t>(kind)];
      if (bytes > 0) out += fmt::format(", {} {:.1f} MiB", to_string(static_cast<Holding>(kind)), mib(bytes));
    }
    if (memory.gaps() > 0) out += fmt::format(", gaps {:.1f} MiB", mib(memory.gaps()));
    out += "\n";
  }
  for (size_t i = 1; i < plan.best.size(); ++i) {
    const WayCost& next = plan.best[i].cost;
    out += fmt::format("next: {} takes {:.3f} ms ({:+.2f} %), {:.1f} MiB\n", plan.best[i].way.text(), ms(next.step_s),
                       100 * (next.step_s / cost.step_s - 1), mib(next.most_bytes()));
  }
  out += fmt::format("no way takes less than {:.3f} ms, the arithmetic alone\n", ms(plan.bound_s));
  return finish();
}

namespace {

// Where values lie; and how much of them may.
constexpr std::string_view kPlaceKeys[] = {"parallel.home", "parallel.on", "parallel.optimizer_on",
                                           "parallel.offload_to"};
constexpr std::string_view kBudgetKeys[] = {"parallel.device_memory", "parallel.device_ratio", "parallel.auto_offload"};

std::string_view planned_key(std::string_view key_and_value) {
  return key_and_value.substr(0, key_and_value.find('='));
}

}  // namespace

std::vector<std::string> keys_of_places(const JobConfig& job) {
  const JobConfig usual;
  JobConfig without = job;
  without.parallel.homes = usual.parallel.homes;
  without.parallel.on_host = usual.parallel.on_host;
  without.parallel.tiers.device = usual.parallel.tiers.device;
  without.parallel.tiers.device_ratio = usual.parallel.tiers.device_ratio;
  without.parallel.tier_ways.offload_to = usual.parallel.tier_ways.offload_to;
  without.parallel.tier_ways.auto_offload = usual.parallel.tier_ways.auto_offload;
  std::vector<std::string> out;
  for (const std::string& each : keys_unlike(job, without)) {
    const size_t equals = each.find(" = ");
    out.push_back(each.substr(0, equals) + "=" + each.substr(equals + 3));
  }
  return out;
}

PlanFile plan_file(const JobPlan& plan, const PlanRequest& request) {
  require(!plan.best.empty(), "plan: nothing fits, so there is no plan to write");
  const PlannedWay& best = plan.best.front();
  std::vector<std::string> keys = best.way.keys();
  for (std::string& key : keys_of_places(request.job)) keys.push_back(std::move(key));
  return {.ranks = request.ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = std::move(keys),
          .step_ps = std::llround(best.cost.step_s * 1e12),
          .arena_bytes = best.cost.most_bytes(),
          .bound_ps = std::llround(plan.bound_s * 1e12),
          .ledger = plan.ledger};
}

std::string to_string(const PlanFile& file) {
  std::string out =
      fmt::format("{}\nmachine {}\nranks {}\ngraph {}\n", kFirstLine, file.machine, file.ranks, file.graph);
  for (const std::string& key : file.keys) out += fmt::format("set {}\n", key);
  const PlanLedger& l = file.ledger;
  const std::string compiled = file.compiled ? fmt::format("compiled step_ps={} arena_bytes={}\n",
                                                           file.compiled->step_ps, file.compiled->arena_bytes)
                                             : "";
  return out + fmt::format(
                   "predicted step_ps={} arena_bytes={} bound_ps={}\n{}"
                   "ledger ways={} fit={} memory={} memory_least={} needless={} do_not_divide={}\n",
                   file.step_ps, file.arena_bytes, file.bound_ps, compiled, l.ways, l.fit, l.memory, l.memory_least,
                   l.needless, l.do_not_divide);
}

namespace {

[[noreturn]] void wrong_line(int line, std::string_view what) {
  fail(ErrorKind::kInvalidArgument, "plan, line {}: {}", line, what);
}

int64_t number_of(std::string_view text, int line) {
  int64_t out = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status != std::errc() || end != text.data() + text.size() || out < 0)
    wrong_line(line, fmt::format("'{}' is not a whole number of 0 or more", text));
  if (out > int64_t{1} << 60) wrong_line(line, fmt::format("{} is too large", out));  // so that counts can be added
  return out;
}

std::string_view take_word(std::string_view& rest) {
  const size_t space = std::min(rest.find(' '), rest.size());
  const std::string_view out = rest.substr(0, space);
  rest.remove_prefix(std::min(space + 1, rest.size()));
  return out;
}

// "step_ps=12 arena_bytes=34" into these, each once.
void read_numbers(std::string_view rest, int line, const std::vector<std::pair<std::string_view, int64_t*>>& into) {
  for (const auto& [name, value] : into) {
    const std::string_view word = take_word(rest);
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || word.substr(0, equals) != name)
      wrong_line(line, fmt::format("'{}' should be {}=NUMBER", word, name));
    *value = number_of(word.substr(equals + 1), line);
  }
  if (!rest.empty()) wrong_line(line, fmt::format("'{}' is one too many", rest));
}

void read_key(std::string_view text, int line, PlanFile& out) {
  if (text.find('=') == std::string_view::npos)
    wrong_line(line, fmt::format("'{}' is not of the form key=value", text));
  if (std::ranges::find(out.keys, planned_key(text), planned_key) != out.keys.end())
    wrong_line(line, fmt::format("'{}' appears twice", planned_key(text)));
  std::vector<std::string> known = Way{.keep = Tier::kHost, .place = {Tier::kDisk, Tier::kHost}}.keys();
  known.emplace_back("parallel.stages=");  // where the stages are planned, too
  known.insert(known.end(), std::begin(kPlaceKeys), std::end(kPlaceKeys));
  known.insert(known.end(), std::begin(kBudgetKeys), std::end(kBudgetKeys));
  if (std::ranges::find(known, planned_key(text), planned_key) == known.end())
    wrong_line(line, fmt::format("'{}' is not a key that says how a model is cut", planned_key(text)));
  out.keys.emplace_back(text);
}

// Without one of them the job's own value would count, which nothing was planned with.
void check_keys(const PlanFile& file) {
  for (const std::string& key : Way().keys()) {
    require(std::ranges::find(file.keys, planned_key(key), planned_key) != file.keys.end(),
            "plan: the line 'set {}=...' is missing", planned_key(key));
  }
}

void read_plan_line(std::string_view kind, std::string_view rest, int line, PlanFile& out) {
  if (kind == "ranks") {
    out.ranks = number_of(rest, line);
  } else if (kind == "graph" || kind == "machine") {
    (kind == "graph" ? out.graph : out.machine) = rest;
  } else if (kind == "set") {
    read_key(rest, line, out);
  } else if (kind == "predicted") {
    read_numbers(rest, line,
                 {{"step_ps", &out.step_ps}, {"arena_bytes", &out.arena_bytes}, {"bound_ps", &out.bound_ps}});
  } else if (kind == "compiled") {
    PlanFile::Compiled& of = out.compiled.emplace();
    read_numbers(rest, line, {{"step_ps", &of.step_ps}, {"arena_bytes", &of.arena_bytes}});
  } else if (kind == "ledger") {
    PlanLedger& l = out.ledger;
    read_numbers(rest, line,
                 {{"ways", &l.ways},
                  {"fit", &l.fit},
                  {"memory", &l.memory},
                  {"memory_least", &l.memory_least},
                  {"needless", &l.needless},
                  {"do_not_divide", &l.do_not_divide}});
    if (l.fit + l.memory + l.memory_least + l.needless + l.do_not_divide != l.ways)
      wrong_line(line, "the counts do not add up to the ways");
  } else {
    wrong_line(line, fmt::format("'{}' is not a line that plans have", kind));
  }
}

}  // namespace

bool is_plan_file(std::string_view text) {
  return text.starts_with(kFirstLine.substr(0, kFirstLine.rfind(' ') + 1));
}

PlanFile parse_plan_file(std::string_view text) {
  PlanFile out;
  int line = 0;
  std::vector<std::string> seen;
  require(!text.empty(), "plan: it is empty");
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (rest.ends_with('\r')) rest.remove_suffix(1);  // as editors elsewhere end lines
    if (++line == 1) {
      if (rest != kFirstLine)
        wrong_line(line,
                   fmt::format("'{}' is not '{}': this is not a plan, or one of another version", rest, kFirstLine));
      continue;
    }
    if (rest.empty() || rest.starts_with('#')) continue;
    const std::string kind(take_word(rest));
    if (kind != "set" && std::ranges::find(seen, kind) != seen.end())
      wrong_line(line, fmt::format("'{}' appears twice", kind));
    seen.push_back(kind);
    read_plan_line(kind, rest, line, out);
  }
  for (const char* kind : {"machine", "ranks", "graph", "predicted", "ledger"}) {
    if (std::ranges::find(seen, kind) == seen.end()) wrong_line(line, fmt::format("the line '{}' is missing", kind));
  }
  check_keys(out);
  return out;
}

void check_plan(const PlanFile& file, const JobConfig& job, int64_t ranks) {
  require(file.ranks == ranks, "the plan is for {} ranks and the job has {}; start {} ranks, or plan again", file.ranks,
          ranks, file.ranks);
  JobConfig others = job;
  const auto has = [&](std::string_view key) {
    return std::ranges::find(file.keys, key, planned_key) != file.keys.end();
  };
  if (has("parallel.stages")) others.parallel.stages.clear();  // the plan's own
  if (has("parallel.keep")) others.parallel.keep.clear();
  refuse_rules(others, "and so does the file of --plan; leave one of them out");
  for (const std::string& key : keys_of_places(job)) {
    const bool is_budget = std::ranges::find(kBudgetKeys, planned_key(key)) != std::end(kBudgetKeys);
    require(is_budget || has(planned_key(key)),
            "the job sets {}, but it was planned without that; leave it out, or plan again", key);
  }
  others.parallel.vocabulary = false;  // the plan's own as well: with it the loss is computed by other ops
  const auto model = make_model(others);
  const std::string graph = hash_of_graph(graphs_of(assembly_of(others, *model, ranks), ranks).step);
  require(graph == file.graph,
          "the plan is for a training step other than that of '{}' (its model, batch or optimizer differs); plan again",
          job.name);
}

}  // namespace trireme
