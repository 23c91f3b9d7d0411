#include "trireme/train/report/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "trireme/base/log.h"

namespace trireme::progress_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

ProgressState middle() {
  return {.step = 430,
          .total = 1000,
          .loss = 2.3141,
          .val_loss = 2.401,
          .units_per_s = 12'345,
          .ms_per_step = 81.23,
          .eta_s = 72};
}

TEST(Progress, AWideLineShowsEverything) {
  EXPECT_EQ(render(middle(), 140),
            " 43% [=================>                      ]  430/1000  loss 2.3141  val 2.4010  "
            "12.3k tokens/s  81.2 ms/step  ETA 1m12s");
}

TEST(Progress, WhatMattersLeastGoesFirstWhenRoomIsShort) {
  EXPECT_EQ(render(middle(), 80), " 43% [====>      ]  430/1000  loss 2.3141  val 2.4010  12.3k tokens/s  ETA 1m12s");
  EXPECT_EQ(render(middle(), 70), " 43%  430/1000  loss 2.3141  val 2.4010  12.3k tokens/s  ETA 1m12s");
  EXPECT_EQ(render(middle(), 60), "430/1000  loss 2.3141  val 2.4010  12.3k tokens/s  ETA 1m12s");
  EXPECT_EQ(render(middle(), 50), " 43%  430/1000  loss 2.3141  val 2.4010  ETA 1m12s");
  EXPECT_EQ(render(middle(), 36), "430/1000  loss 2.3141  ETA 1m12s");
  EXPECT_EQ(render(middle(), 12), "430/1000");
  EXPECT_EQ(render(middle(), 5), "430/1");
  EXPECT_EQ(render(middle(), 0), "");
}

TEST(Progress, NoLineIsWiderThanTheTerminal) {
  for (int width = 0; width < 200; ++width) {
    EXPECT_LE(render(middle(), width).size(), static_cast<size_t>(width));
  }
}

TEST(Progress, BlocksFillInEighths) {
  const std::string line = render({.step = 17, .total = 160}, 40, {.unicode = true});
  // 17/160 of 25 columns is 21 eighths and a bit: two full blocks and five eighths.
  EXPECT_EQ(line, " 10% \u2502\u2588\u2588\u258b" + std::string(22, ' ') + "\u2502  17/160");
}

TEST(Progress, TheFirstAndTheLastStepAreNotRoundedAway) {
  EXPECT_THAT(render({.step = 0, .total = 1000}, 40), HasSubstr("  0% [>"));
  EXPECT_THAT(render({.step = 999, .total = 1000}, 40), HasSubstr(" 99% ["));
  EXPECT_THAT(render({.step = 1000, .total = 1000, .eta_s = 0}, 40), HasSubstr("100% ["));
  EXPECT_THAT(render({.step = 1000, .total = 1000, .eta_s = 0}, 40), EndsWith("done"));
}

TEST(Progress, WithoutATotalThereIsNoBar) {
  EXPECT_EQ(render({.step = 12, .loss = 0.5}, 80), "step 12  loss 0.5000");
}

TEST(Progress, ALossThatIsNoNumberIsShownAsItIs) {
  EXPECT_EQ(render({.step = 1, .loss = HUGE_VAL}, 80), "step 1  loss inf");
  EXPECT_EQ(render({.step = 1, .loss = 123456789.0}, 80), "step 1  loss 1.235e+08");
}

TEST(Progress, PlainLinesSayTheSameInWords) {
  EXPECT_EQ(render_plain(middle()),
            "step 430/1000  43%  loss 2.3141  val 2.4010  12.3k tokens/s  81.2 ms/step  ETA 1m12s");
}

TEST(Progress, PlainLinesComeEveryFivePercentAndTenSeconds) {
  const ProgressState last{.step = 100, .total = 1000};
  EXPECT_FALSE(plain_line_due(last, {.step = 149, .total = 1000}, 1));
  EXPECT_TRUE(plain_line_due(last, {.step = 150, .total = 1000}, 1));
  EXPECT_TRUE(plain_line_due(last, {.step = 101, .total = 1000}, 10));
  EXPECT_FALSE(plain_line_due(last, last, 10));
  EXPECT_TRUE(plain_line_due({.step = 999, .total = 1000}, {.step = 1000, .total = 1000}, 0));
}

TEST(Progress, NumbersAreShort) {
  EXPECT_EQ(compact_number(0), "0");
  EXPECT_EQ(compact_number(1.5), "1.50");
  EXPECT_EQ(compact_number(999), "999");
  EXPECT_EQ(compact_number(999.6), "1.00k");
  EXPECT_EQ(compact_number(12'345), "12.3k");
  EXPECT_EQ(compact_number(1'250'000), "1.25M");
  EXPECT_EQ(compact_number(-2.5e9), "-2.50G");
  EXPECT_EQ(compact_number(std::nan("")), "?");
}

std::string read_all(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) all.append(buffer, static_cast<size_t>(n));
  return all;
}

TEST(Progress, AFileGetsWholeLinesAndNoControlCharacters) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    Progress progress({.fd = ends[1]});
    for (int step = 1; step <= 100; ++step) progress.update({.step = step, .total = 100});
    progress.finish();
  }
  close(ends[1]);
  const std::string text = read_all(ends[0]);
  close(ends[0]);

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);  // the first step and each 5 percent
  EXPECT_THAT(text, EndsWith("step 100/100  100%\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Progress, OtherRanksShowNothing) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    Progress progress({.shown = false, .fd = ends[1]});
    progress.update({.step = 1, .total = 2});
    progress.finish();
  }
  close(ends[1]);

  EXPECT_EQ(read_all(ends[0]), "");
  close(ends[0]);
}

TEST(Progress, OnATerminalTheLineIsRedrawnAndLogLinesGoAboveIt) {
  int master = -1;
  int terminal = -1;
  winsize size{.ws_row = 24, .ws_col = 61, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, &size), 0);
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C", 1);
  {
    Progress progress({.fd = terminal});
    progress.update(middle());
    write_log(LogLevel::kWarn, "train", "the loss is not finite");
    progress.finish();
  }
  unsetenv("LC_ALL");
  fcntl(master, F_SETFL, O_NONBLOCK);
  const std::string text = read_all(master);
  close(terminal);
  close(master);

  const std::string line = "\r" + render(middle(), 60) + "\x1b[K";
  EXPECT_EQ(text.substr(0, line.size()), line);
  EXPECT_THAT(text, HasSubstr("\r\x1b[KW "));
  EXPECT_THAT(text, HasSubstr("the loss is not finite\r\n" + line));  // the terminal adds \r
  EXPECT_THAT(text, EndsWith(line + "\r\n"));
}

}  // namespace
}  // namespace trireme::progress_test
