#include "trireme/op/call_kinds.h"

#include <gtest/gtest.h>

#include "trireme/op/registry.h"
#include "trireme/op/structural.h"

namespace trireme::call_kinds_test {
namespace {

const TensorType kSmall{DType::kF32, {4}};
const TensorType kLarge{DType::kF32, {8}};

NodeId add_call(Graph& graph, const OpDef& op, const Attrs& attrs, std::vector<ValueId> in, const TensorType& out) {
  return graph.add_node(op, attrs, in, {&out, 1});
}

TEST(CallKinds, CallsOfOneOpWithEqualAttributesAndTypesAreOfOneKind) {
  Graph graph;
  const ValueId a = graph.add_input("a", kSmall, Role::kData);
  const ValueId b = graph.add_input("b", kLarge, Role::kData);
  const auto full = [](const TensorType& type, double value) {
    return Attrs::of(FullAttrs{type.dtype, type.shape, value});
  };
  const std::vector<NodeId> nodes{
      add_call(graph, op("add"), {}, {a, a}, kSmall),
      add_call(graph, op("add"), {}, {b, b}, kLarge),  // other types
      add_call(graph, op("mul"), {}, {a, a}, kSmall),  // another op
      add_call(graph, structural().full, full(kSmall, 1), {}, kSmall),
      add_call(graph, structural().full, full(kSmall, 2), {}, kSmall),   // other attributes
      add_call(graph, op("add"), {}, {a, a}, kSmall),                    // as the first
      add_call(graph, structural().full, full(kSmall, 2), {}, kSmall)};  // equal attributes, made anew
  CallKinds kinds;
  std::vector<int> found;
  for (const NodeId id : nodes) found.push_back(kinds.of(graph, graph.node(id)));
  EXPECT_EQ(found, (std::vector<int>{0, 1, 2, 3, 4, 0, 4}));
  ASSERT_EQ(kinds.size(), 5U);
  EXPECT_EQ(kinds[1].op, &op("add"));
  EXPECT_EQ(std::vector(kinds[1].in().begin(), kinds[1].in().end()), (std::vector<TensorType>{kLarge, kLarge}));
  EXPECT_EQ(kinds[1].types().out.size(), 1U);
}

TEST(CallKinds, OperandsAndResultsOfOneTypeAreNotTakenForEachOther) {
  CallKinds kinds;
  const auto type_of = [](ValueId) -> const TensorType& { return kSmall; };
  const std::vector<ValueId> none, one{0}, two{0, 1};
  EXPECT_EQ(kinds.of(op("add"), {}, two, one, type_of), 0);
  EXPECT_EQ(kinds.of(op("add"), {}, one, two, type_of), 1);
  EXPECT_EQ(kinds.of(op("add"), {}, none, two, type_of), 2);
}

TEST(CallKinds, WhatFollowsFromAKindIsFoundOnce) {
  OfKind<int> squares;
  int calls = 0;
  const auto square = [&](int kind) {
    return squares.get(kind, [&] {
      ++calls;
      return kind * kind;
    });
  };
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(square(2), 4);
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace trireme::call_kinds_test
