#include "trireme/base/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme::log_test {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() {
    set_log_levels("warn");
    set_log_sink([this](std::string_view line) { lines_.emplace_back(line); });
  }
  ~LogTest() override {
    set_log_sink({});
    set_log_levels("warn");
    set_log_rank(0);
  }
  std::vector<std::string> lines_;
};

std::string error_text(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.text();
  }
  return "no error";
}

TEST_F(LogTest, LineHasLevelTimeRankComponentAndSentence) {
  const std::string line =
      log_line(LogLevel::kInfo, "12:03:04.123", 3, "plan", "chose 'dp,tp' for 'w_up'  cost_us=412");

  EXPECT_EQ(line, "I 12:03:04.123 r3 plan   chose 'dp,tp' for 'w_up'  cost_us=412");
}

TEST_F(LogTest, WrittenLineCarriesTheRankThatWasSet) {
  set_log_rank(5);

  TRIREME_LOG(kWarn, "comm", "peer {} is slow  ms={}", 2, 40);

  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].substr(0, 2), "W ");
  EXPECT_EQ(lines_[0][4], ':');
  EXPECT_EQ(lines_[0].substr(14), " r5 comm   peer 2 is slow  ms=40");
}

TEST_F(LogTest, ArgumentsAreEvaluatedOnlyIfTheLineIsOn) {
  int evaluated = 0;

  TRIREME_LOG(kInfo, "plan", "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
  set_log_levels("info");
  TRIREME_LOG(kInfo, "plan", "{}", ++evaluated);

  EXPECT_EQ(evaluated, 1);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(LogTest, ComponentLevelsOverrideTheGeneralOne) {
  set_log_levels("error,plan=debug,comm=info");

  EXPECT_TRUE(log_on(LogLevel::kDebug, "plan"));
  EXPECT_TRUE(log_on(LogLevel::kInfo, "comm"));
  EXPECT_FALSE(log_on(LogLevel::kDebug, "comm"));
  EXPECT_FALSE(log_on(LogLevel::kWarn, "train"));
  EXPECT_TRUE(log_on(LogLevel::kError, "train"));
}

TEST_F(LogTest, MisspeltLevelsAndComponentsAreNamedAndChangeNothing) {
  EXPECT_EQ(error_text([] { set_log_levels("debug,plan=loud"); }),
            "log levels 'debug,plan=loud': 'loud' is not a level; one of 'error', 'warn', 'info' "
            "or 'debug'");
  EXPECT_EQ(error_text([] { set_log_levels("plam=debug"); }),
            "log levels 'plam=debug': no component named 'plam'. Did you mean 'plan'?");
  EXPECT_FALSE(log_on(LogLevel::kDebug, "plan"));
}

TEST(Flags, EveryVariableHasAFormAndADocLineAndOneRow) {
  std::vector<std::string> names;
  for (const Flag& flag : all_flags()) {
    EXPECT_FALSE(flag.form.empty()) << flag.name;
    EXPECT_TRUE(flag.doc.ends_with(".")) << flag.name;
    EXPECT_EQ(std::count(names.begin(), names.end(), flag.name), 0) << flag.name;
    names.emplace_back(flag.name);
  }
}

TEST(Flags, WholeNumbersAreCheckedAgainstTheirRange) {
  setenv("TRIREME_THREADS", "12", 1);
  EXPECT_EQ(flag_int("TRIREME_THREADS", 1, 64), 12);
  for (const char* bad : {"0", "65", "x", "3x", " 3"}) {
    setenv("TRIREME_THREADS", bad, 1);
    EXPECT_EQ(
        error_text([] { (void)flag_int("TRIREME_THREADS", 1, 64); }),
        "environment variable TRIREME_THREADS='" + std::string(bad) + "': it must be a whole number from 1 to 64");
  }
  setenv("TRIREME_THREADS", "", 1);
  EXPECT_EQ(flag_int("TRIREME_THREADS", 1, 64), std::nullopt);
  unsetenv("TRIREME_THREADS");
  EXPECT_EQ(flag_int("TRIREME_THREADS", 1, 64), std::nullopt);
}

TEST(Flags, SwitchesTakeTheUsualWordsAndRefuseOthers) {
  setenv("NO_COLOR", "yes", 1);
  EXPECT_EQ(flag_bool("NO_COLOR"), true);
  setenv("NO_COLOR", "off", 1);
  EXPECT_EQ(flag_bool("NO_COLOR"), false);
  setenv("NO_COLOR", "maybe", 1);
  EXPECT_EQ(error_text([] { (void)flag_bool("NO_COLOR"); }),
            "environment variable NO_COLOR='maybe': it must be 1, true, yes, on, 0, false, no or off");
  unsetenv("NO_COLOR");
}

TEST(Flags, AVariableOutsideTheTableIsABug) {
  EXPECT_EQ(error_text([] { (void)flag_text("TRIREME_NOPE"); }),
            "environment variable 'TRIREME_NOPE' is not in the table of base/flags");
}

TEST(Flags, MisspeltVariablesAreFound) {
  setenv("TRIREME_THREDS", "2", 1);
  EXPECT_EQ(unknown_flags(), std::vector<std::string>{"TRIREME_THREDS"});
  unsetenv("TRIREME_THREDS");
  EXPECT_TRUE(unknown_flags().empty());
}

}  // namespace
}  // namespace trireme::log_test
