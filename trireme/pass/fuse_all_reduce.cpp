#include "trireme/pass/fuse_all_reduce.h"

#include <algorithm>
#include <limits>
#include <map>

#include "trireme/base/seeded_defect.h"
#include "trireme/op/structural.h"
#include "trireme/pass/rewrite.h"

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
    std::string key = node.attrs.text() + std::string(to_string(type.dtype));
    if (seeded_defect("fuse: sums over other ranks join a bucket")) key = to_string(type.dtype);
    Bucket& bucket = open[key];
    if (!bucket.members.empty() &&
        (bucket.bytes + type.bytes() > options.bucket_bytes || bucket.first_reader <= id)) {
      close(bucket);
    }
    bucket.members.push_back(id);
    bucket.bytes += type.bytes();
    if (seeded_defect("fuse: a bucket closes after its first reader")) continue;
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

  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(from.nodes().size()); ++id) {
    const auto bucket = buckets.find(id);
    if (bucket != buckets.end()) {
      std::vector<ValueId> in, results;
      for (const NodeId member : bucket->second) {
        in.push_back(from.node(member).inputs[0]);
        results.push_back(from.node(member).outputs[0]);
      }
      if (seeded_defect("fuse: results in the reverse order")) std::reverse(results.begin(), results.end());
      rewrite.copy(id, in, results);
    } else if (!skip[static_cast<size_t>(id)]) {
      rewrite.copy(id);
    }
  }
  return rewrite.finish();
}

}  // namespace trireme
