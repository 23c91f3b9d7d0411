// A strategy file of a model: all of it, or the layouts of its parameters only; as text, or as JSON, which becomes
// text.
#include "trireme/parallel/strategy/strategy.h"
#include "tests/fuzz/support.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/strategy/strategy_json.h"

using namespace trireme;

namespace {

constexpr const char* kMlp = R"(graph "mlp"
%0: f32[32,16] = data "image"
%1: f32[24,16] = parameter "up.weight" normal(0,0.02)
%2: f32[32,24] = matmul(%0, %1) {transpose_a=false, transpose_b=true} @"up"
%3: f32[32,24] = gelu(%2)
%4: f32[24] = reduce_sum(%3) {dims=[0], keep_dims=false}
%5: f32[24,16] = scale(%1) {value=0.5}
output "sum" %4
output "up.weight" %5 updates %1
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Graph graph = parse_graph(kMlp, find_op_base);
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::round_trip(
      text, [&](std::string_view of) { return parse_strategy(of, graph); },
      [&](const Strategy& strategy) { return to_string(graph, strategy); });
  std::string of_json;
  if (fuzz::accepts([&] { of_json = strategy_from_json(text, "strategy.json"); })) {
    fuzz::accepts([&] { parse_strategy(of_json, graph); });
    std::string again;
    if (fuzz::accepts([&] { again = strategy_to_json(of_json); })) {
      std::string text_again;
      fuzz::demand(fuzz::accepts([&] { text_again = strategy_from_json(again, "again"); }),
                   "the JSON that was made of a text is refused", again);
      fuzz::demand(strategy_to_json(text_again) == again, "JSON reads back as something else", again, text_again);
    }
  }
  fuzz::accepts([&] {
    const StrategyFile file = text;
    if (!file.empty() && file.has_parameters_only()) parameter_layouts(file, graph);
  });
  return 0;
}
