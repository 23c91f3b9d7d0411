// StrategyFile: a strategy as it is written down, by names: what a file says before it is matched with a graph. Its
// text form is in strategy_text.cpp, its JSON form in strategy_json.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/words.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// An input or an output of the graph.
struct StrategyTensor {
  std::string name;
  TensorType type;
  Layout layout;
  Axes mean = {};             // of an output: the axes over which the mean of the ranks' values is taken
  std::string state_of = {};  // of the optimizer's state: its parameter
  bool summed_once = false;   // of a parameter: SumOrder::once
  int line = 0;               // of the text
};

struct StrategyNode {
  std::string key;                                    // "h.0.mlp/matmul#1"
  std::vector<std::pair<std::string, Axes>> factors;  // those that are cut, and by which axes
  Axes through = {};                                  // axes of partial sums that flow through
  int linear_set = -1;
  std::string copied_factor = {};
  int64_t copies = 1;
  std::optional<VouchedLayouts> vouched = {};
  int line = 0;
};

struct StrategyLines {
  Mesh mesh;
  bool parameters_only = false;
  std::string graph, model;       // hashes of what it was written for; "": not told
  std::optional<bool> sums_each;  // SumOrder::each
  std::vector<StrategyTensor> inputs, outputs;
  std::vector<StrategyNode> nodes;
  ScopeStages stages;
  int last = 0;  // line of the text
};

class StrategyFile {
 public:
  StrategyFile() = default;  // none
  explicit StrategyFile(StrategyLines lines) : lines_(std::make_shared<const StrategyLines>(std::move(lines))) {}
  // Of "" none. Throws kInvalidArgument with the line's number for what is no strategy.
  template <Text T>
  StrategyFile(const T& written) : StrategyFile(read(written)) {}  // NOLINT: written as text

  bool empty() const { return lines_ == nullptr; }
  // Where there is one:
  const StrategyLines& lines() const { return *lines_; }
  const Mesh& mesh() const { return lines_->mesh; }
  bool has_parameters_only() const { return lines_->parameters_only; }

 private:
  static StrategyFile read(std::string_view text);

  std::shared_ptr<const StrategyLines> lines_;  // copied with all that asks for it
};

std::string to_string(const StrategyLines& lines);
std::string choice_text(const StrategyNode& node, const Mesh& mesh);  // "m=dp n=tp"; "" where nothing is cut

// What the file says of the graph that it was written for. Throws kInvalidArgument with the line's number where that is
// another one.
Strategy strategy_for(const StrategyFile& file, const Graph& graph);
// The layouts of the parameters that the graph updates, by name, as a file of parameters only has them.
std::map<std::string, Layout> parameter_layouts(const StrategyFile& file, const Graph& graph);

// The order of sums that it gives for a graph, by the names of its parameters. Throws kInvalidArgument with the line's
// number where a parameter of the graph is none that it updates.
SumOrder sum_order_for(const StrategyFile& file, const Graph& graph);

// The same of single lines.
Layout layout_for(const StrategyTensor& tensor, const TensorType& type, const Mesh& mesh, Parts parts);
FactorCuts cuts_for(const StrategyNode& line, const Graph& graph, const Node& node, const Mesh& mesh);

[[noreturn]] void wrong_strategy(int line, std::string_view what);

// Names of nodes that stay the same when other parts of the graph change: "<scope>/<op>", "#k" after it for the k-th
// from 0.
std::vector<std::string> node_keys(const Graph& graph);
std::map<std::string, NodeId, std::less<>> nodes_by_key(const Graph& graph);

// What the model computes and its gradients: the nodes that outputs depend on without depending on a gradient, and the
// gradients of these. Clipping and updates are not among them.
std::vector<char> nodes_of_model(const Graph& graph);

std::string hash_of_graph(const Graph& graph);
std::string hash_of_model(const Graph& graph);  // of batch, parameters and nodes_of_model, by names and types

}  // namespace trireme
