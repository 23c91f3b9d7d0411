// trireme bench decode: how quickly a language model writes, and what of the machine's memory it uses for it.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/model_flags.h"
#include "trireme/backend/device.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/json_text.h"
#include "trireme/tensor/convert.h"
#include "trireme/train/infer/next_token.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/graphs/compute_type.h"
#include "trireme/train/step/session/initialise.h"

namespace trireme::cli {
namespace {

struct DecodeArgs {
  ModelFlags model;
  int threads = 1;
  int64_t before = -1, tokens = 32;
  std::string dtype = "f32";
  bool json = false;
};

using Parameters = std::map<std::string, HostTensor, std::less<>>;

// As the model starts.
Parameters starting_values(const JobConfig& config) {
  const auto model = make_model(config);
  Assembly assembly = assembly_of(config, *model, 1);
  assembly.batch = batch_of(config, 1);
  const Graph graph = inference_of(assembly, 1);
  Parameters out;
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kParameter) continue;
    const TensorType& type = graph.type(input.value);
    const HostTensor values({DType::kF32, type.shape});
    initialise(values.view(), Box::whole(type.shape), type.shape, input.init, 0, input.name);
    convert(values.view(), out.emplace(input.name, HostTensor(type)).first->second.view());
  }
  return out;
}

int decode(const DecodeArgs& args) {
  const DType compute = parse_compute_type(args.dtype, "bench decode: --dtype");
  const JobConfig config = config_of(args.model, 1, "bench decode");
  const nn::ModelSpec& spec = model_of(config);
  require(spec.can_decode(),
          "bench decode: {} is not decoded token by token; models with causal attention and without experts are",
          spec.describe());
  const Job job({.threads = args.threads});
  const Parameters parameters = starting_values(predicting_in(compute, config));
  NextTokens model(
      config, [&](std::string_view name) { return parameters.find(name)->second.view(); }, &job.pool(), compute);
  const int64_t before = args.before >= 0 ? args.before : std::max<int64_t>(0, model.context() - args.tokens);
  require(before + args.tokens <= model.context(),
          "bench decode: --before {} --tokens {}; the model takes {} tokens (--seq)", before, args.tokens,
          model.context());
  std::vector<int32_t> tokens(static_cast<size_t>(before) + 1, 1);
  double prompt_s = 0;
  if (before > 0) {
    const auto prompt = std::span(tokens).first(static_cast<size_t>(before));
    std::ranges::fill(tokens, 2);
    model.logits(prompt);  // which compiles
    std::ranges::fill(tokens, 1);
    const double begin = now_s();
    model.logits(prompt);
    prompt_s = now_s() - begin;
  }
  std::vector<double> ms;
  for (int64_t i = 0; i < args.tokens; ++i, tokens.push_back(1)) {
    const double begin = now_s();
    model.logits(tokens);
    ms.push_back((now_s() - begin) * 1e3);
  }
  std::ranges::sort(ms);
  const double bytes = model.bytes_read(before + args.tokens / 2);
  const double triad = cpu_device().measure_peak(job.pool(), {}).value().triad_bytes_per_s;
  const double median = ms[ms.size() / 2];
  const JsonObject line{{"model", args.model.model},
                        {"dtype", args.dtype},
                        {"threads", job.pool().size()},
                        {"before", before},
                        {"prompt_per_s", prompt_s > 0 ? static_cast<double>(before) / prompt_s : 0},
                        {"tokens", args.tokens},
                        {"ms", median},
                        {"min_ms", ms.front()},
                        {"per_s", 1e3 / median},
                        {"bytes", static_cast<int64_t>(bytes)},
                        {"gb_per_s", bytes / median / 1e6},
                        {"triad_gb_per_s", triad / 1e9},
                        {"of_triad_percent", 100 * bytes / median * 1e3 / triad}};
  if (args.json) {
    std::printf("%s\n", line.text().c_str());
  } else {
    for (const auto& [key, value] : line.members()) std::printf("%-16s %s\n", key.c_str(), value.text().c_str());
  }
  return 0;
}

}  // namespace

void add_bench_decode(CLI::App& bench, Action& chosen) {
  auto args = std::make_shared<DecodeArgs>();
  CLI::App* command = bench.add_subcommand(
      "decode", "Time a token that a language model writes, with the keys and values that it keeps of earlier tokens");
  add_shape_flags(*command, args->model);
  command->add_option("--threads", args->threads, "Compute threads")->capture_default_str();
  command->add_option("--before", args->before, "Tokens before the first one that is timed; by default as many as fit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command->add_option("--tokens", args->tokens, "To time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  command->add_option("--dtype", args->dtype, "What layers compute in and read their parameters in")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command->add_flag("--json", args->json, "One line of JSON");
  command->footer(
      "prompt_per_s: tokens before the first one that is timed, which are read in blocks; 0 where there are none.\n"
      "bytes: what a token reads and writes, nearly all of it parameters and what is kept of the tokens before.\n"
      "of_triad_percent: by STREAM triad of as many threads, measured in the same run.");
  command->callback([=, &chosen] { chosen = [=] { return decode(*args); }; });
}

}  // namespace trireme::cli
