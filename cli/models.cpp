// trireme models: published models by name, with their parameters and arithmetic; or the job's file of one.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/error.h"
#include "trireme/train/job/published_models.h"

namespace trireme::cli {
namespace {

// "6,738,415,616".
std::string grouped(int64_t number) {
  std::string out = std::to_string(number);
  for (int64_t at = std::ssize(out) - 3; at > 0; at -= 3) out.insert(static_cast<size_t>(at), ",");
  return out;
}

// "0.25 GFLOP".
std::string arithmetic_text(double flops) {
  const char* const units[] = {"MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  double number = flops / 1e6;
  size_t unit = 0;
  for (; number >= 1000 && unit + 1 < std::size(units); ++unit) number /= 1000;
  return fmt::format("{:.3g} {}", number, units[unit]);
}

JobConfig config_of(std::string_view name) {
  JobConfig config;
  set_published_model(config, name);
  return config;
}

void list() {
  std::printf("%-15s %-7s %19s %19s  %s\n", "model", "kind", "parameters", "published", "one forward pass");
  for (const PublishedModel& model : published_models()) {
    const JobConfig config = config_of(model.name);
    const ModelCounts counts = count(config);
    const bool is_tokens = counts.positions > 1;
    const std::string published = model.is_rounded ? fmt::format("about {}", grouped(model.published))
                                  : model.published == counts.parameters ? "the same"
                                                                         : grouped(model.published);
    std::printf("%-15s %-7s %19s %19s  %s %s\n", std::string(model.name).c_str(), config.model.kind.c_str(),
                grouped(counts.parameters).c_str(), published.c_str(),
                arithmetic_text(counts.forward_flops / static_cast<double>(counts.positions)).c_str(),
                is_tokens ? fmt::format("a token, at {} tokens", counts.positions).c_str() : "an image");
  }
  std::printf(
      "\nParameters and arithmetic are counted in the model's graph. `trireme models NAME` prints a job's file that "
      "trains it on made-up data; `trireme bench step --model NAME` times a step.\n");
}

int show(const std::string& name) {
  if (name.empty()) {
    list();
    return 0;
  }
  JobConfig config = config_of(name);
  config.train.fit.steps = 100;
  const PublishedModel& model = *find_published_model(name);
  std::printf("# %s: %s parameters (%s).\n%s", name.c_str(), grouped(count(config).parameters).c_str(),
              std::string(model.source).c_str(), to_toml(config).c_str());
  return 0;
}

}  // namespace

void add_models(CLI::App& app, Action& chosen) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("models", "List published models by name, or print the job's file of one");
  command->add_option("name", *name, "A model of the list, whose job's file is printed");
  command->footer("Example:\n  trireme models gpt2 > gpt2.toml");
  command->callback([=, &chosen] { chosen = [=] { return show(*name); }; });
}

}  // namespace trireme::cli
