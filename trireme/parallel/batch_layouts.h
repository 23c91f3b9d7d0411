// BatchLayouts: how the fields of a batch are cut, from a dataset strategy and the rules for fields.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/parallel/parallel.h"

namespace trireme {

class BatchLayouts {
 public:
  // By the axes of the ranks' mesh. All outlive it.
  BatchLayouts(const Graph& graph, const Parallel& parallel, const Mesh& mesh)
      : graph_(graph), parallel_(parallel), mesh_(mesh) {}

  // Of a data input, the `index`-th. Throws kInvalidArgument where what is said does not fit it.
  Layout of(const Input& input, size_t index) const;
  std::string why(const Input& input) const;  // who said so
  bool is_asked(const Input& input) const;    // whether somebody did, and it is not how a batch usually is
  // Throws kInvalidArgument for a rule that matches no field of the graph, or says more than these fields have
  // dimensions.
  void check_rules() const;

 private:
  const LayoutRule* rule_of(std::string_view name) const;  // null: the dataset strategy says it
  void check_entries(const NamedLayout& layout, std::string_view pattern, const std::string& who) const;
  void cut_leading(Layout& layout, const NamedLayout& how, const std::string& who) const;
  void cut_batch(const Input& input, Layout& layout) const;
  const PartsOfDims& numbers_for(const std::vector<PartsOfDims>& all, const Input& input, size_t index) const;
  bool has_data_axis() const;
  void require_data_axis() const;

  const Graph& graph_;
  const Parallel& parallel_;
  const Mesh& mesh_;
};

}  // namespace trireme
