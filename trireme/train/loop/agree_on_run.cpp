#include "trireme/train/loop/agree_on_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/same_job.h"

namespace trireme {
namespace {

// A line for each thing that must be the same on all ranks. Where files lie may differ from host to host.
std::string text_of_run(const Optimizer& optimizer, TrainerOptions options, const data::Source& train, FitOptions fit) {
  std::string out;
  const auto add = [&](std::string_view name, const std::string& value) {
    out += fmt::format("{} = {}\n", name, value);
  };
  const auto is_set = [](bool set) { return std::string(set ? "set" : "not set"); };
  const auto add_keys = [&](const std::vector<Key>& keys) {
    for (const Key& key : keys) {
      const bool is_path = key.name == "init_from";
      add(fmt::format("train.{}", key.name), is_path ? is_set(!fit.init_from.empty()) : value_text(key.target));
    }
  };
  add_keys(keys_of(fit));
  add_keys(keys_of(options.step));
  add("the learning rate", fmt::format("{}", learning_rate(optimizer)));
  add_keys(keys_of(options.schedule));
  add("the folder of the run", is_set(!options.out.empty()));
  add("resuming", is_set(fit.resume));
  add("parallel.parameter_broadcast", fmt::format("{}", options.parameter_broadcast));
  add("train.trace", is_set(!options.trace.empty()));
  add("train.trace_steps", fmt::format("{}", options.trace_steps));
  // The code of a model that is cut by hand may give each rank samples of its own.
  const bool by_hand = options.mode == Mode::kHybrid;
  const auto samples = [&](const data::Source& of) {
    return by_hand ? fmt::format("{} samples", of.size()) : describe(of);
  };
  add("parallel.mode", std::string(to_string(options.mode)));
  add("the training data", samples(train));
  add("held out", fit.validation ? samples(*fit.validation) : "nothing");
  return out;
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

}  // namespace

void agree_on_run(const Optimizer& optimizer, const TrainerOptions& options, const data::Source& train,
                  const FitOptions& fit, comm::World* world) {
  if (world == nullptr) return;
  const std::vector<std::string> all = gather_texts(*world, text_of_run(optimizer, options, train, fit));
  const auto other = std::ranges::find_if(all, [&](const std::string& text) { return text != all[0]; });
  if (other == all.end()) return;
  std::string_view first = all[0], second = *other;
  while (!first.empty()) {
    const std::string_view here = next_line(first), there = next_line(second);
    require(here == there,
            "the ranks were asked for different runs: '{}' on rank 0, '{}' on rank {}; start all ranks with the same "
            "configuration and program",
            here, there, other - all.begin());
  }
}

}  // namespace trireme
