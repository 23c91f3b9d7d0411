#include "trireme/train/report/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme::run_log_test {
namespace {

std::string error_text(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

class RunLogTest : public testing::Test {
 protected:
  TempDirectory dir_;
  std::string path_ = dir_ / "metrics.jsonl";
};

TEST_F(RunLogTest, EachRecordIsAJsonObjectOnALine) {
  {
    RunLog log(path_);
    log.write({1, {{"loss", 2.5}, {"lr", 3e-4}}});
    log.write({2, {{"loss", 0.1}, {"val_loss", 1e-12}}});
  }

  EXPECT_EQ(read_file(path_),
            "{\"step\":1,\"loss\":2.5,\"lr\":0.0003}\n{\"step\":2,\"loss\":0.1,\"val_loss\":1e-12}\n");
}

TEST_F(RunLogTest, NumbersReadBackToTheSameBitsAndNullStandsForNoNumber) {
  const double third = 1.0 / 3;
  {
    RunLog log(path_);
    log.write({1, {{"a\"b\\\n", third}, {"nan", std::nan("")}, {"inf", HUGE_VAL}}});
  }

  const auto records = read_run_log(path_);

  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(records[0].values.size(), 3u);
  for (const auto& [key, value] : records[0].values) {
    if (key == "a\"b\\\n") {
      EXPECT_EQ(value, third);
    } else {
      EXPECT_TRUE(std::isnan(value)) << key;
    }
  }
}

TEST_F(RunLogTest, MinusZeroKeepsItsSign) {
  const RunRecord record{1, {{"loss", -0.0}}};
  EXPECT_EQ(json_line(record), "{\"step\":1,\"loss\":-0.0}\n");
  { RunLog(path_).write(record); }
  EXPECT_TRUE(std::signbit(read_run_log(path_).at(0).values.at(0).second));
}

TEST_F(RunLogTest, ResumingDropsTheStepsThatWillBeDoneAgain) {
  {
    RunLog log(path_);
    for (int64_t step = 1; step <= 5; ++step) log.write({step, {{"loss", 10.0 - double(step)}}});
  }
  {
    RunLog log(path_, {.resume_step = 3});
    log.write({4, {{"loss", 0.4}}});
  }

  EXPECT_EQ(read_file(path_),
            "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":8}\n{\"step\":3,\"loss\":7}\n"
            "{\"step\":4,\"loss\":0.4}\n");
}

TEST_F(RunLogTest, ALineCutShortByACrashIsRemovedOnResume) {
  atomic_write(path_, "{\"step\":1,\"loss\":9}\n{\"step\":2,\"lo");
  EXPECT_EQ(read_run_log(path_).size(), 1u);
  {
    RunLog log(path_, {.resume_step = 2});
    log.write({3, {{"loss", 7}}});
  }

  EXPECT_EQ(read_file(path_), "{\"step\":1,\"loss\":9}\n{\"step\":3,\"loss\":7}\n");
}

TEST_F(RunLogTest, WithoutResumingTheOldLogIsReplaced) {
  atomic_write(path_, "{\"step\":1,\"loss\":9}\n");
  { RunLog log(path_); }

  EXPECT_EQ(read_file(path_), "");
}

TEST_F(RunLogTest, ResumingWithoutAnOldLogBeginsOne) {
  { RunLog(path_, {.resume_step = 10}).write({11, {}}); }

  EXPECT_EQ(read_file(path_), "{\"step\":11}\n");
}

TEST_F(RunLogTest, LinesWaitForTheFlushUnlessItsTimeIsZero) {
  RunLog lazy(path_, {.flush_s = 1e9});
  lazy.write({1, {}});
  EXPECT_EQ(read_file(path_), "");
  lazy.flush();
  EXPECT_EQ(read_file(path_), "{\"step\":1}\n");

  RunLog eager(dir_ / "eager.jsonl", {.flush_s = 0});
  eager.write({1, {}});
  EXPECT_EQ(read_file(dir_ / "eager.jsonl"), "{\"step\":1}\n");
}

TEST_F(RunLogTest, DamageIsNamedWithItsLine) {
  atomic_write(path_, "{\"step\":1}\nnot json\n");
  EXPECT_EQ(error_text([&] { (void)read_run_log(path_); }),
            "run log '" + path_ + "': line 2 is not an object with a step and numbers");
}

TEST_F(RunLogTest, APlaceThatCannotBeWrittenIsNamed) {
  const std::string path = dir_ / "none" + "/metrics.jsonl";
  EXPECT_EQ(error_text([&] { RunLog log(path); }),
            "run log '" + path + "': cannot write it: No such file or directory");
}

}  // namespace
}  // namespace trireme::run_log_test
