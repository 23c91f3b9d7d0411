// operator new and delete of the program. Blocks of up to 512 bytes come from lists of free blocks of their size, which
// each thread has of its own; larger ones from the C library. Compiling makes and drops millions of small objects, many
// at a time, and the C library keeps but a few of a size apart: a quarter of a plan's time went into its lists.
//
// Small blocks lie in one range of addresses, in pages of blocks of one size, so that a block's address says its size.
// What a thread has freed beyond kMostKept bytes of a size goes to a list of all threads, and so does all it has when
// it ends. Where the range is used up, or cannot be had, the C library is asked.
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace {

constexpr size_t kStep = 16, kLargest = 512, kSizes = kLargest / kStep;
constexpr size_t kPage = size_t{1} << 15, kPages = size_t{1} << 20;
constexpr size_t kMostKept = size_t{1} << 21;
constexpr uintptr_t kNowhere = uintptr_t{1} << 63;  // no address is near it

struct Block {
  Block* next;
  uintptr_t
      word;  // in a list of all threads: of the first block the next list, of the second how many blocks there are
};
static_assert(sizeof(Block) == kStep);

struct List {
  Block* first = nullptr;
  size_t count = 0;
};

struct Lists {
  List of_size[kSizes];
  bool is_known = false;  // it is given back when the thread ends
};

constinit thread_local Lists own;

constexpr size_t bytes_of(size_t size) {
  return (size + 1) * kStep;
}

// What all threads share.
class Pages {
 public:
  // By its page; kSizes: it is no small block.
  size_t size_of(const void* block) const {
    const size_t at = reinterpret_cast<uintptr_t>(block) - begin_.load(std::memory_order_relaxed);  // NOLINT
    return at < kPage * kPages ? sizes_[at / kPage] : kSizes;
  }

  // Empty: there are no more.
  List take(size_t size) {
    const std::lock_guard lock(mutex_);
    Block* const first = given_[size];
    if (first == nullptr) return new_page(size);
    given_[size] = reinterpret_cast<Block*>(first->word);  // NOLINT
    return {first, first->next == nullptr ? 1 : first->next->word};
  }

  void give(size_t size, const List& list) {
    if (list.count == 0) return;
    const std::lock_guard lock(mutex_);
    list.first->word = reinterpret_cast<uintptr_t>(given_[size]);  // NOLINT
    if (list.count > 1) list.first->next->word = list.count;
    given_[size] = list.first;
  }

  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  List new_page(size_t size) {
    if (begin_ == kNowhere && !is_refused_) reserve();
    if (begin_ == kNowhere || used_ == kPages) return {};
    char* const page = reinterpret_cast<char*>(begin_.load()) + used_ * kPage;  // NOLINT
    if (mprotect(page, kPage, PROT_READ | PROT_WRITE) != 0) return {};
    sizes_[used_++] = static_cast<uint8_t>(size);
    List out;
    for (size_t at = kPage / bytes_of(size); at-- > 0;) {
      out.first = new (page + at * bytes_of(size)) Block{out.first, 0};
      ++out.count;
    }
    return out;
  }

  void reserve() {
    void* const range = mmap(nullptr, kPage * kPages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    is_refused_ = range == MAP_FAILED;
    if (!is_refused_) begin_ = reinterpret_cast<uintptr_t>(range);  // NOLINT
  }

  std::mutex mutex_;
  std::atomic<uintptr_t> begin_ = kNowhere;
  bool is_refused_ = false;
  size_t used_ = 0;
  Block* given_[kSizes] = {};  // lists
  uint8_t sizes_[kPages] = {};
};

constinit Pages pages;

void give_all_back(void* lists) {
  for (size_t size = 0; size < kSizes; ++size) {
    List& list = static_cast<Lists*>(lists)->of_size[size];
    pages.give(size, std::exchange(list, {}));
  }
}

// Threads give back what they have when they end, and a process that forks has no other thread in the middle of it.
[[gnu::noinline]] void note_thread() {
  static pthread_key_t key;
  static const bool is_made =
      pthread_atfork([] { pages.lock(); }, [] { pages.unlock(); }, [] { pages.unlock(); }) == 0 &&
      pthread_key_create(&key, give_all_back) == 0;
  if (is_made) pthread_setspecific(key, &own);
  own.is_known = true;
}

// Whether the thread has blocks of the size then.
[[gnu::noinline]] bool refill(size_t size) {
  own.of_size[size] = pages.take(size);
  if (!own.is_known) note_thread();
  return own.of_size[size].first != nullptr;
}

void* small_block(size_t size) {
  List& list = own.of_size[size];
  if (list.first == nullptr && !refill(size)) return nullptr;
  Block* const out = list.first;
  list.first = out->next;
  __builtin_prefetch(list.first);  // which is asked for next
  --list.count;
  return out;
}

// Half of what the thread keeps of the size.
[[gnu::noinline]] void give_half(size_t size) {
  List& list = own.of_size[size];
  const List half{list.first, list.count / 2};
  Block* last = half.first;
  for (size_t i = 1; i < half.count; ++i) last = last->next;
  list = {std::exchange(last->next, nullptr), list.count - half.count};
  pages.give(size, half);
}

[[gnu::noinline]] void* large_block(size_t bytes) {
  for (;;) {
    if (void* const out = std::malloc(bytes); out != nullptr) return out;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(size_t bytes) {
  if (bytes <= kLargest) {
    if (void* const out = small_block((std::max<size_t>(bytes, 1) - 1) / kStep); out != nullptr) return out;
  }
  return large_block(std::max<size_t>(bytes, 1));
}

void operator delete(void* block) noexcept {
  const size_t size = pages.size_of(block);
  if (size == kSizes) return std::free(block);
  List& list = own.of_size[size];
  if (list.first == nullptr && !own.is_known) note_thread();
  auto* const freed = static_cast<Block*>(block);
  freed->next = list.first;
  list.first = freed;
  if (++list.count > kMostKept / bytes_of(size)) give_half(size);
}

void operator delete(void* block, size_t) noexcept {
  operator delete(block);
}
