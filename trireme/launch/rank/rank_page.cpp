#include "trireme/launch/rank/rank_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "trireme/base/clock.h"
#include "trireme/base/disk_wait.h"
#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme::launch {
namespace {

constexpr size_t kBytes = 16384;
static_assert(sizeof(RankPage) <= kBytes);

void* map(int fd) {
  return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

RankPage* find_own_page() {
  const auto fd = flag_int("TRIREME_PAGE_FD", 3, 1'000'000);
  if (!fd) return nullptr;
  struct stat info {};
  const bool ours = fstat(static_cast<int>(*fd), &info) == 0 && info.st_size == kBytes;
  void* const memory = ours ? map(static_cast<int>(*fd)) : MAP_FAILED;
  if (memory == MAP_FAILED) return nullptr;  // the variable came from further up
  fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);
  auto* const page = static_cast<RankPage*>(memory);
  count_disk_waits(page->on_disk);
  return page;
}

}  // namespace

void RankPage::tell(std::string_view what, double waited_s) {
  if (what.empty()) {
    waiting_since.store(0);
    return;
  }
  edition.fetch_add(1);
  const size_t length = std::min(what.size(), kText - 1);
  std::memcpy(text, what.data(), length);
  text[length] = '\0';
  edition.fetch_add(1);
  if (waiting_since.load() == 0) waiting_since.store(now_s() - waited_s);
}

std::string RankPage::read() const {
  char copy[kText];
  const uint32_t before = edition.load();
  std::memcpy(copy, text, kText);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (before % 2 != 0 || edition.load() != before) return "";
  copy[kText - 1] = '\0';
  return copy;
}

void RankPage::judge(std::string_view why) {
  if (is_over.load()) return;
  const size_t length = std::min(why.size(), kText - 1);
  std::memcpy(reason, why.data(), length);
  reason[length] = '\0';
  is_over.store(true);
  ring();
}

void RankPage::ring() {
  bell.fetch_add(1);
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);  // of all processes that map the page
}

std::string RankPage::verdict() const {
  return is_over.load() ? reason : "";
}

std::string PageWatch::wait() {
  for (;;) {
    const uint32_t heard = page_.bell.load();
    const std::string why = page_.verdict();
    if (!why.empty()) page_.told.store(now_s());
    if (!why.empty() || released_.load()) return why;
    syscall(SYS_futex, &page_.bell, FUTEX_WAIT, heard, nullptr, nullptr, 0);
  }
}

void PageWatch::release() {
  released_.store(true);
  page_.ring();
}

SharedPage::SharedPage() : fd_(memfd_create("trireme-rank", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  // Sealed: a worker that shrinks it would end the launcher.
  const bool ok = fd_ >= 0 && ftruncate(fd_, kBytes) == 0 &&
                  fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  void* const memory = ok ? map(fd_) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (fd_ >= 0) close(fd_);
    fail(ErrorKind::kIo, "launch: cannot share memory with a rank ({})", std::strerror(error));
  }
  page_ = new (memory) RankPage;
}

SharedPage::~SharedPage() {
  munmap(page_, kBytes);
  close(fd_);
}

RankPage* own_page() {
  static RankPage* const page = find_own_page();
  return page;
}

}  // namespace trireme::launch
