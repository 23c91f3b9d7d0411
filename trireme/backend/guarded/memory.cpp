#include "trireme/backend/guarded/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::guarded {
namespace {

// Addresses that fault, where a signal handler finds them.
struct Range {
  std::atomic<uintptr_t> begin = 0, end = 0;
};
constexpr size_t kMostRanges = 4096;  // more are guarded too, but their faults are not explained
std::array<Range, kMostRanges> ranges;

struct sigaction before;

// A number and texts into a line, with what may be called in a signal handler.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const size_t count = std::min(text.size(), room_.size() - size_);
    std::memcpy(room_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  Line& operator<<(uintptr_t number) {
    std::array<char, 20> digits;
    size_t at = digits.size();
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << std::string_view(digits.data() + at, digits.size() - at);
  }
  void write() const { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, room_.data(), size_); }

 private:
  std::array<char, 320> room_;
  size_t size_ = 0;
};

// There is nobody to throw to. Says what has happened, and lets what handled the signal before do its work: the
// instruction faults again.
void explain_fault(int signal, siginfo_t* info, void* /*context*/) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Range& range : ranges) {
    const uintptr_t begin = range.begin, end = range.end;
    if (at < begin || at >= end) continue;
    Line line;
    line << "guarded: the host touches device memory, byte " << at - begin << " of an allocation of " << end - begin
         << " bytes; it reads and writes that by Executor::read_input, read_output, write_input and fill_inputs, and a "
            "kernel only when it runs in a stream\n";
    line.write();
    break;
  }
  ::sigaction(signal, &before, nullptr);
}

// Others may have put their own handler there since.
void explain_faults() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  struct sigaction now {};
  ::sigaction(SIGSEGV, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == explain_fault) return;
  before = now;
  struct sigaction action {};
  action.sa_sigaction = explain_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

Range* note_range(uintptr_t begin, uintptr_t end) {
  for (Range& range : ranges) {
    uintptr_t free = 0;
    if (!range.end.compare_exchange_strong(free, end)) continue;
    range.begin = begin;
    return &range;
  }
  return nullptr;
}

std::byte* mapped(size_t bytes, int protection, int flags, int file) {
  void* const at = ::mmap(nullptr, bytes, protection, flags, file, 0);
  if (at == MAP_FAILED)
    fail(ErrorKind::kIo, "guarded: the system does not map {} bytes; use fewer ranks, or a smaller batch or model",
         bytes);
  return static_cast<std::byte*>(at);
}

}  // namespace

struct GuardedMemory::Mapping {
  size_t size;  // bytes, whole pages
  std::byte* reached = nullptr;
  std::byte* guarded = nullptr;
  Range* range = nullptr;
  std::shared_ptr<Mappings> all;

  Mapping(size_t bytes, std::shared_ptr<Mappings> mappings) : all(std::move(mappings)) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size = (bytes + page - 1) / page * page;
    reached = mapped(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    guarded = mapped(size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    std::memset(reached, 0xff, size);
    range = note_range(reinterpret_cast<uintptr_t>(guarded), reinterpret_cast<uintptr_t>(guarded) + size);
    const std::lock_guard lock(all->mutex);
    all->by_address[guarded] = this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    {
      const std::lock_guard lock(all->mutex);
      all->by_address.erase(guarded);
    }
    if (range != nullptr) {
      range->begin = 0;
      range->end = 0;
    }
    ::munmap(guarded, size);
    ::munmap(reached, size);
  }
};

DeviceMemory GuardedMemory::allocate(int64_t bytes) {
  explain_faults();
  const auto size = static_cast<size_t>(bytes);
  auto mapping = std::make_shared<Mapping>(std::max<size_t>(size, 1), mappings_);
  return {{mapping->guarded, size}, mapping};
}

std::byte* GuardedMemory::reached(std::byte* address) const {
  const std::lock_guard lock(mappings_->mutex);
  const auto after = mappings_->by_address.upper_bound(address);
  if (after == mappings_->by_address.begin()) return address;
  const Mapping& mapping = *std::prev(after)->second;
  const auto at = static_cast<size_t>(address - mapping.guarded);
  return at < mapping.size ? mapping.reached + at : address;
}

View GuardedMemory::reached(const View& view) const {
  if (view.memory == Memory::kHost) return view;
  std::byte* const at = view.bytes() == 0 ? view.data : reached(view.data);
  invariant(view.bytes() == 0 || at != view.data, "guarded: a view of {} is of no memory of this device",
            to_string(view.type));
  return {at, view.type};
}

}  // namespace trireme::guarded
