// What a world tells of its waits (WorldOptions::on_wait).
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "trireme/comm/comm.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::waits_test {
namespace {

using namespace std::chrono_literals;

// Of one rank. A call that says that a wait is over lasts until another comes beside it, or for longer than the world
// takes to tell of a wait again.
class Told {
 public:
  void call(std::string_view what) {
    std::unique_lock lock(mutex_);
    if (++inside_ > 1) beside_ = true;
    changed_.notify_all();
    last_ = what;
    if (!what.empty()) {
      any_ = true;
    } else if (any_) {
      changed_.wait_for(lock, 1500ms, [&] { return beside_; });
    }
    --inside_;
  }
  void wait_for_any() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return any_; });
  }
  bool any_beside() const { return beside_; }
  const std::string& last() const { return last_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool any_ = false, beside_ = false;
  std::string last_;
};

// Two threads of rank 0 wait. While one of them says that its wait is over, the other drives, and has waited long.
TEST(Waits, AreToldByOneThreadAtATimeAndTheLastWordIsThatTheyAreOver) {
  Told told;
  const auto wait_for = [](World& world, int tag) {
    const HostTensor in(TensorType{DType::kI32, {1}});
    world.all().recv(in.view(), 1, tag).wait();
  };
  spawn_ranks(
      2, "threads",
      [&](World& world) {
        if (world.rank() == 0) {
          std::jthread other([&] { wait_for(world, 2); });
          wait_for(world, 1);
          return;
        }
        const HostTensor out(TensorType{DType::kI32, {1}});
        told.wait_for_any();
        world.all().send(out.view(), 0, 2).wait();
        std::this_thread::sleep_for(2s);  // others may be told meanwhile
        world.all().send(out.view(), 0, 1).wait();
      },
      0,
      [&](WorldOptions& options) {
        if (options.rank == 0) options.on_wait = [&](std::string_view what) { told.call(what); };
      });

  EXPECT_FALSE(told.any_beside());
  EXPECT_EQ(told.last(), "");
}

}  // namespace
}  // namespace trireme::comm::waits_test
