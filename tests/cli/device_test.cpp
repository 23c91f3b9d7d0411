// Where kernels run: --device and train.device.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <regex>

#include "tests/cli/program.h"

namespace trireme::cli::device_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class DeviceTest : public CliTest {
 protected:
  DeviceTest() { write_gpt(); }

  // A machine of two devices with so much memory.
  std::string machine(int64_t bytes) {
    write("toy.toml", fmt::format("name = \"toy\"\ndevices_per_host = 2\n[device]\nmemory_bytes = {}\n"
                                  "memory_bytes_per_s = 1e9\nalignment = 512\n[device.flops_per_s]\nf32 = 1e9\n"
                                  "[[device.scratch]]\nops = \"*matmul*\"\nbytes = 4096\n"
                                  "[[level]]\nname = \"host\"\ndevices = 2\nlatency_s = 0\nbytes_per_s = 1e9\n",
                                  bytes));
    return "described:" + path("toy.toml");
  }
};

// The losses of a run, of which the log has the times too.
std::vector<std::string> losses_of(const std::string& metrics) {
  const std::regex loss("\"loss\":([^,}]*)");
  return {std::sregex_token_iterator(metrics.begin(), metrics.end(), loss, 1), std::sregex_token_iterator()};
}

TEST_F(DeviceTest, AnotherDevicesArenaIsPlannedFromItsFile) {
  const Outcome planned = run({"explain", "gpt.toml", "--device", machine(100000000), "--stage", "memory"});
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, StartsWith("device 'toy' has 100000000 bytes, in buffers aligned to 512\narena "));
  const Outcome actions = run({"explain", "gpt.toml", "--device", machine(100000000), "--stage", "actions"});
  EXPECT_THAT(actions.out, HasSubstr("device=\"toy\" alignment=512\n"));
  EXPECT_THAT(actions.out, HasSubstr("kernel=\"matmul.toy\""));
}

TEST_F(DeviceTest, AJobThatDoesNotFitIsRefusedWithItsArena) {
  const Outcome planned = run({"explain", "gpt.toml", "--device", machine(10000), "--stage", "memory"});
  EXPECT_EQ(planned.code, 2);
  EXPECT_THAT(planned.out, HasSubstr("first written by"));
  EXPECT_THAT(planned.err, HasSubstr("and device 'toy' has 9.77 KiB; cut it over more ranks"));
}

TEST_F(DeviceTest, ADeviceWithoutCodeTrainsNothing) {
  const Outcome trained = run({"train", "gpt.toml", "--device", machine(1000000000)});
  EXPECT_EQ(trained.code, 2);
  EXPECT_THAT(trained.err, HasSubstr("describes device 'toy' and has no kernels for it"));
}

TEST_F(DeviceTest, ThatThereIsNotIsRefusedWithThoseThereAre) {
  const Outcome trained = run({"train", "gpt.toml", "--device", "guard"});
  EXPECT_EQ(trained.code, 2);
  EXPECT_THAT(trained.err, HasSubstr("there is no device 'guard'. Did you mean 'guarded'?"));
}

// Training with validation and checkpoints, its sample, and the evaluation of what it saved.
TEST_F(DeviceTest, ARunOnGuardedHasTheNumbersOfTheCpu) {
  const auto run_on = [&](const std::string& device, const std::string& ranks) {
    const std::string out = "run-" + device + ranks;
    const Outcome trained = run({"train", "gpt.toml", "-n", ranks, "--device", device, "--out", out, "--sample-tokens",
                                 "5", "--set", "train.eval_every=2", "--quiet"});
    EXPECT_EQ(trained.code, 0) << trained.err;
    const Outcome evaluated = run({"evaluate", out, "--set", "train.device=" + device});
    EXPECT_EQ(evaluated.code, 0) << evaluated.err;
    return losses_of(read(path(out + "/metrics.jsonl")));
  };
  for (const std::string ranks : {"1", "2"}) {
    const std::vector<std::string> losses = run_on("cpu", ranks);
    EXPECT_GT(losses.size(), 1U);
    EXPECT_EQ(run_on("guarded", ranks), losses) << ranks;
  }
}

}  // namespace
}  // namespace trireme::cli::device_test
