// How one op is cut, by layouts or by numbers. The first character says which op.
#include "tests/fuzz/support.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/asked/asked.h"
#include "trireme/parallel/propagate/op_cuts.h"

using namespace trireme;

namespace {

constexpr const char* kOps = R"(graph "ops"
%0: f32[8,12,16] = data "x"
%1: f32[16,24] = parameter "w"
%2: f32[8,12,24] = matmul(%0, %1) @"up"
%3: f32[8,12,16] = gelu(%0)
%4: f32[8,2,6,16] = reshape(%0) {shape=[8,2,6,16]}
%5: f32[8,12] = reduce_sum(%0) {dims=[2], keep_dims=false}
output "y" %2
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Graph graph = parse_graph(kOps, find_op_base);
  static const Mesh mesh = parse_mesh("dp=2,tp=4,sp=3");
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  const Node& node = graph.nodes()[data[0] % graph.nodes().size()];
  fuzz::accepts([&] { op_cuts(text, graph, node, mesh, data[0] / 128 + 1); });
  fuzz::accepts([&] { parse_parts(text); });
  fuzz::accepts([&] { static_cast<void>(OpRequest(text)); });
  fuzz::accepts([&] { static_cast<void>(DatasetStrategy(text)); });
  return 0;
}
