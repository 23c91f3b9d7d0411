// Batches of several named fields, and losses over them: the same step on one rank and on several, whatever the fields
// are and however each of them is cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/multi/contract_support.h"
#include "tests/multi/small_graphs.h"
#include "tests/worst.h"
#include "trireme/nn/layers.h"
#include "trireme/nn/models/wide_deep.h"
#include "trireme/train/step/assembly.h"

namespace trireme::fields_test {
namespace {

using namespace testing_support;
using testing::HasSubstr;

constexpr int64_t kRows = 8;
constexpr int64_t kIds = 7;

// Every input by name and element, so that each rank has its part of the same batch; ids are below kIds.
void fill_small(Executor& executor) {
  const ExecutionPlan& plan = executor.plan();
  for (const PlanInput& input : plan.inputs) {
    const View view = executor.input(input.name);
    const Box box = executor.input_box(input.name);
    const Shape& whole = plan.values[static_cast<size_t>(input.value)].whole;
    for (int64_t i = 0; i < view.elements(); ++i) {
      const auto at = static_cast<size_t>(i);
      const int64_t index = whole_index(whole, box, i);
      if (input.name == "lr") {
        view.as<float>()[at] = 0.5F;
      } else if (view.type.dtype == DType::kF32) {
        view.as<float>()[at] = 0.3F * element_of(input.name, index);
      } else if (view.type.dtype == DType::kI32) {
        view.as<int32_t>()[at] = static_cast<int32_t>((index * 5 + static_cast<int64_t>(input.name.size())) % kIds);
      } else {
        view.as<int64_t>()[at] = 1;
      }
    }
  }
}

// The largest difference of an output from one rank's: of the loss, and of the updated parameters that every rank has
// whole.
double difference_over(int ranks, const Graph& graph, const Parallel& parallel) {
  const OnRanks one = run_on_ranks(graph, 1, {}, fill_small);
  const OnRanks many = run_on_ranks(graph, ranks, parallel, fill_small);
  double worst = 0;
  for (const auto& [name, values] : one.outputs) {
    const std::vector<float>& found = many.outputs.at(name);
    if (name == "loss" || found.size() == values.size()) worst = worse(worst, worst_difference(found, values));
  }
  return worst;
}

// A model of whatever fields it is given: each goes to four numbers of a row, which are added; from their sum come
// logits and a number.
class AnyFields : public nn::Module {
 public:
  explicit AnyFields(std::vector<BatchField> inputs) : inputs_(std::move(inputs)) {
    for (const BatchField& field : inputs_) {
      const bool ids = field.type.dtype == DType::kI32;
      if (ids) {
        parts_.push_back(std::make_unique<nn::Embedding>(kIds, 4, nn::EmbeddingOptions{field.name, 1}));
      } else {
        const int64_t columns = field.type.elements() / kRows;
        parts_.push_back(std::make_unique<nn::Linear>(columns, 4, nn::LinearOptions{.name = field.name}));
      }
    }
  }
  nn::Fields forward_batch(const nn::Fields& batch) override {
    Tensor sum;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& x = batch[inputs_[i].name];
      const bool ids = x.dtype() == DType::kI32;
      Tensor part = (*parts_[i])(ids ? x : reshape(x, std::vector<int64_t>{kRows, -1}));
      if (part.rank() == 3) part = reduce_sum(part, {1});
      sum = sum ? add(sum, part) : part;
    }
    const Tensor h = tanh(sum);
    return {{"label", logits_(h)}, {"height", reshape(height_(h), std::vector<int64_t>{kRows})}};
  }

 private:
  std::vector<BatchField> inputs_;
  std::vector<std::unique_ptr<nn::Module>> parts_;
  nn::Linear logits_{4, kIds, {.name = "logits"}};
  nn::Linear height_{4, 1, {.name = "height"}};
};

Tensor two_targets(const nn::Fields& predicted, const nn::Fields& batch) {
  const Tensor classes = mean(cross_entropy(predicted["label"], batch["label"]));
  return add(classes, mean(square(sub(predicted["height"], batch["height"]))));
}

struct Drawn {
  std::vector<BatchField> inputs;
  std::vector<BatchField> batch;  // with the two targets
  std::vector<LayoutRule> rules;
};

Drawn draw_fields(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine); };
  Drawn out;
  const size_t count = 1 + below(4);
  for (size_t i = 0; i < count; ++i) {
    BatchField field{fmt::format("field{}", i), {below(2) == 0 ? DType::kF32 : DType::kI32, {kRows}}};
    const size_t dims = below(field.type.dtype == DType::kF32 ? 3 : 2);
    for (size_t dim = 0; dim < dims; ++dim) field.type.shape.push_back(static_cast<int64_t>(2 + 2 * below(3)));
    if (dims > 0 && below(3) == 0) out.rules.push_back({field.name, below(2) == 0 ? "[dp, sp]" : "[-, sp]"});
    if (dims == 0 && below(3) == 0) out.rules.push_back({field.name, below(2) == 0 ? "[dp*sp]" : "[-]"});
    out.inputs.push_back(field);
  }
  out.batch = out.inputs;
  out.batch.push_back({"height", {DType::kF32, {kRows}}});
  out.batch.push_back({"label", {DType::kI32, {kRows}}});
  return out;
}

std::string text_of(const Drawn& drawn) {
  std::string out;
  for (const BatchField& field : drawn.batch) out += fmt::format("{} {}, ", field.name, to_string(field.type));
  for (const LayoutRule& rule : drawn.rules) out += fmt::format("{} = {}; ", rule.pattern, to_string(rule.layout));
  return out;
}

TEST(Fields, drawn_sets_train_as_on_one_rank_by_the_batch_and_by_rules_of_their_own) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Drawn drawn = draw_fields(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, text_of(drawn)));
    AnyFields model(drawn.inputs);
    const Graph graph = training_step([&](const nn::Fields& batch) { return model(batch); }, two_targets, drawn.batch,
                                      Sgd{.momentum = 0});
    EXPECT_LE(difference_over(2, graph, {}), 1e-5);
    EXPECT_LE(difference_over(4, graph, {.mesh = "dp=2,sp=2", .fields = drawn.rules}), 1e-5);
  }
}

// BERT's pretraining in small: words that are hidden, and whether one sentence follows the other.
class Bert : public nn::Module {
 public:
  nn::Fields forward_batch(const nn::Fields& batch) override {
    const Tensor mask = batch["mask"];
    const Tensor words = words_(batch["tokens"]);
    const Tensor x = add(words, segments_(batch["segments"]));
    const Tensor h = tanh(mix_(mul(x, reshape(mask, std::vector<int64_t>{mask.size(0), mask.size(1), 1}))));
    return {{"words", head_(h)}, {"next", next_(reduce_sum(h, {1}))}};
  }

 private:
  nn::Embedding words_{kIds, 6, {"words", 1}};
  nn::Embedding segments_{kIds, 6, {"segments", 1}};
  nn::Linear mix_{6, 6, {.name = "mix"}};
  nn::Linear head_{6, kIds, {.name = "head"}};
  nn::Linear next_{6, kIds, {.name = "next"}};
};

Tensor bert_loss(const nn::Fields& predicted, const nn::Fields& batch) {
  const Tensor weights = square(batch["mask"]);
  const Tensor of_words = mul(cross_entropy(predicted["words"], batch["hidden_words"]), weights);
  return add(div(reduce_sum(of_words), reduce_sum(weights)), mean(cross_entropy(predicted["next"], batch["next"])));
}

std::vector<BatchField> bert_batch() {
  const TensorType words{DType::kI32, {kRows, 4}};
  return {{"tokens", words},
          {"segments", words},
          {"mask", {DType::kF32, {kRows, 4}}},
          {"hidden_words", words},
          {"next", {DType::kI32, {kRows}}}};
}

TEST(Fields, a_bert_with_two_targets_trains_as_on_one_rank) {
  Bert bert;
  const Graph graph =
      training_step([&](const nn::Fields& batch) { return bert(batch); }, bert_loss, bert_batch(), Sgd{.momentum = 0});
  EXPECT_LE(difference_over(2, graph, {}), 1e-5);
  EXPECT_LE(difference_over(4, graph, {.mesh = "dp=2,sp=2", .dataset = "[dp, sp]"}), 1e-5);  // `next` has no positions
  EXPECT_LE(
      difference_over(
          4, graph, {.mesh = "dp=2,sp=2", .fields = {{"tokens", "[dp, sp]"}, {"*s", "[dp, sp]"}, {"next", "[dp*sp]"}}}),
      1e-5);
}

TEST(Fields, a_rule_for_a_field_that_there_is_not_is_refused) {
  Bert bert;
  const Graph graph =
      training_step([&](const nn::Fields& batch) { return bert(batch); }, bert_loss, bert_batch(), Sgd{});
  EXPECT_THAT(error_of([&] {
                semi_auto(graph, 2, {.fields = {{"token", "[dp]"}}});
              }),
              HasSubstr("field rule 'token' matches no field of the batch. Did you mean 'tokens'?"));
  EXPECT_THAT(error_of([&] {
                semi_auto(graph, 3, {.fields = {{"tokens", "[dp]"}}});
              }),
              HasSubstr("data input 'tokens'"));
}

// What such an entry asks for would be done nowhere.
TEST(Fields, entries_for_dimensions_that_no_field_has_are_refused) {
  Bert bert;
  const Graph graph =
      training_step([&](const nn::Fields& batch) { return bert(batch); }, bert_loss, bert_batch(), Sgd{});
  const auto said = [&](const Parallel& parallel) { return error_of([&] { semi_auto(graph, 2, parallel); }); };
  EXPECT_THAT(said({.mesh = "a=2", .dataset = "full_batch", .fields = {{"next", "[-, a]"}}}),
              HasSubstr("field rule 'next' has entries for 2 dimensions, and no field that it is for has so many: "
                        "'next' is i32["));
  EXPECT_THAT(said({.mesh = "a=2", .dataset = "[-, -, a]"}),
              HasSubstr("dataset strategy '[-, -, a]' has entries for 3 dimensions"));
  EXPECT_THAT(said({.mesh = "a=2", .dataset = "[a] partial(sum: a)"}), HasSubstr("is no partial sum"));
  EXPECT_THAT(said({.mesh = "a=2", .dataset = "[b]"}), HasSubstr("no mesh axis named 'b'"));
  EXPECT_EQ(said({.mesh = "a=2", .dataset = "full_batch", .fields = {{"*", "[-, a]"}}}), "no error");
}

TEST(Fields, inference_reads_no_targets_and_accuracy_is_of_the_last_field) {
  Bert bert;
  Assembly assembly{.model = [&](const nn::Fields& batch) { return bert(batch); },
                    .loss = bert_loss,
                    .optimizer = Sgd{},
                    .batch = bert_batch(),
                    .options = {.step = {.accuracy = true}}};
  const Graph inference = inference_of(assembly, 1);
  std::vector<std::string> read;
  for (const Input& input : inference.inputs()) {
    if (input.role == Role::kData) read.push_back(input.name);
  }
  EXPECT_THAT(read, testing::ElementsAre("tokens", "segments", "mask"));
  EXPECT_EQ(to_string(inference.type(inference.output("next").value)), "f32[8,7]");
  const Graph evaluation = evaluation_of(assembly, 1);
  EXPECT_EQ(to_string(evaluation.type(evaluation.output("correct").value)), "f32[]");
}

TEST(Fields, functions_of_other_fields_than_there_are_are_refused) {
  Bert bert;
  nn::Linear linear(4, 3);
  const auto error = [](const ModelFn& model, const LossFn& loss) {
    return error_of([&] { training_step(model, loss, bert_batch(), Sgd{}); });
  };
  EXPECT_THAT(
      error([&](const Tensor& x) { return linear(x); }, bert_loss),
      HasSubstr("training_step: 5 batch fields; it takes the input and the target, as the model is a function of one"));
  EXPECT_THAT(
      error([&](const nn::Fields& batch) { return linear(batch); }, bert_loss),
      HasSubstr("module 'linear' is a function of one tensor, and the batch has 5 fields (tokens, segments, mask"));
  EXPECT_THAT(
      error([&](const nn::Fields& batch) { return bert(batch); },
            [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); }),
      HasSubstr("the loss is a function of one prediction and one target, and the model predicts 2 (words, next)"));
  EXPECT_THAT(error([&](const nn::Fields& batch) { return batch["token"]; }, bert_loss),
              HasSubstr("no field 'token'. Did you mean 'tokens'?"));
}

TEST(Fields, a_wide_deep_model_trains_as_on_one_rank) {
  nn::WideDeep model({.dense = 3, .ids = 2, .vocabulary = kIds, .width = 4, .hidden = {8, 6}, .classes = kIds});
  const std::vector<BatchField> batch{
      {"dense", {DType::kF32, {kRows, 3}}}, {"ids", {DType::kI32, {kRows, 2}}}, {"label", {DType::kI32, {kRows}}}};
  const Graph graph =
      training_step([&](const nn::Fields& fields) { return model(fields); },
                    [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); }, batch, Sgd{.momentum = 0});
  EXPECT_LE(difference_over(2, graph, {}), 1e-5);
  EXPECT_LE(difference_over(4, graph, {.mesh = "dp=2,tp=2", .fields = {{"ids", "[dp, tp]"}}}), 1e-5);
}

}  // namespace
}  // namespace trireme::fields_test
