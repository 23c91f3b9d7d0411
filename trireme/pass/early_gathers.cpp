// Gathers weights that are stored in slices one reader ahead.
//
// Before: a weight that is stored cut and read whole is gathered right before the op that reads it, which waits for the
// bytes. After: its gather begins before the first reader of the gather before it, and runs under that op (the prefetch
// of ZeRO-3 and FSDP). What is gathered in one operation (fuse_collectives.cpp) moves as one; at most one more of these
// is whole at a time.
#include <algorithm>
#include <map>

#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

struct Gather {
  NodeId node = -1;
  NodeId first_reader = -1;
};

// All-gathers of the program's inputs that something reads, in program order.
std::vector<Gather> gathers_of(const Graph& graph) {
  std::vector<Gather> out;
  std::map<ValueId, size_t> result;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) {
    const Node& node = graph.node(id);
    for (const ValueId operand : node.inputs) {
      const auto gather = result.find(operand);
      if (gather == result.end()) continue;
      if (NodeId& reader = out[gather->second].first_reader; reader < 0) reader = id;
      result.erase(gather);
    }
    const auto is_input = [&](ValueId operand) { return graph.value(operand).producer < 0; };
    if (does(node, ReshardStep::Kind::kAllGather) && std::ranges::all_of(node.inputs, is_input)) {
      for (const ValueId made : node.outputs) result.emplace(made, out.size());
      out.push_back({id, -1});
    }
  }
  std::erase_if(out, [](const Gather& gather) { return gather.first_reader < 0; });
  return out;
}

Program gather_early(Program program) {
  const std::vector<Gather> gathers = gathers_of(program.graph);
  std::map<NodeId, std::vector<NodeId>> before;  // gathers that move, by the node they move before
  std::map<NodeId, bool> moves;
  for (size_t i = 1; i < gathers.size(); ++i) {
    if (gathers[i - 1].first_reader >= gathers[i].node) continue;
    before[gathers[i - 1].first_reader].push_back(gathers[i].node);
    moves[gathers[i].node] = true;
  }
  if (moves.empty()) return program;
  Rewrite rewrite(program);
  for (NodeId id = 0; id < static_cast<NodeId>(program.graph.nodes().size()); ++id) {
    if (const auto here = before.find(id); here != before.end()) {
      for (const NodeId gather : here->second) rewrite.copy(gather);
    }
    if (moves.count(id) == 0) rewrite.copy(id);
  }
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass early_gathers{
    .name = "early_gathers",
    .doc = "weights that lie in slices are gathered one reader ahead",
    .run = [](Program program, const PassOptions&) { return gather_early(std::move(program)); },
};
}  // namespace pass

}  // namespace trireme
