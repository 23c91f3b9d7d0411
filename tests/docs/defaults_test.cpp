// docs/defaults.md is what jobs and programs begin with.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "trireme/base/file.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme::defaults_test {
namespace {

// "| `train.clip` | 1 | 0 |" for each key of [train] that a program has, too.
std::string rows_of_train() {
  JobConfig job;
  TrainerOptions program;
  FitOptions fit;
  const std::vector<ConfigKey> keys = config_keys(job);
  std::string out;
  for (const std::vector<Key>& rows : {keys_of(fit), keys_of(program.step), keys_of(program.schedule)}) {
    for (const Key& row : rows) {
      const auto of_job = std::ranges::find(keys, fmt::format("train.{}", row.name), &ConfigKey::name);
      if (of_job == keys.end()) {
        ADD_FAILURE() << row.name << " is no key of a job";
        continue;
      }
      out += fmt::format("| `train.{}` | {} | {} |\n", row.name, value_text(of_job->target), value_text(row.target));
    }
  }
  return out;
}

template <class Numbers>
std::string row_of_optimizer(const char* name) {
  const Optimizer of_program = Numbers{};
  const std::unique_ptr<nn::OptimizerSpec> of_job = nn::optimizer_spec(of_program.spec().kind());
  return fmt::format("| `{}` | `{}` | {}, lr {} | {}, lr {} |\n", of_job->kind(), name, describe(*of_job),
                     JobConfig{}.train.lr, describe(of_program.spec()), learning_rate(of_program));
}

std::string rows_of_optimizers() {
  EXPECT_EQ(nn::optimizer_kinds().size(), 5U);
  return row_of_optimizer<Sgd>("Sgd") + row_of_optimizer<Adam>("Adam") + row_of_optimizer<AdamW>("AdamW") +
         row_of_optimizer<LazyAdam>("LazyAdam") + row_of_optimizer<Lamb>("Lamb");
}

TEST(Defaults, the_document_has_those_of_jobs_and_programs) {
  const std::string path = (std::filesystem::path(TRIREME_SOURCE_DIR) / "docs/defaults.md").string();
  const std::string text = read_file(path);
  for (const std::string& rows : {rows_of_train(), rows_of_optimizers()})
    EXPECT_NE(text.find(rows), std::string::npos) << path << " must have these rows, one after the other:\n" << rows;
  EXPECT_EQ(JobConfig{}.train.optimizer, "adamw");
  EXPECT_EQ(to_string(JobConfig{}.parallel.mode), to_string(TrainerOptions{}.mode));
}

}  // namespace
}  // namespace trireme::defaults_test
