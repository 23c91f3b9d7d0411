// What is wrong with a program (verify of partition.h): collectives to other layouts, pieces of other shapes.
#include <algorithm>
#include <array>
#include <deque>
#include <unordered_map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/op_def.h"
#include "trireme/partition/frames.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// What is wrong with one collective between values k of its operands and results, or "".
std::string check_collective(const Program& program, const Node& node, size_t k) {
  const auto in = static_cast<size_t>(node.inputs[k]);
  const auto out = static_cast<size_t>(node.outputs[k]);
  const Layout& before = program.layouts[in];
  const Layout& after = program.layouts[out];
  // In models that are cut by hand layouts say nothing: each rank's piece is a tensor of its own.
  if (program.by_hand || (before.is_replicated() && after.is_replicated())) return "";
  const auto make = def_of(node).collective->result;
  if (make == nullptr) return "is between values that are cut";
  const CutTensor operand{frame(program.whole[in], before, program.mesh), before};
  const CutTensor result{frame(program.whole[out], after, program.mesh), after};
  try {
    const CutTensor right = make(operand, node.attrs, program.mesh);
    if (right.whole != result.whole) {
      return fmt::format("makes {} of a whole {}", to_string(result.whole), to_string(operand.whole));
    }
    if (right.layout == after) return "";
    return fmt::format("makes {} of {}, and its result is taken for {}", to_string(right.layout, program.mesh),
                       to_string(before, program.mesh), to_string(after, program.mesh));
  } catch (const Error& e) {
    return fmt::format("cannot be done to {}: {}", to_string(before, program.mesh), e.text());
  }
}

// What is wrong with the collective's ranks, or with what it makes of the pieces, or "".
std::string check_call(const CallKind& call, const Mesh& mesh) {
  if (std::string wrong = groups_of(*call.op, call.attrs).why_not(mesh); !wrong.empty()) return wrong;
  std::vector<TensorType> in, out;
  for (const TensorType& type : call.in()) in.push_back(as_moved(type));
  for (const TensorType& type : call.out()) out.push_back(as_moved(type));
  try {
    return result_types(*call.op, in, call.attrs) == out ? "" : "makes pieces of other types than the op gives";
  } catch (const Error& e) {
    return fmt::format("is not one that can be: {}", e.text());
  }
}

// Checks each kind of call, and how the values of such calls lie, once.
class CollectiveChecks {
 public:
  explicit CollectiveChecks(const Program& program) : program_(program) {}

  void run(std::vector<std::string>& out) {
    for (const Node& node : program_.graph.nodes()) {
      if (!def_of(node).collective) continue;
      const int kind = kinds_.of(program_.graph, node);
      const std::string& wrong = wrong_.get(kind, [&] { return check_call(kinds_[kind], program_.mesh); });
      if (!wrong.empty()) {
        const ValueId made = node.outputs.empty() ? kNoValue : node.outputs[0];
        out.push_back(fmt::format("{} that makes %{} {}", node.op->name, made, wrong));
        continue;
      }
      for (size_t k = 0; k < std::min(node.inputs.size(), node.outputs.size()); ++k) {
        if (is_known(kind, node, k)) continue;
        const std::string lies = check_collective(program_, node, k);
        if (!lies.empty()) out.push_back(fmt::format("{} that makes %{} {}", node.op->name, node.outputs[k], lies));
        if (lies.empty()) known_[static_cast<size_t>(kind)].push_back(ends_of(node, k));
      }
    }
  }

 private:
  // How values k of the operands and results lie.
  struct Ends {
    Shared<Layout> before, after;
    Shape operand, result;
    friend bool operator==(const Ends&, const Ends&) = default;
  };

  Ends ends_of(const Node& node, size_t k) const {
    const auto in = static_cast<size_t>(node.inputs[k]), out = static_cast<size_t>(node.outputs[k]);
    return {program_.layouts[in], program_.layouts[out], program_.whole[in], program_.whole[out]};
  }
  // Whether such a call between values that lie so was found right before.
  bool is_known(int kind, const Node& node, size_t k) {
    if (known_.size() <= static_cast<size_t>(kind)) known_.resize(static_cast<size_t>(kind) + 1);
    const std::vector<Ends>& known = known_[static_cast<size_t>(kind)];
    return !known.empty() && std::ranges::find(known, ends_of(node, k)) != known.end();
  }

  const Program& program_;
  CallKinds kinds_;
  OfKind<std::string> wrong_;
  std::vector<std::vector<Ends>> known_;  // by kind
};

// Local shapes, each found once: most values share their layouts and whole shapes with values of other micro-batches.
class LocalShapes {
 public:
  explicit LocalShapes(const Mesh& mesh) : mesh_(mesh) {}

  const Shape& of(const Shape& whole, const Layout& layout) {
    Seen& seen = seen_[place_of(&whole, &layout)];
    if (seen.whole != &whole || seen.layout != &layout) seen = {&whole, &layout, &find(whole, layout)};
    return *seen.local;
  }

 private:
  // By where they lie.
  struct Seen {
    const Shape* whole = nullptr;
    const Layout* layout = nullptr;
    const Shape* local = nullptr;
  };

  // Neighbours in memory, as those are that are made one after the other, lie apart.
  static size_t place_of(const Shape* whole, const Layout* layout) {
    const uint64_t both =
        reinterpret_cast<uintptr_t>(whole) * 0x9e3779b97f4a7c15U ^ reinterpret_cast<uintptr_t>(layout);
    return both * 0xd6e8feb86659fd93U >> (64 - kPlacesBits);
  }

  const Shape& find(const Shape& whole, const Layout& layout) {
    std::deque<std::pair<Shape, Shape>>& known = by_layout_[&layout];
    const auto found = std::ranges::find(known, whole, &std::pair<Shape, Shape>::first);
    if (found != known.end()) return found->second;
    return known.emplace_back(whole, local_shape(whole, layout, mesh_)).second;
  }

  const Mesh& mesh_;
  static constexpr int kPlacesBits = 13;
  std::vector<Seen> seen_ = std::vector<Seen>(size_t{1} << kPlacesBits);
  std::unordered_map<const Layout*, std::deque<std::pair<Shape, Shape>>> by_layout_;  // whole and local
};

}  // namespace

std::vector<std::string> verify(const Program& program) {
  const Graph& graph = program.graph;
  std::vector<std::string> out = check_structure(graph);
  check_phases(graph, out);
  LocalShapes shapes(program.mesh);
  for (size_t id = 0; id < graph.values().size(); ++id) {
    const TensorType& type = graph.values()[id].type;
    const Shape& local = shapes.of(program.whole[id], program.layouts[id]);
    if (type.shape == local) continue;
    out.push_back(fmt::format("%{} is {} but layout {} of {} gives {}", id, to_string(type),
                              to_string(program.layouts[id], program.mesh), to_string(program.whole[id]),
                              to_string(local)));
  }
  CollectiveChecks(program).run(out);
  for (const Output& output : graph.outputs()) {
    const Layout& layout = program.layouts[static_cast<size_t>(output.value)];
    if (layout.is_partial()) out.push_back(fmt::format("output '{}' is a partial sum", output.name));
    if (output.updates != kNoValue && layout != program.layouts[static_cast<size_t>(output.updates)]) {
      out.push_back(fmt::format("output '{}' updates an input of another layout", output.name));
    }
  }
  return out;
}

}  // namespace trireme
