// Ends a random rank of a training job at a random moment, many times, and counts what is not as it should be:
// processes that stay, wrong exit codes, the wrong rank named, checkpoints that are damaged or lost.
// docs/reliability.md has the counts of long runs.
//
//   reliability_test --gtest_filter='Soak.*'                        10 ends, as CTest runs it
//   reliability_test --gtest_filter='Soak.*' --kills=1000 --seed=7  so many, with other moments
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <random>
#include <regex>
#include <thread>

#include "tests/cli/program.h"
#include "tests/reliability/sizes.h"
#include "trireme/base/clock.h"
#include "trireme/ckpt/checkpoint.h"

namespace trireme::cli::soak_test {
namespace {

using testing::HasSubstr;

enum class Moment { kStart, kStep, kSave, kExit };
constexpr std::array kMoments{Moment::kStart, Moment::kStep, Moment::kSave, Moment::kExit};
constexpr std::array<const char*, 4> kNames{"while the job starts", "in a step", "in a save", "near the end"};

struct Counts {
  int ends = 0;
  int too_late = 0;  // the rank had ended by itself
  int stopped = 0;   // by SIGSTOP, the others by SIGKILL
  int stuck = 0;
  int wrong_code = 0;
  int wrong_rank = 0;
  int damaged = 0;
  std::array<std::vector<double>, 4> known_s;  // from SIGKILL until the last of the other ranks knew, by moment
  std::vector<double> gone_s;                  // until no other rank was left
  std::vector<double> found_s;                 // the same after SIGSTOP
};

std::string times(std::vector<double> all) {
  if (all.empty()) return "none";
  std::ranges::sort(all);
  const auto at = [&](double part) {
    return 1000 * all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
  };
  return fmt::format("{:.0f} ms in the middle, {:.0f} ms for 99 of 100, {:.0f} ms at most", at(0.5), at(0.99), at(1));
}

// When the last of the ranks but one had been told that the job is over or, told or not, had ended: from the launcher's
// lines "rank 2 ended at 9.5 s of the steady clock, told of the job's end at 9.4 s".
double all_knew_at(const std::string& log, size_t but) {
  static const std::regex kLine(
      "rank ([0-9]+) ended at ([0-9.]+) s of the steady clock(, told of the job's end at ([0-9.]+) s)?");
  double last = 0;
  for (std::sregex_iterator at(log.begin(), log.end(), kLine), none; at != none; ++at) {
    if (std::stoul((*at)[1]) == but) continue;
    last = std::max(last, std::stod((*at)[4].matched ? (*at)[4] : (*at)[2]));
  }
  return last;
}

class Soak : public CliTest {
 protected:
  // The job goes on from its newest checkpoint each time.
  void start_job(Moment moment, size_t ranks) {
    const int64_t last = moment == Moment::kExit ? step_ + 150 : 1'000'000'000;
    const int64_t every = moment == Moment::kSave ? 1 : 20;
    Words words{"train",
                "gpt.toml",
                "--out",
                "run",
                "--quiet",
                "-n",
                std::to_string(ranks),
                "--set",
                "train.batch=12",
                "--set",
                fmt::format("train.steps={}", last),
                "--set",
                fmt::format("train.save_every={}", every)};
    if (step_ > 0) words.push_back("--resume");
    start(words, {"TRIREME_LOG=warn,launch=debug"});
  }

  // Lets it run for a random time after the moment has come; the rank's process, or -1 when the job has ended before.
  int wait_for(Moment moment, size_t ranks, size_t rank) {
    if (!wait_until([&] { return workers().size() == ranks; })) return -1;
    if (moment != Moment::kStart && !wait_until([&] { return out_so_far().find("steps ") != std::string::npos; }))
      return -1;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (moment == Moment::kStart ? 150'000 : 400'000)));
    const std::vector<int> processes = workers();
    return processes.size() == ranks ? processes[rank] : -1;
  }

  void look_at_checkpoint() {
    try {
      const ckpt::Reader reader(path("run/checkpoints"));
      reader.verify();
      if (reader.step() < step_) ++counts_.damaged;
      step_ = reader.step();
    } catch (const Error& e) {
      if (step_ == 0) return;  // none was made yet
      ++counts_.damaged;
      fmt::print("damaged: {}\n", e.what());
    }
  }

  void take_times(Moment moment, bool stop, double gone_s, double known_s) {
    if (stop) {
      counts_.found_s.push_back(gone_s);
      return;
    }
    EXPECT_GT(known_s, 0);
    counts_.gone_s.push_back(gone_s);
    counts_.known_s[static_cast<size_t>(moment)].push_back(known_s);
    if (known_s > 0.05)
      fmt::print("{:.0f} ms until all knew, {}\n", 1000 * known_s, kNames[static_cast<size_t>(moment)]);
  }

  void look_at_end(const Outcome& outcome, size_t rank, int process) {
    const bool right_rank =
        outcome.err.find(fmt::format("error: rank {} (pid {})", rank, process)) != std::string::npos;
    if (outcome.code == 0 || outcome.code == 130) {
      ++counts_.too_late;
    } else if (outcome.code != 3) {
      ++counts_.wrong_code;
      fmt::print("exit code {}: {}\n", outcome.code, outcome.err);
    } else if (!right_rank) {
      ++counts_.wrong_rank;
      fmt::print("rank {} (pid {}) was ended, but: {}\n", rank, process, outcome.err);
    }
  }

  void end_one(int number) {
    const Moment moment = kMoments[random_() % kMoments.size()];
    const size_t ranks = 2 + random_() % 3;
    const size_t rank = random_() % ranks;
    const bool stop = random_() % 8 == 0;
    start_job(moment, ranks);
    const int process = wait_for(moment, ranks, rank);
    const double begin = now_s();  // others may know before the call that ends the rank has returned
    if (process < 0 || ::kill(process, stop ? SIGSTOP : SIGKILL) != 0) {
      ++counts_.too_late;
      const Outcome outcome = wait();
      counts_.wrong_code += outcome.code == 0 ? 0 : 1;
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      look_at_checkpoint();
      return;
    }
    ++counts_.ends;
    counts_.stopped += stop ? 1 : 0;
    wait_until([&] { return workers().empty(); });
    const double gone_s = now_s() - begin;
    const Outcome outcome = wait();
    if (outcome.code == 3) take_times(moment, stop, gone_s, all_knew_at(outcome.err, rank) - begin);
    look_at_end(outcome, rank, process);
    const size_t left = left_over().size();
    counts_.stuck += static_cast<int>(left);
    look_at_checkpoint();
    if (number % 50 == 0) {
      fmt::print("{}: rank {} of {} {} {}, step {}\n", number, rank, ranks, stop ? "stopped" : "killed",
                 kNames[static_cast<size_t>(moment)], step_);
      std::fflush(stdout);
    }
  }

  std::mt19937 random_{sizes.seed};
  int64_t step_ = 0;  // of the newest checkpoint
  Counts counts_;
};

TEST_F(Soak, ARankThatEndsAtAnyMomentIsNamedAndLeavesNothingBehind) {
  SCOPED_TRACE(fmt::format("--seed={}", sizes.seed));
  write_gpt();
  for (int i = 1; i <= sizes.kills; ++i) end_one(i);

  std::vector<double> all;
  for (size_t i = 0; i < kMoments.size(); ++i) {
    const std::vector<double>& known_s = counts_.known_s[i];
    all.insert(all.end(), known_s.begin(), known_s.end());
    fmt::print("{} times {}: {}\n", known_s.size(), kNames[i], times(known_s));
  }
  fmt::print(
      "seed {}: {} ranks ended ({} stopped, the rest killed), {} had ended before\n"
      "processes that stayed: {}\nwrong exit codes: {}\nwrong ranks named: {}\ndamaged checkpoints: {}\n"
      "until all other ranks knew, after SIGKILL: {}\nuntil none of them was left: {}\nthe same after SIGSTOP: {}\n",
      sizes.seed, counts_.ends, counts_.stopped, counts_.too_late, counts_.stuck, counts_.wrong_code,
      counts_.wrong_rank, counts_.damaged, times(all), times(counts_.gone_s), times(counts_.found_s));
  EXPECT_EQ(counts_.stuck, 0);
  EXPECT_EQ(counts_.wrong_code, 0);
  EXPECT_EQ(counts_.wrong_rank, 0);
  EXPECT_EQ(counts_.damaged, 0);
}

}  // namespace
}  // namespace trireme::cli::soak_test
