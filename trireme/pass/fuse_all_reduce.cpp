#include "trireme/pass/fuse_all_reduce.h"

#include <algorithm>
#include <limits>
#include <map>

#include "trireme/op/structural.h"

namespace trireme {
namespace {

struct Bucket {
  std::vector<NodeId> members;
  int64_t bytes = 0;
  NodeId first_reader = std::numeric_limits<NodeId>::max();
};

// The node that first reads each value; past the end when none does.
std::vector<NodeId> first_readers(const Graph& graph) {
  std::vector<NodeId> out(graph.values().size(), std::numeric_limits<NodeId>::max());
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    for (const ValueId input : graph.nodes()[i].inputs) out[static_cast<size_t>(input)] = static_cast<NodeId>(i);
  }
  return out;
}

// For each node that ends a bucket of several members, the members; `skip` marks the other members.
std::map<NodeId, std::vector<NodeId>> choose_buckets(const Graph& graph, const FuseAllReduceOptions& options,
                                                     std::vector<char>& skip) {
  const std::vector<NodeId> readers = first_readers(graph);
  std::map<std::string, Bucket> open;
  std::map<NodeId, std::vector<NodeId>> done;
  const auto close = [&](Bucket& bucket) {
    if (bucket.members.size() > 1) {
      for (const NodeId member : bucket.members) skip[static_cast<size_t>(member)] = 1;
      done.emplace(bucket.members.back(), bucket.members);
    }
    bucket = {};
  };
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    if (node.op->name != "all_reduce" || node.inputs.size() != 1) continue;
    const TensorType& type = graph.type(node.inputs[0]);
    Bucket& bucket = open[node.attrs.text() + std::string(to_string(type.dtype))];
    if (!bucket.members.empty() &&
        (bucket.bytes + type.bytes() > options.bucket_bytes || bucket.first_reader <= id)) {
      close(bucket);
    }
    bucket.members.push_back(id);
    bucket.bytes += type.bytes();
    bucket.first_reader = std::min(bucket.first_reader, readers[static_cast<size_t>(node.outputs[0])]);
  }
  for (auto& [key, bucket] : open) close(bucket);
  return done;
}

}  // namespace

Program fuse_all_reduce(const Program& program, const FuseAllReduceOptions& options) {
  const Graph& from = program.graph;
  std::vector<char> skip(from.nodes().size(), 0);
  const std::map<NodeId, std::vector<NodeId>> buckets = choose_buckets(from, options, skip);
  if (buckets.empty()) return program;

  Program out{Graph(from.name()), program.mesh, {}, {}};
  std::vector<ValueId> map(from.values().size(), kNoValue);
  const auto define = [&](ValueId old_id, ValueId id) {
    map[static_cast<size_t>(old_id)] = id;
    out.layouts.push_back(program.layouts[static_cast<size_t>(old_id)]);
    out.whole.push_back(program.whole[static_cast<size_t>(old_id)]);
  };
  const auto add = [&](const Node& like, const std::vector<ValueId>& old_in, const std::vector<ValueId>& old_out) {
    std::vector<ValueId> in;
    std::vector<TensorType> types;
    for (const ValueId id : old_in) in.push_back(map[static_cast<size_t>(id)]);
    for (const ValueId id : old_out) types.push_back(from.type(id));
    out.graph.set_scope(from.scope_of(like));
    const NodeId made = out.graph.add_node(*like.op, like.attrs, in, types);
    for (size_t i = 0; i < old_out.size(); ++i) define(old_out[i], out.graph.node(made).outputs[i]);
  };

  for (const Input& input : from.inputs()) {
    define(input.value, out.graph.add_input(input.name, from.type(input.value), input.role, input.init));
  }
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes().size()); ++id) {
    const auto bucket = buckets.find(id);
    if (bucket != buckets.end()) {
      std::vector<ValueId> in, results;
      for (const NodeId member : bucket->second) {
        in.push_back(from.node(member).inputs[0]);
        results.push_back(from.node(member).outputs[0]);
      }
      add(from.node(id), in, results);
    } else if (!skip[static_cast<size_t>(id)]) {
      add(from.node(id), from.node(id).inputs, from.node(id).outputs);
    }
  }
  for (const Output& output : from.outputs()) {
    out.graph.add_output(output.name, map[static_cast<size_t>(output.value)],
                         output.updates == kNoValue ? kNoValue : map[static_cast<size_t>(output.updates)]);
  }
  return out;
}

}  // namespace trireme
