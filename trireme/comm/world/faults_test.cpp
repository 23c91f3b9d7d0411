// What ranks learn when a peer dies, leaves, throws or does not come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <latch>
#include <mutex>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/comm/comm.h"
#include "trireme/comm/stores/tcp_store.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::faults_test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kLarge = 300'000;  // 1.14 MiB of f32

HostTensor ones(int64_t count) {
  HostTensor out(TensorType{DType::kF32, Shape{count}});
  for (float& x : out.as<float>()) x = 1;
  return out;
}

// The text of the error that the call throws, with its kind before it; "none" if it throws none.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    const std::string_view kind = e.kind() == ErrorKind::kComm      ? "comm"
                                  : e.kind() == ErrorKind::kTimeout ? "timeout"
                                                                    : "other";
    return fmt::format("{}: {}", kind, e.text());
  }
  return "none";
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string read_all(int fd) {
  std::string out;
  char part[4096];
  for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;) out.append(part, static_cast<size_t>(got));
  return out;
}

struct Process {
  pid_t pid = 0;
  int order = -1;   // to write the port of the store to
  int answer = -1;  // to read the answer from
  std::string text;
};

[[noreturn]] void run_rank(const WorldOptions& asked, int order, int answer,
                           const std::function<std::string(World&)>& body) {
  uint16_t port = 0;
  std::string text;
  if (read(order, &port, sizeof(port)) != sizeof(port)) _exit(1);
  try {
    WorldOptions options = asked;
    options.log = fmt::format("logs/{}", asked.rank);
    options.store = tcp_store({.port = port});
    const auto world = connect(options);
    text = body(*world);
  } catch (const std::exception& e) {
    text = fmt::format("not expected: {}", e.what());
  }
  const ssize_t written = write(answer, text.data(), text.size());
  _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

// Runs the body on ranks that are processes and returns what each answers; the ones that are killed
// nothing.
std::vector<Process> run_processes(int size, const std::string& transport,
                                   const std::function<std::string(World&)>& body) {
  std::vector<Process> processes;
  for (int rank = 0; rank < size; ++rank) {
    int order[2];
    int answer[2];
    EXPECT_EQ(0, pipe(order) | pipe(answer));
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      close(order[1]);
      close(answer[0]);
      run_rank({.rank = rank, .size = size, .transport = transport, .deadline = 30s}, order[0], answer[1], body);
    }
    close(order[0]);
    close(answer[1]);
    processes.push_back({pid, order[1], answer[0], ""});
  }
  const TcpStoreServer server({});
  const uint16_t port = server.port();
  for (const Process& process : processes) {
    EXPECT_EQ(static_cast<ssize_t>(sizeof(port)), write(process.order, &port, sizeof(port)));
    close(process.order);
  }
  for (Process& process : processes) {
    process.text = read_all(process.answer);
    close(process.answer);
    waitpid(process.pid, nullptr, 0);
  }
  return processes;
}

class Processes : public testing::TestWithParam<std::string> {};

std::vector<std::string> transports_of_processes() {
  std::vector<std::string> names = transports_of_threads();
  std::erase(names, "threads");
  return names;
}

INSTANTIATE_TEST_SUITE_P(Comm, Processes, testing::ValuesIn(transports_of_processes()),
                         [](const auto& instance) { return instance.param; });

TEST_P(Processes, ReduceInMemoryOfTheirOwnAndInTheArena) {
  const auto processes = run_processes(3, GetParam(), [](World& world) -> std::string {
    const HostTensor own = ones(kLarge);
    world.all().all_reduce(own.view(), Reduce::kSum).wait();
    const std::span<std::byte> room = world.allocate(kLarge * 4);
    const View shared{room.data(), own.type()};
    for (float& x : shared.as<float>()) x = 2;
    world.all().all_reduce(shared, Reduce::kSum).wait();
    return fmt::format("{} {}", own.as<float>()[kLarge - 1], shared.as<float>()[kLarge - 1]);
  });

  for (const Process& process : processes) EXPECT_EQ(process.text, "3 6");
}

TEST_P(Processes, AKilledPeerIsNamedWithWhatWasLost) {
  const auto processes = run_processes(3, GetParam(), [](World& world) -> std::string {
    const HostTensor tensor = ones(kLarge);
    world.all().all_reduce(tensor.view(), Reduce::kSum).wait();
    if (world.rank() == 1) raise(SIGKILL);
    const std::string first = error_of([&] { world.all().all_reduce(tensor.view(), Reduce::kSum).wait(); });
    return first + "\n" + error_of([&] { world.all().barrier().wait(); });
  });

  EXPECT_EQ(processes[1].text, "");
  const std::string victim = fmt::format("rank 1 (pid {}", processes[1].pid);
  for (const int rank : {0, 2}) {
    const std::string& text = processes[static_cast<size_t>(rank)].text;
    const std::string first = text.substr(0, text.find('\n'));
    EXPECT_THAT(first, StartsWith(fmt::format("comm: [rank {} of 3] all_reduce (group world, 1.14 MiB f32): ", rank)));
    EXPECT_THAT(first, HasSubstr(victim));
    EXPECT_THAT(
        first, testing::ContainsRegex(fmt::format(
                   " at {}\\) is gone \\(its log: logs/1\\) after [0-9.]+ s, [0-9.]+ ([KM]i)?B of [0-9.]+ [KM]iB done$",
                   host_name())));
    const std::string later = text.substr(text.find('\n') + 1);
    EXPECT_THAT(later, StartsWith(fmt::format("comm: [rank {} of 3] barrier (group world): ", rank)));
    EXPECT_THAT(later, HasSubstr(victim)) << "the later operation must give the same cause";
  }
}

TEST_P(Processes, AMessageFromAKilledPeerEndsWithAnError) {
  const auto processes = run_processes(2, GetParam(), [](World& world) -> std::string {
    const HostTensor tensor = ones(10);
    if (world.rank() == 0) raise(SIGKILL);
    return error_of([&] { world.all().recv(tensor.view(), 0, 9).wait(); });
  });

  EXPECT_THAT(processes[1].text, StartsWith("comm: [rank 1 of 2] recv from rank 0 (group world, 40 B f32, tag 9): "
                                            "rank 0 (pid "));
  EXPECT_THAT(processes[1].text, HasSubstr("is gone (its log: logs/0) after"));
}

// As the stages of a pipeline are: each rank exchanges messages with its neighbours alone. How far the others come is
// judged, not how soon they know: that is printed.
TEST_P(Processes, AKilledMiddleStageIsNamedByAllOthers) {
  constexpr int kRounds = 20;
  auto* const killed_at =
      static_cast<double*>(mmap(nullptr, sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto processes = run_processes(4, GetParam(), [&](World& world) -> std::string {
    const HostTensor tensor = ones(kLarge);
    const int rank = world.rank();
    Group& all = world.all();
    int messages = 0;
    const auto end = [&](Work work) {
      work.wait();
      ++messages;
    };
    const std::string error = error_of([&] {
      for (int i = 0; i < 1'000'000; ++i) {
        if (rank == 1 && i == kRounds) {
          *killed_at = now_s();
          raise(SIGKILL);
        }
        if (rank > 0) end(all.recv(tensor.view(), rank - 1, 1));
        if (rank < 3) end(all.send(tensor.view(), rank + 1, 1));
        if (rank < 3) end(all.recv(tensor.view(), rank + 1, 2));
        if (rank > 0) end(all.send(tensor.view(), rank - 1, 2));
      }
    });
    return fmt::format("{} messages {:.1f} ms {}", messages, 1e3 * (now_s() - *killed_at), error);
  });
  munmap(killed_at, sizeof(double));

  for (const int rank : {0, 2, 3}) {
    const std::string& text = processes[static_cast<size_t>(rank)].text;
    EXPECT_THAT(text, HasSubstr(fmt::format("rank 1 (pid {}", processes[1].pid))) << "rank " << rank;
    // The last of the rounds before may be under way when the loss is seen, and one more message begun after them.
    const int of_rounds = kRounds * (rank == 2 ? 4 : 2);
    EXPECT_NEAR(std::stoi(text), of_rounds, 1) << "rank " << rank << ": " << text;
    fmt::print("rank {} knew after {}\n", rank, text.substr(0, text.find(" ms") + 3));
  }
}

TEST_P(Processes, AGroupWithoutTheKilledPeerGoesOn) {
  const auto processes = run_processes(3, GetParam(), [](World& world) -> std::string {
    Group* const pair = world.rank() == 2 ? nullptr : &world.group({0, 1});
    world.all().barrier().wait();
    if (pair == nullptr) raise(SIGKILL);
    const HostTensor tensor = ones(kLarge);
    for (int i = 0; i < 20; ++i) pair->all_reduce(tensor.view(), Reduce::kMax).wait();
    return error_of([&] { world.all().barrier().wait(); });
  });

  for (const int rank : {0, 1}) {
    EXPECT_THAT(processes[static_cast<size_t>(rank)].text, HasSubstr(fmt::format("rank 2 (pid {}", processes[2].pid)));
  }
}

// Ranks that are threads, with the options of the test.
void run_threads(int size, WorldOptions options, const std::function<void(World&)>& body) {
  options.size = size;
  options.store = memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, own = options]() mutable {
      own.rank = rank;
      body(*connect(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class Threads : public testing::TestWithParam<std::string> {
 protected:
  std::array<Work, 2> ended_;
};

INSTANTIATE_TEST_SUITE_P(Comm, Threads, testing::ValuesIn(transports_of_threads()),
                         [](const auto& instance) { return instance.param; });

TEST_P(Threads, ADeadlineThatPassesNamesTheMissingPeer) {
  std::latch both(2);
  std::vector<std::string> errors(3);

  run_threads(3, {.transport = GetParam(), .deadline = 2s}, [&](World& world) {
    if (world.rank() == 2) return both.wait();
    const HostTensor tensor = ones(100);
    errors[static_cast<size_t>(world.rank())] =
        error_of([&] { world.all().all_reduce(tensor.view(), Reduce::kSum).wait(); });
    both.count_down();
  });

  for (const int rank : {0, 1}) {
    const std::string& text = errors[static_cast<size_t>(rank)];
    EXPECT_THAT(text, HasSubstr(fmt::format("[rank {} of 3] all_reduce (group world, 400 B f32): ", rank)));
    EXPECT_THAT(text, HasSubstr("rank 2 ("));
    EXPECT_THAT(text, HasSubstr("did not come in time"));
  }
}

TEST_P(Threads, ADeadlineCountsFromWhenAnOperationLastWentOn) {
  std::vector<std::string> errors(2);
  run_threads(2, {.transport = GetParam(), .deadline = 4s}, [&](World& world) {
    const HostTensor first = ones(100), second = ones(100);
    errors[static_cast<size_t>(world.rank())] = error_of([&] {
      if (world.rank() == 1) std::this_thread::sleep_for(2500ms);
      Work one = world.all().all_reduce(first.view(), Reduce::kSum);
      if (world.rank() == 1) {
        one.wait();
        std::this_thread::sleep_for(2500ms);
      }
      Work other = world.all().all_reduce(second.view(), Reduce::kSum);  // queued behind the first, on rank 0
      one.wait();
      other.wait();
    });
  });
  EXPECT_THAT(errors, testing::Each("none"));
}

TEST_P(Threads, AWorkCanBeAskedAfterItsWorldHasEnded) {
  run_threads(2, {.transport = GetParam(), .deadline = 60s}, [&](World& world) {
    const HostTensor tensor = ones(100);
    ended_[static_cast<size_t>(world.rank())] = world.all().all_reduce(tensor.view(), Reduce::kSum);
    ended_[static_cast<size_t>(world.rank())].wait();
  });
  for (Work& work : ended_) EXPECT_TRUE(work.done());
}

TEST_P(Threads, WithoutABackgroundThreadWaitingDoesTheWork) {
  run_threads(2, {.transport = GetParam(), .deadline = 60s, .background = false}, [&](World& world) {
    const HostTensor tensor = ones(kLarge);
    Work work = world.all().all_reduce(tensor.view(), Reduce::kSum);
    while (!work.done()) std::this_thread::yield();
    work.wait();
    EXPECT_EQ(tensor.as<float>()[7], 2.0F);
  });
}

// One for all ranks.
class OneWord final : public Watch {
 public:
  std::string wait() override {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return released_ || !word_.empty(); });
    return word_;
  }
  void release() override {
    const std::lock_guard lock(mutex_);
    released_ = true;
    moved_.notify_all();
  }
  void say(const std::string& word) {
    const std::lock_guard lock(mutex_);
    word_ = word;
    moved_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable moved_;
  std::string word_;
  bool released_ = false;
};

TEST_P(Threads, AVerdictEndsWhatIsPendingWithItsReason) {
  const auto watch = std::make_shared<OneWord>();
  std::vector<std::string> errors(2);
  std::latch both(2), told(2);  // nobody leaves before both have been told
  run_threads(2, {.transport = GetParam(), .deadline = 60s, .watch = watch}, [&](World& world) {
    const HostTensor tensor = ones(10);
    const auto rank = static_cast<size_t>(world.rank());
    Work pending = world.all().recv(tensor.view(), 1 - world.rank(), 7);
    both.arrive_and_wait();
    watch->say("node 2 has gone");
    errors[rank] = error_of([&] { pending.wait(); });
    told.arrive_and_wait();
  });

  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(errors[rank],
                StartsWith(fmt::format("comm: [rank {} of 2] recv from rank {} (group world, 40 B f32, tag 7): ", rank,
                                       1 - rank)));
    EXPECT_THAT(errors[rank], HasSubstr("node 2 has gone after "));
    EXPECT_THAT(errors[rank], HasSubstr(", 0 B of 40 B done"));
  }
}

TEST_P(Threads, ARankThatThrowsReleasesTheOthers) {
  const auto run = [&] {
    spawn_ranks(3, GetParam(), [](World& world) {
      if (world.rank() == 1) fail(ErrorKind::kIo, "the disk is full");
      world.all().barrier().wait();
    });
  };

  EXPECT_EQ("other: the disk is full", error_of(run));
}

TEST_P(Threads, APeerThatLeavesWhileItIsNeededIsNamed) {
  std::string error;
  run_threads(2, {.transport = GetParam(), .deadline = 60s}, [&](World& world) {
    if (world.rank() == 0) return;
    const HostTensor tensor = ones(10);
    error = error_of([&] { world.all().recv(tensor.view(), 0, 0).wait(); });
  });

  EXPECT_THAT(error, StartsWith("comm: [rank 1 of 2] recv from rank 0 (group world, 40 B f32, tag 0): rank 0 ("));
  EXPECT_THAT(error, HasSubstr("has left after"));
}

TEST_P(Threads, AWorldThatEndsWithOperationsInFlightFailsThem) {
  Work left;
  std::string error;
  run_threads(2, {.transport = GetParam(), .deadline = 60s}, [&](World& world) {
    if (world.rank() == 0) {
      const HostTensor tensor = ones(1);
      left = world.all().recv(tensor.view(), 1, 0);
      return;
    }
    error = error_of([&] { world.all().barrier().wait(); });
  });

  EXPECT_THAT(error, HasSubstr("rank 0 ended its world with operations in flight"));
  EXPECT_THAT(error_of([&] { left.wait(); }), HasSubstr("rank 0 ended its world with operations in flight"));
}

TEST_P(Threads, AMessageOfAnotherSizeIsAnErrorWithBothSizes) {
  std::string error;
  run_threads(2, {.transport = GetParam(), .deadline = 60s}, [&](World& world) {
    const HostTensor tensor = ones(world.rank() == 0 ? 2 : 3);
    if (world.rank() == 0) {
      world.all().send(tensor.view(), 1, 4).wait();
      error_of([&] { world.all().barrier().wait(); });
    } else {
      error = error_of([&] { world.all().recv(tensor.view(), 0, 4).wait(); });
    }
  });

  EXPECT_THAT(error, HasSubstr("[rank 1 of 2] recv from rank 0 (group world, 12 B f32, tag 4): rank 0 ("));
  EXPECT_THAT(error, HasSubstr("sent 8 bytes where 12 were expected"));
}

TEST_P(Threads, ARankThatDoesNotJoinIsNamed) {
  const auto store = memory_store();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      errors[static_cast<size_t>(rank)] = error_of(
          [&] { connect({.rank = rank, .size = 3, .transport = GetParam(), .store = store, .join_deadline = 500ms}); });
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(errors[0],
            "timeout: [rank 0 of 3] connect (job job): rank 1 did not join within 0.5 s; start all "
            "3 ranks");
  EXPECT_THAT(errors[2], StartsWith("timeout: [rank 2 of 3] connect (job job): rank "));
}

TEST_P(Threads, ARankThatIsStartedTwiceIsToldSo) {
  const auto store = memory_store();
  const auto error_of_rank = [&](int rank, std::chrono::milliseconds deadline) {
    return error_of([&] {
      connect({.rank = rank, .size = 2, .transport = GetParam(), .store = store, .join_deadline = deadline});
    });
  };
  EXPECT_THAT(error_of_rank(1, 1ms), StartsWith("timeout: "));  // it waits for rank 0
  EXPECT_EQ(error_of_rank(1, 60s),
            fmt::format("other: [rank 1 of 2] connect (job job): process {} on {} has already joined as "
                        "rank 1; start each rank once, with a number of its own",
                        getpid(), host_name()));
}

TEST(Shm, DifferentCallsOfTwoMembersAreAnErrorThatTellsBoth) {
  std::vector<std::string> errors(2);
  run_threads(2, {.transport = "shm", .deadline = 60s}, [&](World& world) {
    const HostTensor tensor = ones(4);
    errors[static_cast<size_t>(world.rank())] = error_of([&] {
      if (world.rank() == 0) {
        world.all().all_reduce(tensor.view(), Reduce::kSum).wait();
      } else {
        world.all().broadcast(tensor.view(), 1).wait();
      }
    });
  });

  EXPECT_THAT(errors[0] + errors[1], HasSubstr("must make the same calls in the same order"));
}

}  // namespace
}  // namespace trireme::comm::faults_test
