// What a rank and its launcher tell each other while it runs, in a few pages of memory that both see. The rank tells
// what it waits for, how many steps it has done and, when asked by a signal, where its threads are; the launcher tells
// that the job is over and why. Writing costs no system call; a rank that is stopped leaves the pages as they were.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/comm/comm.h"

namespace trireme::launch {

struct RankPage {
  static constexpr size_t kText = 1024;

  std::atomic<uint32_t> edition{0};           // odd while `text` is written
  std::atomic<int64_t> steps{0};              // of training
  std::atomic<double> waiting_since{0};       // seconds as now_s(); 0: it does not wait for others
  std::atomic<int> on_disk{0};                // threads that wait for a disk (base/disk_wait.h)
  std::atomic<bool> joining{false};           // it waits for the others to start
  std::atomic<bool> joined{false};            // they have
  std::atomic<int> interrupted{0};            // the signal that makes it end in order, with 128 + signal
  std::atomic<bool> was_sent{false};          // and it was this rank that was sent it
  std::atomic<bool> saves_when_asked{false};  // SIGUSR1 does not end it
  char text[kText] = {};                      // what it waits for

  // The frames of one thread's stack, innermost first, as addresses in the rank.
  static constexpr int kFrames = 48;
  static constexpr int kTraces = 32;
  struct Trace {
    std::atomic<bool> ready{false};
    int thread = 0;
    int depth = 0;
    void* frames[kFrames] = {};
  };
  std::atomic<int> trace_signal{0};  // sent to a thread it makes one; 0: nobody listens for it
  std::atomic<int> traces_begun{0};
  Trace traces[kTraces] = {};

  std::atomic<bool> is_over{false};
  char reason[kText] = {};
  std::atomic<uint32_t> bell{0};  // a thread of the rank sleeps until it moves
  std::atomic<double> told{0};    // when that thread had read the reason, to pass it on, as now_s(); 0: it has not

  // By the rank: what it has waited for, for this many seconds already, or "" when it no longer waits.
  void tell(std::string_view what, double waited_s = 0);
  // By the launcher; empty when the rank is just writing.
  std::string read() const;
  // By the launcher, once: why the job is over. What the rank waits for ends with that.
  void judge(std::string_view why);
  // By the rank; empty while the job is not over.
  std::string verdict() const;
  // Wakes who sleeps on the bell.
  void ring();
};

// The rank's side: a thread of it sleeps until the launcher has judged, and rings.
class PageWatch final : public comm::Watch {
 public:
  explicit PageWatch(RankPage& page) : page_(page) {}
  std::string wait() override;
  void release() override;

 private:
  RankPage& page_;
  std::atomic<bool> released_{false};
};

// The launcher's side: a page that its worker finds by the descriptor in TRIREME_PAGE_FD.
class SharedPage {
 public:
  SharedPage();  // throws kIo
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  RankPage& page() const { return *page_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  RankPage* page_ = nullptr;
};

// This process's page, or null when its launcher gave none.
RankPage* own_page();

}  // namespace trireme::launch
