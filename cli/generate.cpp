// trireme generate: text from a trained checkpoint.
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/infer/generate.h"
#include "trireme/train/job/job.h"

namespace trireme::cli {
namespace {

struct GenerateArgs {
  std::string checkpoint;
  GenerateOptions options;
  int threads = 0;
  bool seed_given = false;
};

int run(const GenerateArgs& args) {
  if (args.seed_given && args.options.temperature == 0)
    TRIREME_LOG(kWarn, "cli", "--seed changes nothing with --temperature 0, which always takes the likeliest token");
  const ckpt::Reader reader(ckpt::checkpoints_of(args.checkpoint));
  const auto meta = reader.meta().find("config");
  require(meta != reader.meta().end(), "generate: '{}' was not written by `trireme train`: it has no configuration",
          reader.path());
  JobConfig config = parse_config(meta->second, reader.path() + " (configuration)");
  config.train.device = JobConfig{}.train.device;  // wherever the run that trained it ran
  const Job job({.threads = args.threads});
  std::map<std::string, HostTensor, std::less<>> parameters;
  const auto parameter = [&](std::string_view name) {
    auto found = parameters.find(name);
    if (found == parameters.end()) {
      found = parameters.emplace(std::string(name), reader.read(std::string(name))).first;
    }
    return found->second.view();
  };
  bool begun = false;  // the prompt is shown only once nothing is wrong with what was asked
  const auto begin = [&] {
    if (!begun) std::fputs(args.options.prompt.c_str(), stdout);
    begun = true;
  };
  generate(config, parameter, &job.pool(), args.options, [&](char c) {
    begin();
    const bool arrived = std::fputc(c, stdout) != EOF && std::fflush(stdout) == 0;
    if (!arrived) fail(ErrorKind::kIo, "generate: cannot write to the standard output ({})", std::strerror(errno));
  });
  begin();
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<GenerateArgs>();
  CLI::App* command = app.add_subcommand("generate", "Generate text with a trained language model");
  command
      ->add_option("checkpoint", args->checkpoint, "A checkpoint's folder, a run's folder, or that of its checkpoints")
      ->required();
  command->add_option("--prompt", args->options.prompt, "Text to continue")->required();
  command->add_option("--tokens", args->options.tokens, "How many to write")->capture_default_str();
  command->add_option("--temperature", args->options.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--seed", args->options.seed, "The same seed writes the same text")->capture_default_str();
  command->add_option("--threads", args->threads, "Compute threads; 0: all cores")->check(CLI::Range(0, 1024));
  command->footer("Example:\n  trireme generate runs/latest/checkpoints --prompt \"The \" --tokens 200");
  command->callback([=, &chosen] {
    args->seed_given = command->count("--seed") > 0;
    chosen = [=] { return run(*args); };
  });
}

}  // namespace trireme::cli
