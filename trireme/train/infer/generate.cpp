#include "trireme/train/infer/generate.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/train/infer/next_token.h"
#include "trireme/train/job/kinds.h"

namespace trireme {
namespace {

// Draws an index with probability softmax(logits / temperature).
int32_t draw(std::span<const float> logits, double temperature, float uniform) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (temperature == 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weight(logits.size());
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(logits[i]) - static_cast<double>(*best)) / temperature);
    sum += weight[i];
  }
  double left = static_cast<double>(uniform) * sum;
  for (size_t i = 0; i < weight.size(); ++i) {
    left -= weight[i];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best - logits.begin());
}

void check_writing(const JobConfig& config, const GenerateOptions& options) {
  const nn::ModelSpec& spec = model_of(config);
  const auto vocabulary = static_cast<size_t>(spec.needs()[0].below);
  require(writes_text(config),
          "generate: the model is '{}' with {}; it must be a language model over bytes (vocabulary {})",
          config.model.kind,
          spec.task() == nn::Task::kTokens         ? fmt::format("a vocabulary of {}", vocabulary)
          : spec.task() == nn::Task::kHiddenTokens ? "hidden tokens instead of the next one"
                                                   : "classes instead of tokens",
          +data::kByteVocabulary);
  require(!options.prompt.empty(), "generate: the prompt is empty; give it one character at least");
  require(options.tokens >= 0, "generate: {} tokens; it must be 0 or more", options.tokens);
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "generate: temperature {}; it must be 0 or more, and finite", options.temperature);
}

std::string written_by(NextTokens& model, const GenerateOptions& options, const std::function<void(char)>& each) {
  std::vector<int32_t> tokens = data::encode(options.prompt);
  const double begin_s = now_s();
  for (int64_t i = 0; i < options.tokens; ++i) {
    if (i > 0 && options.most_seconds > 0 && now_s() - begin_s > options.most_seconds) break;
    const std::span<const float> logits = model.logits(tokens);
    require(
        std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }),
        "generate: what the model predicts is no number; its parameters have run away. Take an older checkpoint, or "
        "train with a lower learning rate");
    tokens.push_back(draw(logits, options.temperature, uniform01({options.seed, 0}, static_cast<uint64_t>(i), 0)));
    if (each) each(static_cast<char>(tokens.back()));
  }
  return data::decode(tokens);
}

}  // namespace

std::string generate(const JobConfig& config, const std::function<View(std::string_view)>& parameter, ThreadPool* pool,
                     const GenerateOptions& options, const std::function<void(char)>& each) {
  check_writing(config, options);
  require(options.compute == DType::kF32, "generate: parameters that are elsewhere are f32; compute in f32, not {}",
          to_string(options.compute));
  NextTokens model(config, parameter, pool);
  return written_by(model, options, each);
}

std::string generate(const JobConfig& config, const ckpt::Reader& checkpoint, comm::World* world, ThreadPool* pool,
                     const GenerateOptions& options, const std::function<void(char)>& each) {
  check_writing(config, options);
  require(options.most_seconds == 0, "generate: most_seconds = {} on several ranks, whose clocks differ; use 0",
          options.most_seconds);
  const int64_t most_tokens = std::ssize(options.prompt) + std::max<int64_t>(options.tokens, 1) - 1;
  NextTokens model(config, checkpoint, world, pool, most_tokens, options.compute);
  return written_by(model, options, each);
}

}  // namespace trireme
