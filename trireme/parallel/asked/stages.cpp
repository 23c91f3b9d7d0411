#include "trireme/parallel/asked/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/cost/op_seconds.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/op_def.h"
#include "trireme/op/row_steps.h"
#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// What has numbered modules inside it: "model" and "model.layers", of "model.layers.0".
std::set<std::string, std::less<>> containers_of(const Graph& graph) {
  std::set<std::string, std::less<>> out;
  for (const Node& node : graph.nodes()) {
    const std::string_view module = numbered_module(graph.scope_of(node)).path;
    for (size_t dot = module.find('.'); dot != std::string_view::npos; dot = module.find('.', dot + 1))
      out.emplace(module.substr(0, dot));
  }
  return out;
}

// The module that stages are cut between: the path up to its first number, or the first part of it that has no numbered
// module inside; nothing for ops that stand between modules.
std::string_view module_of(std::string_view scope, const std::set<std::string, std::less<>>& containers) {
  if (const std::string_view numbered = numbered_module(scope).path; !numbered.empty()) return numbered;
  for (size_t end = 0; end < scope.size(); ++end) {
    end = std::min(scope.find('.', end), scope.size());
    if (!containers.contains(scope.substr(0, end))) return scope.substr(0, end);
  }
  return {};
}

// What has modules inside it: "h", "h.0" and "h.0.mlp", of "h.0.mlp.c_fc".
std::set<std::string, std::less<>> all_containers_of(const Graph& graph) {
  std::set<std::string, std::less<>> out;
  for (const Node& node : graph.nodes()) {
    const std::string_view scope = graph.scope_of(node);
    if (node.phase != Phase::kForward) continue;
    for (size_t dot = scope.find('.'); dot != std::string_view::npos; dot = scope.find('.', dot + 1))
      out.emplace(scope.substr(0, dot));
  }
  return out;
}

// Ops on rows that would wait for memory go with the products beside them, which have their rows in the cache
// (pass/fuse_rows.h): they take as long as their arithmetic.
double seconds_of(const Graph& graph, const Node& node, const Machine& machine) {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  const TypeArgs types{in, out, node.attrs};
  if (cheap_row_op(def_of(node), types)) return bound_of(def_of(node), types, machine).flops_s;
  return compute_seconds(def_of(node), types, machine);
}

// Runs of forward ops that stay together: modules, joined where a later one makes what an earlier one reads.
class Modules {
 public:
  enum class Size { kNumbered, kSmallest };  // up to the first number of a path, or those without others inside

  Modules(const Graph& graph, Size size) : graph_(graph), size_(size), of_node_(graph.nodes().size(), -1) {
    find();
    join_circles();
    weigh();
  }

  int count() const { return static_cast<int>(seconds_.size()); }
  const std::vector<double>& seconds() const { return seconds_; }  // of each, gradients included
  // Bytes that cross from the modules below `module` to it and those above.
  int64_t bytes_before(int module) const { return bytes_[static_cast<size_t>(module)]; }
  const std::map<std::string, int, std::less<>>& of_scope() const { return of_scope_; }

 private:
  bool is_forward(NodeId id) const { return graph_.node(id).phase == Phase::kForward; }

  void find() {
    const std::vector<char> depends = depends_on_parameters(graph_);
    const bool is_numbered = size_ == Size::kNumbered;
    const std::set<std::string, std::less<>> containers =
        is_numbered ? containers_of(graph_) : all_containers_of(graph_);
    std::map<std::string, int, std::less<>> by_name;
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const std::string scope(graph_.scope_of(graph_.node(id)));
      if (!is_forward(id) || depends[static_cast<size_t>(id)] == 0) continue;
      std::string_view module = scope;
      if (is_numbered)
        module = module_of(scope, containers);
      else if (containers.contains(scope))
        module = {};
      if (module.empty()) continue;
      const auto [found, is_new] = by_name.try_emplace(std::string(module), count_);
      if (is_new) ++count_;
      of_scope_[scope] = found->second;
    }
  }

  int module_of_value(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer < 0 ? -1 : of_node_[static_cast<size_t>(producer)];
  }

  // The module of each node: by its scope, else of its operands the last one.
  void assign() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      int& module = of_node_[static_cast<size_t>(id)];
      module = -1;
      if (node.phase == Phase::kBackward && node.gradient_of >= 0)
        module = of_node_[static_cast<size_t>(node.gradient_of)];
      if (node.phase != Phase::kForward) continue;
      const auto found = of_scope_.find(graph_.scope_of(node));
      if (found != of_scope_.end()) module = found->second;
      for (const ValueId in : node.inputs) {
        if (found == of_scope_.end()) module = std::max(module, module_of_value(in));
      }
    }
  }

  void join_circles() {
    assign();
    for (bool joined = true; joined;) {
      joined = false;
      for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()) && !joined; ++id) {
        if (!is_forward(id)) continue;
        const int module = of_node_[static_cast<size_t>(id)];
        for (const ValueId in : graph_.node(id).inputs) {
          const int from = module_of_value(in);
          if (module < 0 || from <= module) continue;
          join(module, from);
          joined = true;
          break;
        }
      }
      if (joined) assign();
    }
  }

  // All from the first to the last become one.
  void join(int first, int last) {
    for (auto& [scope, module] : of_scope_) {
      if (module > last) {
        module -= last - first;
      } else if (module > first) {
        module = first;
      }
    }
    count_ -= last - first;
  }

  void weigh() {
    const Machine machine = Machine::this_host();
    seconds_.assign(static_cast<size_t>(count_), 0);
    bytes_.assign(static_cast<size_t>(count_) + 1, 0);
    std::vector<int> last_reader(graph_.values().size(), -1);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      const int module = of_node_[static_cast<size_t>(id)];
      if (module < 0) continue;
      seconds_[static_cast<size_t>(module)] += seconds_of(graph_, node, machine);
      if (!is_forward(id)) continue;
      for (const ValueId in : node.inputs) {
        int& last = last_reader[static_cast<size_t>(in)];
        last = std::max(last, module);
      }
    }
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) {
      const int from = module_of_value(id);
      for (int at = from + 1; from >= 0 && at <= last_reader[static_cast<size_t>(id)]; ++at)
        bytes_[static_cast<size_t>(at)] += graph_.type(id).bytes();
    }
  }

  const Graph& graph_;
  Size size_;
  std::vector<int> of_node_;
  std::map<std::string, int, std::less<>> of_scope_;
  int count_ = 0;
  std::vector<double> seconds_;
  std::vector<int64_t> bytes_;
};

// Where each stage begins, and how long the slowest takes.
struct EvenCut {
  std::vector<int> begins;
  double slowest = 0;
};

// The slowest stage is as quick as can be, and of equal ones fewest bytes cross. A stage that does not come first takes
// as long as its modules and, for each byte that comes to it and whose gradient goes back, `seconds_of_byte`.
EvenCut cut_evenly(const Modules& modules, int stages, double seconds_of_byte) {
  struct Best {
    double slowest = std::numeric_limits<double>::infinity();
    int64_t bytes = 0;
    int begin = 0;  // of the last stage
    bool operator<(const Best& other) const {
      return slowest < other.slowest || (slowest == other.slowest && bytes < other.bytes);
    }
  };
  const int count = modules.count();
  std::vector<double> sum(static_cast<size_t>(count) + 1, 0);
  for (int i = 0; i < count; ++i)
    sum[static_cast<size_t>(i) + 1] = sum[static_cast<size_t>(i)] + modules.seconds()[static_cast<size_t>(i)];
  // best[s][n]: the first n modules in s + 1 stages.
  std::vector<std::vector<Best>> best(static_cast<size_t>(stages), std::vector<Best>(static_cast<size_t>(count) + 1));
  for (int n = 1; n <= count; ++n) best[0][static_cast<size_t>(n)] = {sum[static_cast<size_t>(n)], 0, 0};
  for (int s = 1; s < stages; ++s) {
    for (int n = s + 1; n <= count; ++n) {
      Best& mine = best[static_cast<size_t>(s)][static_cast<size_t>(n)];
      for (int begin = s; begin < n; ++begin) {
        const Best& before = best[static_cast<size_t>(s) - 1][static_cast<size_t>(begin)];
        const int64_t bytes = modules.bytes_before(begin);
        const double seconds = sum[static_cast<size_t>(n)] - sum[static_cast<size_t>(begin)] +
                               seconds_of_byte * static_cast<double>(bytes);
        const Best trial{std::max(before.slowest, seconds), before.bytes + bytes, begin};
        if (trial < mine) mine = trial;
      }
    }
  }
  EvenCut out{std::vector<int>(static_cast<size_t>(stages), 0), best.back().back().slowest};
  for (int s = stages - 1, n = count; s > 0; --s) {
    n = best[static_cast<size_t>(s)][static_cast<size_t>(n)].begin;
    out.begins[static_cast<size_t>(s)] = n;
  }
  return out;
}

ScopeStages stages_by(const Modules& modules, const std::vector<int>& begins) {
  ScopeStages out;
  for (const auto& [scope, module] : modules.of_scope())
    out[scope] = static_cast<int>(std::ranges::upper_bound(begins, module) - begins.begin()) - 1;
  return out;
}

// Between numbered modules or, where the slowest stage is then a good deal quicker, inside one. More may cross there:
// that counts as over a link between hosts, of 10 Gbit/s.
ScopeStages even_stages(const Graph& graph, int stages) {
  constexpr double kMustSave = 0.02, kLinkBytes = 1.25e9;
  const Modules modules(graph, Modules::Size::kNumbered);
  require(modules.count() >= stages,
          "the model '{}' has {} that a pipeline can be cut between, and there are {} stages; use fewer "
          "(parallel.pp, virtual_stages)",
          graph.name(), counted(modules.count(), "module"), stages);
  const EvenCut whole = cut_evenly(modules, stages, 0);
  const double mean = std::reduce(modules.seconds().begin(), modules.seconds().end()) / stages;
  if (mean < (1 - kMustSave) * whole.slowest) {
    const Modules smallest(graph, Modules::Size::kSmallest);
    const EvenCut inside = cut_evenly(smallest, stages, 2 / kLinkBytes);
    if (inside.slowest < (1 - kMustSave) * whole.slowest) return stages_by(smallest, inside.begins);
  }
  return stages_by(modules, whole.begins);
}

void check_stage(int stage, int stages, const std::string& who) {
  require(stage >= 0 && stage < stages, "{}: there is no stage {}; the pipeline has the stages 0 to {}", who, stage,
          stages - 1);
}

// By rules and requests, which the rules come after.
ScopeStages asked_stages(const Graph& graph, int stages, std::span<const StageRule> rules) {
  ScopeStages out;
  std::set<std::string, std::less<>> scopes;
  for (const Node& node : graph.nodes()) {
    if (node.phase == Phase::kForward) scopes.emplace(graph.scope_of(node));
  }
  const auto ask = [&](const ScopePattern& pattern, int stage) {
    bool any = false;
    for (const std::string& scope : scopes) {
      if (!pattern.matches(scope)) continue;
      out[scope] = stage;
      any = true;
    }
    return any;
  };
  for (const StageRequest& request : graph.stage_requests()) {
    check_stage(request.stage, stages, fmt::format("pipeline_stage() of '{}'", request.scope));
    ask(request.scope, request.stage);
  }
  for (const StageRule& rule : rules) {
    const std::string who = fmt::format("parallel.stages '{} = {}'", rule.pattern.text(), rule.stage);
    check_stage(rule.stage, stages, who);
    if (ask(rule.pattern, rule.stage)) continue;
    scopes.erase("");  // of ops outside all modules: no rule names it
    fail(ErrorKind::kInvalidArgument, "{} matches no part of the model.{}", who,
         suggestion(rule.pattern.text(), std::vector<std::string>(scopes.begin(), scopes.end())));
  }
  return out;
}

}  // namespace

Timetable timetable_of(const PipelineParallel& pipeline, int64_t micro_batches) {
  if (pipeline.schedule.given()) {
    const Timetable& out = *pipeline.schedule.given();
    require(static_cast<int64_t>(out.crews.size()) == pipeline.crews,
            "the timetable '{}' is for {} crews; the pipeline has {} (--pp)", out.name, out.crews.size(),
            pipeline.crews);
    require(out.micro_batches == micro_batches,
            "the timetable '{}' is for {}; a step has {}; give --micro-batches {}, or another timetable", out.name,
            counted(out.micro_batches, "micro-batch"), micro_batches, out.micro_batches);
    const int per_crew = out.stages / static_cast<int>(out.crews.size());
    require(pipeline.stages_per_crew == 0 || pipeline.stages_per_crew == per_crew,
            "the timetable '{}' has {} a crew; {} asked for", out.name, counted(per_crew, "stage"),
            pipeline.stages_per_crew == 1 ? "1 is" : fmt::format("{} are", pipeline.stages_per_crew));
    require(pipeline.seq_chunks == 0 || pipeline.seq_chunks == out.seq_chunks, "the timetable '{}' {}; {} asked for",
            out.name,
            out.seq_chunks == 1 ? "does not cut positions" : fmt::format("has {} chunks of positions", out.seq_chunks),
            pipeline.seq_chunks == 1 ? "1 chunk is" : fmt::format("{} chunks are", pipeline.seq_chunks));
    return out;
  }
  return make_timetable(pipeline.schedule.schedule(), {.crews = static_cast<int>(pipeline.crews),
                                                       .stages_per_crew = static_cast<int>(pipeline.stages_per_crew),
                                                       .micro_batches = static_cast<int>(micro_batches),
                                                       .seq_chunks = static_cast<int>(pipeline.seq_chunks)});
}

Timetable forward_only(const Timetable& timetable, int64_t micro_batches) {
  Timetable out{.name = timetable.name,
                .stages = timetable.stages,
                .micro_batches = static_cast<int>(micro_batches),
                .seq_chunks = timetable.seq_chunks,
                .crews = std::vector<std::vector<Unit>>(timetable.crews.size())};
  if (micro_batches == timetable.micro_batches) {
    for (size_t crew = 0; crew < timetable.crews.size(); ++crew) {
      std::ranges::copy_if(timetable.crews[crew], std::back_inserter(out.crews[crew]),
                           [](const Unit& unit) { return unit.pass == Unit::Pass::kForward; });
    }
    return out;
  }
  const std::vector<int> crews = crews_of_stages(timetable);
  for (int m = 0; m < out.micro_batches; ++m) {
    for (int chunk = 0; chunk < out.seq_chunks; ++chunk) {
      for (int stage = 0; stage < out.stages; ++stage) {
        out.crews[static_cast<size_t>(crews[static_cast<size_t>(stage)])].push_back(
            {.stage = stage, .micro_batch = m, .seq_chunk = chunk});
      }
    }
  }
  return out;
}

void require_all(const Graph& graph, const ScopeStages& of_scope, int stages) {
  std::vector<char> has(static_cast<size_t>(stages), 0);
  for (const int stage : stages_of(graph, of_scope)) {
    require(stage < stages, "a part of the model is of stage {}, and the pipeline has the stages 0 to {}", stage,
            stages - 1);
    if (stage >= 0) has[static_cast<size_t>(stage)] = 1;
  }
  const auto without = std::ranges::find(has, 0);
  require(without == has.end(),
          "no part of the model is of stage {}; the pipeline has {}: give it a module, or use fewer",
          without - has.begin(), stages);
}

ScopeStages choose_stages(const Graph& graph, int stages, std::span<const StageRule> rules) {
  ScopeStages out = asked_stages(graph, stages, rules);
  if (out.empty()) out = even_stages(graph, stages);
  require_all(graph, out, stages);
  return out;
}

}  // namespace trireme
