#include "trireme/train/job/same_on_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/same_job.h"

namespace trireme {
namespace {

class Lines {
 public:
  explicit Lines(bool is_of_file) : section_(is_of_file ? "train." : "") {}

  void add(std::string_view name, std::string value) {
    std::ranges::replace(value, '\n', ' ');
    text_ += fmt::format("{} = {}\n", name, value);
  }
  void add(const std::vector<Key>& keys) {
    for (const Key& key : keys) add_key(key.name, value_text(key.target));
  }
  void add_key(std::string_view name, std::string value) { add(section_ + std::string(name), std::move(value)); }

  std::string text() && { return std::move(text_); }

 private:
  std::string section_;  // of a job's file; a program's settings have no section
  std::string text_;
};

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(out.back().size() + 1, text.size()));
  }
  return out;
}

}  // namespace

std::string settings_text(const Optimizer& optimizer, const TrainerOptions& options, const FitOptions& fit,
                          const data::Source& train) {
  FitOptions of_fit = fit;
  StepOptions of_step = options.step;
  Schedule schedule = options.schedule;
  const std::unique_ptr<nn::OptimizerSpec> numbers = optimizer.spec().copy();
  Lines out(!options.config_text.empty());
  out.add(keys_of(of_fit));
  out.add(keys_of(of_step));
  out.add_key("optimizer", std::string(numbers->kind()));
  out.add_key("lr", fmt::format("{}", numbers->learning_rate()));
  out.add(numbers->keys());
  out.add(keys_of(schedule));
  // Only the first rank writes these files, but all take part.
  out.add("a trace (train.trace)", options.trace.empty() ? "none" : fmt::format("{} steps", options.trace_steps));
  out.add("a folder (out)", options.out.empty() ? "none" : "one");
  out.add("resume", fit.resume ? "true" : "false");
  out.add("parameter_broadcast", options.parameter_broadcast ? "true" : "false");
  out.add("the data", describe_samples(train));
  out.add("what is held out", fit.validation ? describe_samples(*fit.validation) : "none");
  return std::move(out).text();
}

std::string unlike_settings(const std::vector<std::string>& of_ranks) {
  const auto other = std::ranges::find_if(of_ranks, [&](const std::string& text) { return text != of_ranks[0]; });
  if (other == of_ranks.end()) return "";
  const std::vector<std::string_view> first = lines_of(of_ranks[0]), lines = lines_of(*other);
  const size_t shared = std::min(first.size(), lines.size());
  size_t at = 0;
  while (at < shared && first[at] == lines[at]) ++at;
  const auto line = [at](const std::vector<std::string_view>& of) { return at < of.size() ? of[at] : "nothing"; };
  return fmt::format(
      "the ranks were given different settings: rank 0 has {}, rank {} has {}; start all ranks with the same "
      "configuration, data and options",
      line(first), other - of_ranks.begin(), line(lines));
}

}  // namespace trireme
