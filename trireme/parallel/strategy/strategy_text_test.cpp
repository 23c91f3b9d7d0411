#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/strategy/strategy_json.h"
#include "trireme/parallel/strategy_reuse.h"

namespace trireme::strategy_text_test {
namespace {

using testing::HasSubstr;

Graph two_products() {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 4}}, Role::kData));
  const Tensor up(graph, graph.add_input("up", {DType::kF32, {4, 16}}, Role::kParameter));
  const Tensor down(graph, graph.add_input("down", {DType::kF32, {16, 4}}, Role::kParameter));
  graph.set_scope("mlp");
  graph.add_output("y", scale(matmul(gelu(matmul(x, up)), down), 2).id());
  return graph;
}

Strategy megatron(const Graph& graph) {
  const Mesh mesh({{"dp", 2}, {"tp", 4}});
  return propagate(graph, mesh,
                   {parse_layout("[dp, -]", mesh), parse_layout("[-, tp]", mesh), parse_layout("[tp, -]", mesh)});
}

constexpr const char* kText =
    "strategy mesh=\"dp=2,tp=4\"\n"
    "input \"x\" f32[8,4] [dp, -]\n"
    "input \"up\" f32[4,16] [-, tp]\n"
    "input \"down\" f32[16,4] [tp, -]\n"
    "node \"mlp/matmul\" m=dp n=tp\n"
    "node \"mlp/gelu\" *0=dp *1=tp\n"
    "node \"mlp/matmul#1\" m=dp k=tp\n"
    "node \"mlp/scale\" *0=dp through=tp set=0\n"
    "output \"y\" f32[8,4] [-, -]\n";

std::string error_of(std::string text, const std::string& from, const std::string& to) {
  const Graph graph = two_products();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  try {
    parse_strategy(text, graph);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
    return e.what();
  }
  return "";
}

TEST(StrategyText, names_what_is_cut) {
  const Graph graph = two_products();
  EXPECT_EQ(to_string(graph, megatron(graph)), kText);
}

TEST(StrategyText, reads_back_identical) {
  const Graph graph = two_products();
  const Strategy read = parse_strategy(kText, graph);
  EXPECT_EQ(to_string(graph, read), kText);
  EXPECT_EQ(read.mesh, megatron(graph).mesh);
  EXPECT_EQ(value_layouts(graph, read), value_layouts(graph, megatron(graph)));
}

TEST(StrategyText, mistakes_are_refused_with_their_line) {
  const std::string text = kText;
  EXPECT_THAT(error_of(text, "mesh=\"dp=2,tp=4\"", "dp=2"), HasSubstr("strategy text, line 1: expected mesh="));
  EXPECT_THAT(error_of(text, "dp=2,tp=4", "dp=two"), HasSubstr("strategy text, line 1: "));
  EXPECT_THAT(error_of(text, "\"up\" f32", "\"dn\" f32"),
              HasSubstr("strategy text, line 3: expected \"up\", found \"dn\""));
  EXPECT_THAT(error_of(text, "[-, tp]", "[-, pt]"), HasSubstr("strategy text, line 3: "));
  EXPECT_THAT(error_of(text, "[-, tp]", "[tp]"), HasSubstr("strategy text, line 3: "));
  EXPECT_THAT(error_of(text, "\"up\" f32[4,16]", "\"up\" f32[4,8]"),
              HasSubstr("strategy text, line 3: \"up\" is f32[4,16] in the model, and f32[4,8] here"));
  EXPECT_THAT(error_of(text, "matmul#1", "matmul#2"),
              HasSubstr("strategy text, line 7: the model has no node \"mlp/matmul#2\""));
  EXPECT_THAT(error_of(text, "matmul#1", "matmul"),
              HasSubstr("strategy text, line 7: node \"mlp/matmul\" is given twice"));
  EXPECT_THAT(error_of(text, "\"mlp/matmul#1\"", "2 matmul"),
              HasSubstr("line 7: expected node \"name\", found '2'; a file of an earlier version, which numbered "
                        "nodes, must be saved again"));
  EXPECT_THAT(error_of(text, "k=tp", "q=tp"), HasSubstr("line 7: matmul has no factor 'q'; its rule is "));
  EXPECT_THAT(error_of(text, "k=tp", "k"), HasSubstr("line 7: expected factor=axes, found 'k'"));
  EXPECT_THAT(error_of(text, "k=tp", "k=dp"), HasSubstr("line 7: matmul: axis 'dp' is used twice"));
  EXPECT_THAT(error_of(text, "k=tp", "k=xp"), HasSubstr("strategy text, line 7: no mesh axis named 'xp'"));
  EXPECT_THAT(error_of(text, "set=0", "set=4"), HasSubstr("line 8: '4' is none of the op's 1 linear sets"));
  EXPECT_THAT(error_of(text, "output", "outptu"), HasSubstr("line 9: unexpected 'outptu'"));
  EXPECT_THAT(error_of(text, "output", "strategy mesh=\"dp=2\"\noutput"), HasSubstr("line 9: the mesh is given twice"));
  EXPECT_THAT(error_of(text, "output \"y\" f32[8,4] [-, -]\n", ""),
              HasSubstr("3 inputs and 0 outputs are given; the graph has 3 and 1"));
  EXPECT_THAT(error_of(text, "tp=4\"", "tp=4\" sums=twice"), HasSubstr("line 1: unexpected 'sums=twice'"));
  EXPECT_THAT(error_of(text, "[-, -]\n", "[-, -] sums=once\n"), HasSubstr("unexpected 'sums=once' of an output"));
}

// Random numbers of a place in the whole are of another place in a copy.
TEST(StrategyText, copies_of_an_op_that_reads_its_place_are_refused) {
  Graph graph;
  const Tensor x(graph, graph.add_input("x", {DType::kF32, {8, 4}}, Role::kData));
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  graph.add_output("y", dropout(gelu(x), step, 0.5, 1, 2).id());
  const auto text = [](const char* gelu, const char* dropout) {
    return fmt::format(
        "strategy mesh=\"dp=2\"\ninput \"x\" f32[8,4] [dp, -]\ninput \"step\" i64[] []\n"
        "node \"/gelu\" *0=dp{}\nnode \"/dropout\" *0=dp{}\noutput \"y\" f32[8,4] [-, -]\n",
        gelu, dropout);
  };
  EXPECT_EQ(parse_strategy(text(" copies=*0*2", ""), graph).nodes[0].copies, 2);
  try {
    parse_strategy(text("", " copies=*0*2"), graph);
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& e) {
    EXPECT_THAT(e.text(),
                HasSubstr("dropout: the op's result depends on where its piece lies, so it cannot be computed "
                          "in copies"));
  }
}

TEST(StrategyText, says_whose_state_an_input_is) {
  Graph graph = two_products();
  const ValueId up = graph.input("up").value;
  const ValueId state = graph.add_input("momenta", graph.type(up), Role::kState);  // whatever its name
  graph.add_output("up", scale(Tensor(graph, up), 0.5).id(), up);
  graph.add_update({.parameter = up, .gradient = scale(Tensor(graph, up), 2).id(), .states = {state}});
  const std::string text = to_string(graph, propagate(graph, parse_mesh("dp=2"), std::vector<Layout>{}));
  EXPECT_THAT(text, HasSubstr("input \"momenta\" f32[4,16] [-, -] state_of=\"up\"\n"));
  const StrategyFile file = text;
  EXPECT_EQ(to_string(file.lines()), text);
  EXPECT_EQ(strategy_from_json(strategy_to_json(file), "s.json"), text);
  EXPECT_TRUE(lays_out_state(file));
  EXPECT_NO_THROW(check_states(file, graph));
  EXPECT_THAT(error_of(text, "=\"up\"", "=up"), HasSubstr("line 5: expected state_of=\"parameter\", found 'up'"));
  EXPECT_THAT(error_of(text, "\noutput \"y\" f32[8,4] [-, -]", "\noutput \"y\" f32[8,4] [-, -] state_of=\"up\""),
              HasSubstr("unexpected 'state_of' of an output"));
}

TEST(StrategyText, what_is_updated_lies_as_it_was_read) {
  Graph graph = two_products();
  const ValueId up = graph.input("up").value;
  graph.add_output("up", scale(Tensor(graph, up), 0.5).id(), up);
  const std::string text = to_string(graph, propagate(graph, parse_mesh("dp=2"), std::vector<Layout>{}));
  EXPECT_NO_THROW(parse_strategy(text, graph));
  const auto changed = [&](const std::string& line) {
    const std::string cut = line + " f32[4,16] [dp, -]", whole = line + " f32[4,16] [-, -]";
    std::string out = text;
    EXPECT_THAT(out, HasSubstr(whole));
    out.replace(out.find(whole), whole.size(), cut);
    return out;
  };
  const auto refused = [&](const std::string& wrong, const std::string& what) {
    EXPECT_THAT([&] { parse_strategy(wrong, graph); }, testing::ThrowsMessage<Error>(HasSubstr(what)));
  };
  refused(changed("output \"up\""),
          "\"up\" lies as [dp, -], and the input \"up\" that it updates as [-, -]; give both one layout");
  refused(changed("input \"up\""), "\"up\" lies as [-, -], and the input \"up\" that it updates as [dp, -]; give both");
}

TEST(StrategyText, says_which_sums_come_first_where_there_are_micro_batches) {
  Graph graph = two_products();
  const ValueId up = graph.input("up").value;
  graph.add_output("up", scale(Tensor(graph, up), 0.5).id(), up);
  graph.add_update({.parameter = up, .gradient = scale(Tensor(graph, up), 2).id()});
  const auto text = [&](const char* mesh, int64_t level) {
    const Parallel parallel{
        .mesh = mesh, .optimizer = {.level = level, .threshold_kb = 0}, .communication = {.shard_accumulation = true}};
    Strategy strategy = propagate(graph, parallel.mesh.whole(), std::vector<Layout>{});
    strategy.sums = sum_order(graph, parallel, strategy.mesh);
    return to_string(graph, strategy);
  };
  EXPECT_THAT(text("dp=2", 1), testing::Not(HasSubstr("sums=")));
  EXPECT_THAT(text("dp=2,micro_batch=4", 2), HasSubstr("strategy mesh=\"dp=2,micro_batch=4\" sums=each\ninput"));
  const std::string once = text("dp=2,micro_batch=4", 1);
  EXPECT_THAT(once, HasSubstr("input \"up\" f32[4,16] [-, -] sums=once\ninput \"down\" f32[16,4] [-, -]\n"));
  const Strategy read = parse_strategy(once, graph);
  EXPECT_EQ(to_string(graph, read), once);
  EXPECT_EQ(summed_once(graph, read.sums), (std::set<ValueId>{graph.updates()[0].gradient}));
  std::string wrong = once;
  const std::string_view of_down = "f32[16,4] [-, -]";
  wrong.insert(wrong.find(of_down) + of_down.size(), " sums=once");
  EXPECT_THAT([&] { parse_strategy(wrong, graph); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("line 4: 'down' is no parameter that is trained; sums=once is for those")));
}

}  // namespace
}  // namespace trireme::strategy_text_test
