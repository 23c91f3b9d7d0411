// docs/defaults.md is what jobs and programs begin with.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/docs/document.h"
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

std::string rows_of_optimizers() {
  std::string out;
  for (const std::string& kind : nn::optimizer_kinds()) {
    const std::unique_ptr<nn::OptimizerSpec> of_job = nn::optimizer_spec(kind);
    const std::unique_ptr<nn::OptimizerSpec> of_program = of_job->of_struct_defaults();
    out += fmt::format("| `{}` | `{}` | {}, lr {} | {}, lr {} |\n", kind, of_job->struct_name(), describe(*of_job),
                       JobConfig{}.train.lr, describe(*of_program), of_program->learning_rate());
  }
  return out;
}

// The document with these rows in the table of this head.
std::string with_rows(std::string text, std::string_view head, const std::string& rows) {
  if (text.find(head) == std::string::npos) {
    ADD_FAILURE() << "docs/defaults.md has no table that begins with " << head;
    return text;
  }
  const size_t begin = text.find("\n", text.find("\n|---|", text.find(head)) + 1) + 1;
  const size_t end = text.find("\n\n", begin) + 1;
  return text.replace(begin, end - begin, rows);
}

TEST(Defaults, the_document_has_those_of_jobs_and_programs) {
  const std::string path = (std::filesystem::path(TRIREME_SOURCE_DIR) / "docs/defaults.md").string();
  const std::string text = read_file(path);
  const std::string now =
      with_rows(with_rows(text, "| `train.optimizer` | in C++ |", rows_of_optimizers()), "| key |", rows_of_train());
  if (docs::writes_documents) {
    std::ofstream(path, std::ios::binary) << now;
  } else {
    EXPECT_EQ(now, text) << path << ": docs_test --write writes what should stand there";
  }
  EXPECT_EQ(JobConfig{}.train.optimizer, "adamw");
  EXPECT_EQ(to_string(JobConfig{}.parallel.mode), to_string(TrainerOptions{}.mode));
}

}  // namespace
}  // namespace trireme::defaults_test
