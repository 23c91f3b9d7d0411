// Fuses collectives of one kind over the same ranks into buckets, each of which is one operation: sums of gradients
// (all_reduce), sums of which each rank keeps a slice (reduce_scatter), and gathers of weights (all_gather).
//
// Before: every value has a collective of its own. After: neighbours are one operation with many operands; those of
// all-reduces lie side by side in memory, those of the others are packed (op/packing.h).
// - What is ready some time in the step, a gradient or an updated weight: all members are taken at the place of the
//   last one. No member moves past its first reader.
// - What is there from the start, a weight in slices: all members are gathered at the place of the first one, which
//   stands before its first reader. (early_gathers then moves the bucket further ahead.) No weight is in a bucket
//   twice.
// Where buckets end is given by options and by ids (parallel/asked/fusion.h), or chosen by a model of the step
// (bucket_model.h, step_times.h).
#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "trireme/op/call_kinds.h"
#include "trireme/op/structural.h"
#include "trireme/pass/bucket_model.h"
#include "trireme/pass/parameter_names.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// Collectives that may be one operation but for their places, in the order of these. They are of one micro-batch, or of
// none: one micro-batch does not wait for the next, which may be what hides its exchange.
struct Sequence {
  const FusionOfKind* how = nullptr;  // null: of one id, as many together as can be
  bool from_start = false;            // what they read is there from the step's start
  std::vector<NodeId> nodes;
  std::vector<BucketMember> members;

  // Whether no member may be in one bucket with the next.
  bool is_of_singles() const {
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i].last > i) return false;
    }
    return true;
  }
};

// The node that first reads each value; past the end when none does.
std::vector<NodeId> first_readers(const Graph& graph) {
  std::vector<NodeId> out(graph.values().size(), std::numeric_limits<NodeId>::max());
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    for (const ValueId input : graph.nodes()[i].inputs) out[static_cast<size_t>(input)] = static_cast<NodeId>(i);
  }
  return out;
}

// Null: no such collective is fused.
const FusionOfKind* fusion_of(const Node& node, const Fusion& options) {
  if (node.inputs.size() != 1 || !options.is_on) return nullptr;
  const FusionOfKind* kind = does(node, ReshardStep::Kind::kAllReduce)       ? &options.all_reduce
                             : does(node, ReshardStep::Kind::kReduceScatter) ? &options.reduce_scatter
                             : does(node, ReshardStep::Kind::kAllGather)     ? &options.all_gather
                                                                             : nullptr;
  return kind != nullptr && kind->mode != FusionOfKind::Mode::kOff ? kind : nullptr;
}

// What is gathered from the start: until a weight comes again.
void limit_to_one_of_each(const Graph& graph, Sequence& sequence) {
  std::map<ValueId, size_t> next;  // by operand
  size_t last = sequence.nodes.size() - 1;
  for (size_t i = sequence.nodes.size(); i-- > 0;) {
    const ValueId operand = graph.node(sequence.nodes[i]).inputs[0];
    if (const auto again = next.find(operand); again != next.end()) last = std::min(last, again->second - 1);
    next[operand] = i;
    sequence.members[i].last = last;
  }
}

// What is ready later: up to the first reader.
void limit_to_readers(const Graph& graph, const std::vector<NodeId>& readers, Sequence& sequence) {
  const std::vector<NodeId>& nodes = sequence.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeId reader = readers[static_cast<size_t>(graph.node(nodes[i]).outputs[0])];
    const auto after = std::lower_bound(nodes.begin(), nodes.end(), reader);
    sequence.members[i].last = static_cast<size_t>(after - nodes.begin()) - 1;
  }
}

// What sequences are told apart by.
struct SequenceKey {
  int call = 0;  // of equal ops, attributes and element types
  int64_t fusion = 0;
  bool from_start = false;
  int micro_batch = -1;
  friend auto operator<=>(const SequenceKey&, const SequenceKey&) = default;
};

// Numbers of calls that may be one operation but for their shapes.
class AlikeCalls {
 public:
  int of(const Graph& graph, const Node& node) {
    return of_kind_.get(kinds_.of(graph, node), [&] {
      const std::string text =
          fmt::format("{}{} {}", node.op->name, node.attrs.text(), to_string(graph.type(node.inputs[0]).dtype));
      return numbers_.try_emplace(text, static_cast<int>(numbers_.size())).first->second;
    });
  }

 private:
  CallKinds kinds_;
  OfKind<int> of_kind_;
  std::map<std::string, int> numbers_;
};

// The rule of ids that a collective goes by; null: none.
const FusionRule* rule_of(const Graph& graph, const Node& node, std::span<const std::string_view> parameters,
                          const Fusion& options) {
  const std::string_view parameter = parameters[static_cast<size_t>(node.outputs[0])];
  return fusion_rule(options.ids, parameter.empty() ? graph.scope_of(node) : parameter);
}

// Those in which something may be together; without the times when members are ready.
std::map<SequenceKey, Sequence> sequences_of(const Program& program, const PassOptions& options,
                                             const std::vector<NodeId>& readers) {
  const Graph& graph = program.graph;
  const std::vector<std::string_view> names = parameter_names(graph);
  AlikeCalls calls;
  std::map<SequenceKey, Sequence> out;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    const FusionOfKind* how = fusion_of(node, options.fusion);
    if (how == nullptr) continue;
    const ValueId operand = node.inputs[0], result = node.outputs[0];
    const FusionRule* const rule = rule_of(graph, node, names, options.fusion);
    const int64_t fusion = rule == nullptr ? kNoFusionId : rule->id;
    if (fusion == 0) continue;
    const NodeId reader = readers[static_cast<size_t>(result)];
    const bool is_read = reader < static_cast<NodeId>(graph.nodes().size());
    const bool from_start = does(node, ReshardStep::Kind::kAllGather) && is_as_stored(graph, operand) && is_read;
    Sequence& sequence = out[{calls.of(graph, node), fusion, from_start, node.micro_batch}];
    sequence.how = fusion == kNoFusionId ? how : nullptr;
    sequence.from_start = from_start;
    sequence.nodes.push_back(id);
    sequence.members.push_back({.ready_s = 0, .bytes = whole_bytes(program, node)});
  }
  for (auto& [key, sequence] : out) {
    if (sequence.from_start) {
      limit_to_one_of_each(graph, sequence);
    } else {
      limit_to_readers(graph, readers, sequence);
    }
  }
  std::erase_if(out, [](const auto& each) { return each.second.is_of_singles(); });
  return out;
}

void set_ready_times(const Graph& graph, const std::vector<double>& starts, const std::vector<NodeId>& readers,
                     Sequence& sequence) {
  for (size_t i = 0; i < sequence.nodes.size(); ++i) {
    const NodeId id = sequence.nodes[i];
    const NodeId at = sequence.from_start ? readers[static_cast<size_t>(graph.node(id).outputs[0])] : id;
    sequence.members[i].ready_s = starts[static_cast<size_t>(at)];
  }
}

// One past the last member of each bucket, as it is given.
std::vector<size_t> given_buckets(const Sequence& sequence) {
  const std::vector<BucketMember>& members = sequence.members;
  const auto ends_after = [&](size_t i, int64_t bytes) {
    if (sequence.how == nullptr) return false;
    if (sequence.how->ends.empty()) return bytes + members[i].bytes > sequence.how->bytes;
    return std::ranges::find(sequence.how->ends, static_cast<int64_t>(i)) != sequence.how->ends.end();
  };
  std::vector<size_t> out;
  int64_t bytes = 0;
  size_t last = members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0 && (ends_after(i, bytes) || last < i)) {
      out.push_back(i);
      bytes = 0;
      last = members.size();
    }
    bytes += members[i].bytes;
    last = std::min(last, members[i].last);
  }
  out.push_back(members.size());
  return out;
}

// The same by the model. What is gathered from the start is so backward in time.
std::vector<size_t> chosen_buckets(const Sequence& sequence, const BucketModel& model) {
  if (!sequence.from_start) return best_buckets(sequence.members, model);
  const size_t count = sequence.members.size();
  const double end_s = sequence.members.back().ready_s;
  std::vector<BucketMember> backward(count);
  std::vector<size_t> first(count, 0);  // by member: the first that may be with it
  for (size_t i = 0, from = 0; i < count; ++i) {
    while (sequence.members[from].last < i) ++from;
    first[i] = from;
  }
  double read_s = end_s;  // by this member or a later one
  for (size_t i = count; i-- > 0;) {
    const BucketMember& member = sequence.members[i];
    read_s = std::min(read_s, member.ready_s);
    backward[count - 1 - i] = {.ready_s = end_s - read_s, .bytes = member.bytes, .last = count - 1 - first[i]};
  }
  std::vector<size_t> out;
  for (const size_t end : best_buckets(backward, model)) {
    if (end < count) out.push_back(count - end);
  }
  std::ranges::reverse(out);
  out.push_back(count);
  return out;
}

// Members by the node in whose place they are taken, which is the last of `instead_of`.
struct Bucket {
  std::vector<NodeId> members, instead_of;
};

// `skip` marks members that are taken elsewhere.
std::map<NodeId, Bucket> choose_fused(const Program& program, const PassOptions& options, std::vector<char>& skip) {
  std::map<NodeId, Bucket> out;
  const std::vector<NodeId> readers = first_readers(program.graph);
  std::map<SequenceKey, Sequence> sequences = sequences_of(program, options, readers);
  if (sequences.empty()) return out;
  const std::vector<double> starts = start_times(program, options.rates);
  for (auto& [key, sequence] : sequences) {
    set_ready_times(program.graph, starts, readers, sequence);
    const bool given = sequence.how == nullptr || sequence.how->bytes > 0 || !sequence.how->ends.empty();
    const BucketModel model = bucket_model(program, program.graph.node(sequence.nodes[0]), options.rates);
    size_t first = 0;
    for (const size_t end : given ? given_buckets(sequence) : chosen_buckets(sequence, model)) {
      Bucket bucket;
      bucket.members.assign(sequence.nodes.begin() + static_cast<std::ptrdiff_t>(first),
                            sequence.nodes.begin() + static_cast<std::ptrdiff_t>(end));
      first = end;
      if (bucket.members.size() < 2) continue;
      for (const NodeId member : bucket.members) skip[static_cast<size_t>(member)] = 1;
      bucket.instead_of = bucket.members;
      if (sequence.from_start) std::ranges::reverse(bucket.instead_of);
      const NodeId place = bucket.instead_of.back();
      out.emplace(place, std::move(bucket));
    }
  }
  return out;
}

// Says which settings change nothing: neither with one nor without it are two of its collectives taken together.
class WithoutEffect {
 public:
  WithoutEffect(const Program& program, const PassOptions& options)
      : program_(program), graph_(program.graph), options_(options), together_(together_with(options.fusion)) {}

  void say_all() {
    using Kind = ReshardStep::Kind;
    say_of_kind(Kind::kAllReduce, &Fusion::all_reduce);
    say_of_kind(Kind::kReduceScatter, &Fusion::reduce_scatter);
    say_of_kind(Kind::kAllGather, &Fusion::all_gather);
    if (!options_.fusion.is_on) {
      Fusion without = options_.fusion;
      without.is_on = true;
      say("comm_fusion = false", "it has no two collectives", without, [](const Node&) { return true; });
    }
    say_of_rules();
  }

 private:
  std::vector<char> together_with(const Fusion& fusion) const {
    PassOptions options = options_;
    options.fusion = fusion;
    std::vector<char> out(graph_.nodes().size(), 0);
    choose_fused(program_, options, out);
    return out;
  }

  bool any(const std::vector<char>& together, const std::function<bool(const Node&)>& is_of) const {
    for (size_t i = 0; i < together.size(); ++i) {
      if (together[i] != 0 && is_of(graph_.nodes()[i])) return true;
    }
    return false;
  }

  void say(std::string_view what, std::string_view none, const Fusion& without,
           const std::function<bool(const Node&)>& is_of) const {
    if (any(together_, is_of) || any(together_with(without), is_of)) return;
    trireme::say(
        options_,
        {fmt::format("parallel.{} has no effect on this step: {} that would be taken together", what, none), true});
  }

  void say_of_kind(ReshardStep::Kind kind, FusionOfKind Fusion::*of) const {
    const std::string_view name = structural().step(kind).name;
    const FusionOfKind& given = options_.fusion.*of;
    if (given == FusionOfKind()) return;
    const std::string_view key = given.bytes > 0 ? "_mb" : !given.ends.empty() ? "_config" : "";
    Fusion without = options_.fusion;
    without.*of = FusionOfKind();
    say(fmt::format("{}_fusion{}", name, key), fmt::format("it has no two collectives {}", name), without,
        [&](const Node& node) { return does(node, kind); });
  }

  void say_of_rules() const {
    const std::vector<std::string_view> names = parameter_names(graph_);
    for (size_t i = 0; i < options_.fusion.ids.size(); ++i) {
      const FusionRule& rule = options_.fusion.ids[i];
      Fusion without = options_.fusion;
      without.ids.erase(without.ids.begin() + static_cast<std::ptrdiff_t>(i));
      say(fmt::format("fusion '{} = {}'", rule.pattern.text(), rule.id),
          "of what it names there are no two collectives", without, [&](const Node& node) {
            return def_of(node).collective && node.inputs.size() == 1 &&
                   rule_of(graph_, node, names, options_.fusion) == &rule;
          });
    }
  }

  const Program& program_;
  const Graph& graph_;
  const PassOptions& options_;
  std::vector<char> together_;
};

void say_without_effect(const Program& program, const PassOptions& options) {
  const Fusion usual, &given = options.fusion;
  const bool any = given.all_reduce != usual.all_reduce || given.reduce_scatter != usual.reduce_scatter ||
                   given.all_gather != usual.all_gather || given.is_on != usual.is_on || !given.ids.empty();
  const bool is_alone =
      program.mesh.devices() == 1 && std::ranges::none_of(program.graph.nodes(), [](const Node& node) {
        return node.stage >= 0;  // of a pipeline, whose other crews have other ranks
      });
  if (any && options.remarks != nullptr && !is_alone) WithoutEffect(program, options).say_all();
}

Program fused(Program program, const PassOptions& options) {
  say_without_effect(program, options);
  const Graph& from = program.graph;
  std::vector<char> skip(from.nodes().size(), 0);
  const std::map<NodeId, Bucket> buckets = choose_fused(program, options, skip);
  if (buckets.empty()) return program;

  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes().size()); ++id) {
    const auto bucket = buckets.find(id);
    if (bucket != buckets.end()) {
      std::vector<ValueId> in, results;
      for (const NodeId member : bucket->second.members) {
        in.push_back(from.node(member).inputs[0]);
        results.push_back(from.node(member).outputs[0]);
        // The cast of a slice that is gathered from here on.
        const NodeId producer = from.value(in.back()).producer;
        if (producer < id || skip[static_cast<size_t>(producer)] != 0) continue;
        rewrite.copy(producer);
        skip[static_cast<size_t>(producer)] = 1;
      }
      const Node& node = from.node(id);
      rewrite.add(*node.op, node.attrs, bucket->second.instead_of, in, results);
    } else if (skip[static_cast<size_t>(id)] == 0) {
      rewrite.copy(id);
    }
  }
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass fuse_collectives{
    .name = "fuse_collectives",
    .doc = "collectives of one kind over the same ranks become buckets",
    .run = [](Program program, const PassOptions& options) { return fused(std::move(program), options); },
};
}  // namespace pass

}  // namespace trireme
