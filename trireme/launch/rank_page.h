// What a rank tells its launcher while it runs, in a page of memory that both see: what it waits
// for and how many steps it has done. Writing costs no system call; a rank that is stopped leaves
// the page as it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::launch {

struct RankPage {
  static constexpr size_t kText = 1024;

  std::atomic<uint32_t> edition{0};      // odd while `text` is written
  std::atomic<int64_t> steps{0};         // of training
  std::atomic<double> waiting_since{0};  // seconds as now_s(); 0: it does not wait for others
  std::atomic<bool> joining{false};      // it waits for the others to start
  char text[kText] = {};                 // what it waits for

  // By the rank: for what it has waited for so many seconds already, or "" when it waits no more.
  void tell(std::string_view what, double waited_s = 0);
  // By the launcher; empty when the rank is just writing.
  std::string read() const;
};

// The launcher's side: a page that its worker finds by the descriptor in TRIREME_PAGE_FD.
class SharedPage {
 public:
  SharedPage();  // throws kIo
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  const RankPage& page() const { return *page_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  RankPage* page_ = nullptr;
};

// This process's page, or null when its launcher gave none.
RankPage* own_page();

}  // namespace trireme::launch
