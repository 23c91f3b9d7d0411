// The lines of a strategy's text, before they are matched with a graph.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/plan/strategy.h"

namespace trireme {

struct StrategyLine {
  std::string name;  // of the input or output; of the node's key, "h.0.mlp/matmul#1"
  std::string rest;
  int line = 0;
};

struct StrategyLines {
  Mesh mesh;
  bool parameters_only = false;
  std::string graph, model;  // hashes of what it was written for; "": not told
  std::vector<StrategyLine> inputs, nodes, outputs;
  ScopeStages stages;
  int last = 0;
};

// Throws kInvalidArgument with the line's number, as do the others.
StrategyLines read_strategy_lines(std::string_view text);
Layout read_layout(const StrategyLine& line, const TensorType& type, const Mesh& mesh, Parts parts);
// "type layout" of a line: the type's text.
std::string_view type_text(const StrategyLine& line);
std::string_view layout_text(const StrategyLine& line);
FactorCuts read_cuts(const StrategyLine& line, const Graph& graph, const Node& node, const Mesh& mesh);
// The axes of an output's mean=, or none.
std::vector<int> read_mean(const StrategyLine& line, const Layout& layout, const Mesh& mesh);

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
