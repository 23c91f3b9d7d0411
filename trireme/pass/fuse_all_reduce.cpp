// Fuses all-reduces over the same ranks into buckets, each of which is one operation.
//
// Before: every partial gradient has an all-reduce of its own. After: neighbours in the order in which they become
// ready are one operation with many operands, whose buffers the memory plan lays side by side. All members of a bucket
// are reduced at the place of the last one. No member moves past its first reader. Where buckets end is chosen by a
// model of the step (bucket_model.h, step_times.h), unless the options give it.
#include <algorithm>
#include <limits>
#include <map>

#include "trireme/op/structural.h"
#include "trireme/pass/bucket_model.h"
#include "trireme/pass/pipeline.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// All-reduces over the same ranks, of one type and one micro-batch (or of none), in the order in which their operands
// are ready: one micro-batch does not wait for the next, which may be what hides its exchange.
struct Sequence {
  std::vector<NodeId> nodes;
  std::vector<BucketMember> members;
};

// The node that first reads each value; past the end when none does.
std::vector<NodeId> first_readers(const Graph& graph) {
  std::vector<NodeId> out(graph.values().size(), std::numeric_limits<NodeId>::max());
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    for (const ValueId input : graph.nodes()[i].inputs) out[static_cast<size_t>(input)] = static_cast<NodeId>(i);
  }
  return out;
}

std::map<std::string, Sequence> sequences_of(const Program& program, const Rates& rates) {
  const Graph& graph = program.graph;
  const std::vector<double> starts = start_times(program, rates);
  std::map<std::string, Sequence> out;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (!does(node, ReshardStep::Kind::kAllReduce) || node.inputs.size() != 1) continue;
    const TensorType& type = graph.type(node.inputs[0]);
    const std::string key = fmt::format("{} {} {}", node.attrs.text(), to_string(type.dtype), node.micro_batch);
    Sequence& sequence = out[key];
    sequence.nodes.push_back(id);
    sequence.members.push_back({.ready_s = starts[static_cast<size_t>(id)], .bytes = type.bytes()});
  }
  const std::vector<NodeId> readers = first_readers(graph);
  for (auto& [key, sequence] : out) {
    const std::vector<NodeId>& nodes = sequence.nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const NodeId reader = readers[static_cast<size_t>(graph.node(nodes[i]).outputs[0])];
      const auto after = std::lower_bound(nodes.begin(), nodes.end(), reader);
      sequence.members[i].last = static_cast<size_t>(after - nodes.begin()) - 1;
    }
  }
  return out;
}

// One past the last member of each bucket, as given by their size or their numbers.
std::vector<size_t> buckets_as_said(const std::vector<BucketMember>& members, const FuseAllReduceOptions& options) {
  const auto is_said = [&](size_t i) {
    return std::find(options.bucket_ends.begin(), options.bucket_ends.end(), static_cast<int64_t>(i)) !=
           options.bucket_ends.end();
  };
  std::vector<size_t> out;
  int64_t bytes = 0;
  size_t last = members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    const bool full = options.bucket_ends.empty() ? bytes + members[i].bytes > options.bucket_bytes : is_said(i);
    if (i > 0 && (full || last < i)) {
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

// For each node that ends a bucket of several members, the members; `skip` marks the other members.
std::map<NodeId, std::vector<NodeId>> choose_buckets(const Program& program, const FuseAllReduceOptions& options,
                                                     std::vector<char>& skip) {
  std::map<NodeId, std::vector<NodeId>> out;
  for (const auto& [key, sequence] : sequences_of(program, options.rates)) {
    const bool said = options.bucket_bytes > 0 || !options.bucket_ends.empty();
    const BucketModel model = all_reduce_model(program, program.graph.node(sequence.nodes[0]), options.rates.links);
    size_t first = 0;
    for (const size_t end : said ? buckets_as_said(sequence.members, options) : best_buckets(sequence.members, model)) {
      const std::vector<NodeId> members(sequence.nodes.begin() + static_cast<std::ptrdiff_t>(first),
                                        sequence.nodes.begin() + static_cast<std::ptrdiff_t>(end));
      first = end;
      if (members.size() < 2) continue;
      for (const NodeId member : members) skip[static_cast<size_t>(member)] = 1;
      out.emplace(members.back(), members);
    }
  }
  return out;
}

Program fuse_sums(Program program, const FuseAllReduceOptions& options) {
  const Graph& from = program.graph;
  std::vector<char> skip(from.nodes().size(), 0);
  const std::map<NodeId, std::vector<NodeId>> buckets = choose_buckets(program, options, skip);
  if (buckets.empty()) return program;

  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes().size()); ++id) {
    const auto bucket = buckets.find(id);
    if (bucket != buckets.end()) {
      std::vector<ValueId> in, results;
      for (const NodeId member : bucket->second) {
        in.push_back(from.node(member).inputs[0]);
        results.push_back(from.node(member).outputs[0]);
      }
      rewrite.copy(id, in, results);
    } else if (!skip[static_cast<size_t>(id)]) {
      rewrite.copy(id);
    }
  }
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass fuse_all_reduce{
    .name = "fuse_all_reduce",
    .doc = "all-reduces over the same ranks become buckets",
    .run = [](Program program, const PassOptions& o) { return fuse_sums(std::move(program), o.all_reduce); },
};
}  // namespace pass

}  // namespace trireme
