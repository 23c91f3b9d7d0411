#include "cli/parallel_keys.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/plan/auto/auto_plan.h"

namespace trireme::cli {

void check_parallel_keys(const std::string& command, const std::vector<std::string>& set, const JobConfig& job,
                         int64_t ranks) {
  JobConfig plain;
  for (const ConfigKey& key : config_keys(plain)) {
    const bool is_set =
        key.row.of_training && key.section() == "parallel." &&
        std::ranges::any_of(set, [&](std::string_view text) { return text.substr(0, text.find('=')) == key.name; });
    require(!is_set, "{}: {} is for training, and nothing is trained here; leave it out", command, key.name);
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
