// The text of a graph, with every op and its attributes, and the checks of one that was read.
#include "trireme/ir/graph.h"
#include "tests/fuzz/support.h"
#include "trireme/op/build.h"
#include "trireme/op/registry.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(
      fuzz::text_of(data, size), [](std::string_view text) { return parse_graph(text, find_op_base); },
      [](const Graph& graph) {
        verify(graph);
        return to_string(graph);
      });
  return 0;
}
