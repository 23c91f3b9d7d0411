#include "tests/passes/boxes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/grad/gradients.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/partition/crews.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/narrow_gathers.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/slice_crossings.h"
#include "trireme/planner/search.h"
#include "trireme/train/step/compile/choose_homes.h"

namespace trireme::boxes {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

int64_t number(const std::string& text) {
  int64_t out = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  require(status == std::errc() && end == text.data() + text.size(), "'{}' is no number", text);
  return out;
}

Graph graph_of(const Case& test) {
  Graph graph = parse_graph(test.text, find_op_base);
  const std::vector<std::string> wrong = verify(graph);
  require(wrong.empty(), "the graph that goes in is not sound: {}", wrong.empty() ? "" : wrong.front());
  return graph;
}

Program program_of(const Case& test) {
  Program program = parse_program(test.text);
  const std::vector<std::string> wrong = verify(program);
  require(wrong.empty(), "the program that goes in is not sound: {}", wrong.empty() ? "" : wrong.front());
  return program;
}

Result gradients_of(Case& test) {
  Graph graph = graph_of(test);
  std::string before = to_string(graph);
  std::vector<Tensor> parameters;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) parameters.emplace_back(graph, input.value);
  }
  const std::vector<Tensor> found = gradients({graph, graph.output("loss").value}, parameters);
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i])
      graph.add_output("d " + graph.inputs()[static_cast<size_t>(graph.value(parameters[i].id()).index)].name,
                       found[i].id());
  }
  return {std::move(before), to_string(without_dead_nodes(graph))};
}

// "first = 0; second = 1"
ScopeStages stages_asked(Case& test) {
  ScopeStages out;
  std::string text = test.take("stages");
  while (!text.empty()) {
    const std::string rule = text.substr(0, text.find(';'));
    text.erase(0, rule.size() + 1);
    const size_t equals = rule.find('=');
    require(equals != std::string::npos, "'{}' is no stage; write scope = number", rule);
    out.emplace(trimmed(std::string_view(rule).substr(0, equals)),
                static_cast<int>(number(std::string(trimmed(std::string_view(rule).substr(equals + 1))))));
  }
  return out;
}

// "x = [dp, -]" asks for the layout of an input.
Asks asks_of(Case& test, const Graph& graph, const Mesh& mesh) {
  Asks asks;
  for (const Input& input : graph.inputs()) {
    const std::string layout = test.take(input.name);
    asks.inputs.push_back(layout.empty()
                              ? std::nullopt
                              : std::optional(parse_layout(layout, mesh, graph.type(input.value).shape.rank())));
  }
  return asks;
}

Strategy strategy_of(Case& test, const Graph& graph) {
  const Mesh mesh = parse_mesh(test.take("mesh"));
  const ScopeStages stages = stages_asked(test);
  Asks asks = asks_of(test, graph, mesh);
  asks.across_stages = nodes_across_stages(graph, stages);
  Strategy out = propagate(graph, mesh, std::move(asks));
  out.stages = stages;
  return out;
}

// What is chosen, and how each value lies then.
std::string strategy_text(const Graph& graph, const Strategy& strategy) {
  const std::vector<Layout> layouts = value_layouts(graph, strategy);
  std::string out = to_string(graph, strategy);
  for (const Node& node : graph.nodes()) {
    for (const ValueId id : node.outputs) {
      out +=
          fmt::format("%{} of {}: {}\n", id, node.op->name, to_string(layouts[static_cast<size_t>(id)], strategy.mesh));
    }
  }
  return out;
}

Result propagate_box(Case& test) {
  const Graph graph = graph_of(test);
  return {to_string(graph), strategy_text(graph, strategy_of(test, graph))};
}

Result partition_box(Case& test) {
  const Graph graph = graph_of(test);
  return {to_string(graph), to_string(partition(graph, strategy_of(test, graph)))};
}

Result micro_batches_box(Case& test) {
  const Program program = program_of(test);
  return {to_string(program), to_string(in_micro_batches(program))};
}

// The program of each crew, one after the other.
Result crews_box(Case& test) {
  const Program program = program_of(test);
  const Timetable timetable =
      make_timetable(test.take("schedule", "1f1b"), {.crews = static_cast<int>(number(test.take("crews", "2"))),
                                                     .stages_per_crew = 0,
                                                     .micro_batches = static_cast<int>(program.micro_batches)});
  std::string out;
  for (const Program& crew : in_crews(program, timetable)) {
    const std::vector<std::string> wrong = verify(crew);
    require(wrong.empty(), "a crew's program is not sound: {}", wrong.empty() ? "" : wrong.front());
    out += fmt::format("{}{}", out.empty() ? "" : "\n", to_string(crew));
  }
  return {to_string(program), out};
}

Result narrow_gathers_box(Case& test) {
  const Program program = program_of(test);
  const Program after = narrow_gathers(program);
  const std::vector<std::string> wrong = verify(after);
  require(wrong.empty(), "it makes a program that is not sound: {}", wrong.empty() ? "" : wrong.front());
  return {to_string(program), to_string(after)};
}

// Of two stages, each on a crew of its own.
Result slice_crossings_box(Case& test) {
  const Program program = program_of(test);
  const Program after = slice_crossings(program, std::array{0, 1});
  const std::vector<std::string> wrong = verify(after);
  require(wrong.empty(), "it makes a program that is not sound: {}", wrong.empty() ? "" : wrong.front());
  return {to_string(program), to_string(after)};
}

// A machine on which the times of a step are the same everywhere.
Rates fixed_rates(Case& test) {
  Machine machine{.name = "model", .memory_bytes_per_s = 1e10, .flops_per_s = {{"f32", 1e11}}};
  ReshardCosts links;
  if (const std::string rate = test.take("link_bytes_per_s"); !rate.empty())
    links.link.bytes_per_s = static_cast<double>(number(rate));
  return {.links = links, .machine = machine};
}

// What a search finds where nothing is asked but the layouts that are given, and the price of the step by it.
Result search_box(Case& test) {
  const Graph graph = graph_of(test);
  const Mesh mesh = parse_mesh(test.take("mesh"));
  SearchConditions conditions;
  conditions.rates = fixed_rates(test);
  conditions.partition.costs = conditions.rates.links;
  conditions.memory_bytes = number(test.take("memory_bytes", "0"));
  conditions.asks = asks_of(test, graph, mesh);
  SearchOptions options;
  const std::string kind = test.take("search", "dynamic_programming");
  for (const NameOf<SearchKind>& each : kStrategySearches) {
    if (each.name == kind) options.kind = each.value;
  }
  require(options.kind != SearchKind::kNone, "'{}' is no search", kind);
  const SearchResult found = search_strategy(graph, mesh, options, conditions);
  const StepPrice step = price_of(graph, found.strategy, conditions);
  return {to_string(graph),
          fmt::format("{}the step takes {} ps, {} of them to move values, and holds {} bytes\n",
                      strategy_text(graph, found.strategy), step.price.time_ps, step.moved_ps, step.price.bytes)};
}

// "h.* = again; h.*/matmul = device"; rows, where nothing is said.
Recompute recompute_asked(Case& test) {
  Recompute out;
  std::string text = test.take("keep");
  out.rows = text.empty();
  while (!text.empty()) {
    const std::string rule = text.substr(0, text.find(';'));
    text.erase(0, rule.size() + 1);
    const size_t equals = rule.find('=');
    require(equals != std::string::npos, "'{}' is no rule; write scope = again", rule);
    const std::string_view keep = trimmed(std::string_view(rule).substr(equals + 1));
    using Keep = Recompute::Rule::Keep;
    out.rules.push_back({.pattern = std::string(trimmed(std::string_view(rule).substr(0, equals))),
                         .keep = keep == "again"    ? Keep::kAgain
                                 : keep == "slices" ? Keep::kSlice
                                                    : Keep::kMemory});
  }
  return out;
}

// "h.* = 2; head = 0"
Fusion fusion_asked(Case& test) {
  Fusion out;
  const int64_t bytes = number(test.take("bucket_bytes", "0"));
  for (FusionOfKind* kind : {&out.all_reduce, &out.reduce_scatter, &out.all_gather}) kind->bytes = bytes;
  std::string text = test.take("fusion");
  while (!text.empty()) {
    const std::string rule = text.substr(0, text.find(';'));
    text.erase(0, rule.size() + 1);
    out.ids.push_back(parse_fusion_rule(rule));
  }
  return out;
}

// "h.*/state = host; h.0/state = device"
std::vector<HomeRule> homes_asked(Case& test) {
  std::vector<HomeRule> out;
  std::string text = test.take("home");
  while (!text.empty()) {
    const std::string rule = text.substr(0, text.find(';'));
    text.erase(0, rule.size() + 1);
    out.push_back(parse_home_rule(rule));
  }
  return out;
}

// "h.* = host; h.*/add = device", and "updates = host".
OnHost on_host_asked(Case& test) {
  OnHost out{.updates = test.take("updates") == "host"};
  std::string text = test.take("on");
  while (!text.empty()) {
    const std::string rule = text.substr(0, text.find(';'));
    text.erase(0, rule.size() + 1);
    out.rules.push_back(parse_host_rule(rule));
  }
  return out;
}

Result pass_box(const Pass& pass, Case& test) {
  const Program program = program_of(test);
  PassOptions options;
  if (pass.name == "recompute" || pass.name == "slice_kept") {
    options.recompute = recompute_asked(test);
    options.recompute.fewest_bytes = number(test.take("fewest_bytes", "65536"));
  }
  options.recompute.optimizer_communication = pass.name != "keep_gathered";
  options.loss_pieces = number(test.take("loss_pieces", "2"));
  options.fusion = fusion_asked(test);
  options.homes = homes_asked(test);
  options.tier_ways.update_part = test.take("update_part", "8MiB");
  if (const std::string prefetch = test.take("prefetch"); !prefetch.empty())
    options.tier_ways.prefetch.push_back(parse_prefetch_rule(prefetch));
  options.on_host = on_host_asked(test);
  options.rates = fixed_rates(test);
  const Program after = pass.run(program, options);
  const std::vector<std::string> wrong = verify(after);
  require(wrong.empty(), "the pass makes a program that is not sound: {}", wrong.empty() ? "" : wrong.front());
  return {to_string(program), to_string(after)};
}

// Of a device without code, so that nothing depends on the machine that the test runs on.
ExecutionPlan plan_of(const Program& program) {
  static const std::shared_ptr<Device> kDevice = make_device("described:" TRIREME_SOURCE_DIR "/machines/h200x8.toml");
  ExecutionPlan plan = plan_execution(program, {.device = kDevice.get()});
  const std::vector<std::string> wrong = verify(plan);
  require(wrong.empty(), "the plan is not sound: {}", wrong.empty() ? "" : wrong.front());
  return plan;
}

Result actions_box(Case& test) {
  const Program program = program_of(test);
  return {to_string(program), to_string(plan_of(program))};
}

// "device_memory = 2KB", and as much of the host's as is wanted.
Result choose_homes_box(Case& test) {
  const Program program = program_of(test);
  TierSizes sizes;
  sizes.device = MemorySize(test.take("device_memory"));
  PassOptions options;
  options.rates = fixed_rates(test);
  const ChosenHomes chosen = choose_homes(options, sizes, {[&](const PassOptions&) { return program; }, plan_of});
  std::string out;
  for (const std::string& rules : as_keys(chosen.chosen)) out += fmt::format("chosen: {}\n", rules);
  return {to_string(program), out + fmt::format("the device's memory holds {} bytes\n", chosen.plan.arena().bytes) +
                                  to_string(chosen.program)};
}

}  // namespace

std::string Case::take(const std::string& name, std::string otherwise) {
  const auto found = options.find(name);
  if (found == options.end()) return otherwise;
  std::string value = std::move(found->second);
  options.erase(found);
  return value;
}

Case parse_case(std::string_view text) {
  Case out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t equals = line.find(" = ");
    const bool begins = line.starts_with("mesh \"") || line.starts_with("graph ");
    if (begins) break;
    if (line.starts_with("# ")) {
      out.words += std::string(line) + "\n";
    } else if (!line.empty()) {
      require(equals != std::string_view::npos, "'{}' is no option; write name = value", line);
      out.options.emplace(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 3)));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out.text = text;
  return out;
}

const std::vector<Box>& all() {
  static const std::vector<Box> kBoxes = [] {
    std::vector<Box> out{{"gradients", gradients_of},
                         {"propagate", propagate_box},
                         {"search", search_box},
                         {"partition", partition_box},
                         {"narrow_gathers", narrow_gathers_box},
                         {"micro_batches", micro_batches_box},
                         {"slice_crossings", slice_crossings_box},
                         {"crews", crews_box}};
    for (const Pass* pass : passes()) {
      out.push_back({std::string(pass->name), [pass](Case& test) { return pass_box(*pass, test); }});
    }
    out.push_back({"choose_homes", choose_homes_box});
    out.push_back({"actions", actions_box});
    return out;
  }();
  return kBoxes;
}

Result run(const Box& box, std::string_view text) {
  Case test = parse_case(text);
  require(!test.words.empty(), "no line of '# ' at the head says what the pair shows");
  std::string head = test.words;
  for (const auto& [name, value] : test.options) head += fmt::format("{} = {}\n", name, value);
  Result out = box.run(test);
  require(test.options.empty(), "'{}' is nothing that {} is asked",
          test.options.empty() ? "" : test.options.begin()->first, box.name);
  out.in = head + out.in;
  return out;
}

}  // namespace trireme::boxes
