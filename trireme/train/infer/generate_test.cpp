#include "trireme/train/infer/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/session/initialise.h"
#include "trireme/train/step/session/session.h"

namespace trireme::generate_test {
namespace {

using testing::HasSubstr;

JobConfig tiny(const std::string& kind = "gpt") {
  JobConfig config;
  set_keys(config, {"model.kind=" + kind, "model.layers=1", "model.width=8", "model.heads=2", "data.seq=6"});
  return config;
}

// The parameters of the model as it starts.
class Parameters {
 public:
  explicit Parameters(const JobConfig& config) {
    const auto model = make_model(config);
    const Graph graph = inference([&](const Tensor& x) { return (*model)(x); }, {{"tokens", {DType::kI32, {1, 6}}}});
    for (const Input& input : graph.inputs()) {
      if (input.role != Role::kParameter) continue;
      HostTensor tensor(graph.type(input.value));
      initialise(tensor.view(), Box::whole(tensor.shape()), tensor.shape(), input.init, 7, input.name);
      tensors_.emplace(input.name, std::move(tensor));
    }
  }
  std::function<View(std::string_view)> by_name() const {
    return [this](std::string_view name) { return tensors_.at(std::string(name)).view(); };
  }

 private:
  std::map<std::string, HostTensor> tensors_;
};

std::string error_of(const JobConfig& config, const GenerateOptions& options) {
  try {
    generate(config, {}, nullptr, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Generate, gives_the_prompt_and_as_many_bytes_as_asked_for_each_as_it_is_made) {
  const Parameters parameters(tiny());
  std::string told;
  const std::string text =
      generate(tiny(), parameters.by_name(), nullptr, {.prompt = "abc", .tokens = 9}, [&](char c) { told += c; });
  EXPECT_EQ(text.size(), 12U);
  EXPECT_EQ(text, "abc" + told);
}

TEST(Generate, says_the_same_for_the_same_seed_and_something_else_for_another) {
  const Parameters parameters(tiny());
  const auto say = [&](uint64_t seed, double temperature) {
    return generate(tiny(), parameters.by_name(), nullptr, {.tokens = 16, .temperature = temperature, .seed = seed});
  };
  EXPECT_EQ(say(1, 0.8), say(1, 0.8));
  EXPECT_NE(say(1, 0.8), say(2, 0.8));
  EXPECT_EQ(say(1, 0), say(2, 0)) << "the likeliest byte is no matter of chance";
}

TEST(Generate, ends_when_its_time_is_over_but_writes_one_byte) {
  const Parameters parameters(tiny());
  const auto size = [&](double most_seconds) {
    return generate(tiny(), parameters.by_name(), nullptr, {.prompt = "abc", .tokens = 9, .most_seconds = most_seconds})
        .size();
  };
  EXPECT_EQ(size(1e-300), 4U);
  EXPECT_EQ(size(1e300), 12U);
}

TEST(Generate, refuses_to_write_by_predictions_that_are_no_numbers) {
  const Parameters parameters(tiny());
  HostTensor broken(parameters.by_name()("wte.weight").type);
  for (float& x : broken.as<float>()) x = NAN;
  const auto by_name = [&](std::string_view name) {
    return name == "wte.weight" ? broken.view() : parameters.by_name()(name);
  };
  try {
    generate(tiny(), by_name, nullptr, {.prompt = "abc", .tokens = 1});
    ADD_FAILURE() << "it wrote";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("generate: what the model predicts is no number; its parameters have run away"));
  }
}

TEST(Generate, a_llama_writes_too) {
  JobConfig config = tiny("llama");
  set_keys(config, {"model.kv_heads=1"});
  const Parameters parameters(config);
  const std::string text = generate(config, parameters.by_name(), nullptr, {.prompt = "abc", .tokens = 9});
  EXPECT_EQ(text.size(), 12U);
}

TEST(Generate, what_cannot_be_is_refused) {
  JobConfig images;
  set_keys(images, {"model.kind=mlp"});
  EXPECT_THAT(
      error_of(images, {}),
      HasSubstr("generate: the model is 'mlp' with classes instead of tokens; it must be a language model over"));
  JobConfig words = tiny();
  set_keys(words, {"model.vocabulary=300"});
  EXPECT_THAT(error_of(words, {}), HasSubstr("generate: the model is 'gpt' with a vocabulary of 300; it must be"));
  EXPECT_THAT(error_of(tiny(), {.prompt = ""}), HasSubstr("the prompt is empty; give it one character at least"));
  EXPECT_THAT(error_of(tiny(), {.tokens = -1}), HasSubstr("generate: -1 tokens; it must be 0 or more"));
  EXPECT_THAT(error_of(tiny(), {.temperature = -1}), HasSubstr("generate: temperature -1; it must be 0 or more"));
}

}  // namespace
}  // namespace trireme::generate_test
