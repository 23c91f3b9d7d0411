#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/op/op_attrs.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/registry.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// "; over dp, ranks {0,1} {2,3}": whom a collective joins; of many groups the first ones.
std::string joined_ranks(const Program& program, const Node& node) {
  constexpr int64_t kShown = 8;
  const RankGroups groups = groups_of(node.op->name, node.attrs);
  const int64_t count =
      (groups.ranks.empty() ? program.mesh.devices() : static_cast<int64_t>(groups.ranks.size())) / groups.size;
  std::string out = groups.ranks.empty() ? fmt::format("; over {}, ranks", groups.text(program.mesh)) : "; ranks";
  int64_t shown = 0;
  for (int64_t rank = 0; rank < program.mesh.devices() && shown < std::min(count, kShown); ++rank) {
    const std::vector<int64_t> group = groups.of(rank, program.mesh);
    if (group.empty() || *std::ranges::min_element(group) != rank) continue;
    out += fmt::format(" {{{}}}", fmt::join(group, ","));
    ++shown;
  }
  return count > kShown ? out + fmt::format(" and {} more groups", count - kShown) : out;
}

}  // namespace

std::string to_string(const Program& program) {
  std::string out = fmt::format("mesh \"{}\"\n", to_string(program.mesh));
  const std::string text = to_string(program.graph);
  size_t from = 0;
  while (from < text.size()) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line = std::string_view(text).substr(from, end - from);
    out += line;
    if (line.starts_with('%')) {
      const auto id = static_cast<size_t>(std::stoll(std::string(line.substr(1, line.find(':') - 1))));
      out += fmt::format("  // {} of {}", to_string(program.layouts[id], program.mesh), to_string(program.whole[id]));
      const NodeId producer = program.graph.values()[id].producer;
      if (producer >= 0 && is_communication(def_of(program.graph.node(producer))))
        out += joined_ranks(program, program.graph.node(producer));
    }
    out += '\n';
    from = end + 1;
  }
  return out;
}

}  // namespace trireme
