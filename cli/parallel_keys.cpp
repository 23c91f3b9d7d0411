#include "cli/parallel_keys.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/plan/auto/auto_plan.h"

namespace trireme::cli {
namespace {

// Of gradients, updates, starting values, and what is kept for the backward pass.
constexpr std::string_view kOfTraining[] = {"gradients_mean",
                                            "gradient_fp32_sync",
                                            "gradient_accumulation_shard",
                                            "sum_micro_batch_losses",
                                            "parameter_broadcast",
                                            "zero",
                                            "zero_threshold_kb",
                                            "zero_shard_size",
                                            "zero_except",
                                            "keep",
                                            "recompute_communication",
                                            "recompute_slice_activation",
                                            "optimizer_comm_recompute",
                                            "optimizer_on",
                                            "update_part",
                                            "save_strategy",
                                            "only_trainable_params"};

}  // namespace

void check_parallel_keys(const std::string& command, const std::vector<std::string>& set, const JobConfig& job,
                         int64_t ranks) {
  constexpr std::string_view kSection = "parallel.";
  for (const std::string& text : set) {
    const std::string_view key = std::string_view(text).substr(0, text.find_first_of(" ="));
    const bool is_of_training = key.starts_with(kSection) &&
                                std::ranges::find(kOfTraining, key.substr(kSection.size())) != std::end(kOfTraining);
    require(!is_of_training, "{}: {} is for training, and nothing is trained here; leave it out", command, key);
  }
  for (const HomeRule& rule : job.parallel.homes) {
    require(rule.of == Held::kParameter,
            "{}: parallel.home '{}' is for training, and nothing is trained here; leave it out", command,
            to_string(rule));
  }
  require(!is_left_to_plan(job),
          "{}: parallel.search = '{}' plans a job that trains, and nothing is trained here; use another search, or say "
          "how ranks share the model (parallel.tp, parallel.pp)",
          command, to_string(job.parallel.search.kind));
  static_cast<void>(parallel_of(job, ranks));
}

}  // namespace trireme::cli
