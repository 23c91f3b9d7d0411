// Requests in io_uring's two rings of memory that is shared with the kernel (io_uring_setup(2), io_uring_enter(2)):
// this side writes at the tail of the one and reads at the head of the other.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/exec/disk/block_io.h"

namespace trireme {
namespace {

// What the kernel maps, for as long as this lives.
class SharedRing {
 public:
  SharedRing() = default;
  SharedRing(int ring, size_t bytes, uint64_t what) : bytes_(bytes) {
    void* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, static_cast<off_t>(what));
    if (at != MAP_FAILED) at_ = static_cast<std::byte*>(at);
  }
  SharedRing(const SharedRing&) = delete;
  SharedRing& operator=(const SharedRing&) = delete;
  ~SharedRing() {
    if (at_ != nullptr) ::munmap(at_, bytes_);
  }

  bool is_mapped() const { return at_ != nullptr; }
  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(at_ + offset);
  }

 private:
  std::byte* at_ = nullptr;
  size_t bytes_ = 0;
};

size_t ring_bytes(const io_uring_params& how) {
  return std::max<size_t>(how.sq_off.array + how.sq_entries * sizeof(uint32_t),
                          how.cq_off.cqes + how.cq_entries * sizeof(io_uring_cqe));
}

class UringIo : public BlockIo {
 public:
  UringIo(int ring, int file, const io_uring_params& how)
      : ring_(ring),
        file_(file),
        how_(how),
        rings_(ring, ring_bytes(how), IORING_OFF_SQ_RING),
        requests_(ring, how.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES) {}
  UringIo(const UringIo&) = delete;
  UringIo& operator=(const UringIo&) = delete;
  ~UringIo() override { ::close(ring_); }

  bool is_mapped() const { return rings_.is_mapped() && requests_.is_mapped(); }
  std::string_view name() const override { return "io_uring"; }

  void begin(const BlockRequest& request) override {
    std::atomic_ref<uint32_t> tail(*rings_.at<uint32_t>(how_.sq_off.tail));
    const uint32_t place = tail.load(std::memory_order_relaxed) & *rings_.at<uint32_t>(how_.sq_off.ring_mask);
    io_uring_sqe& entry = requests_.at<io_uring_sqe>(0)[place];
    entry = {};
    entry.opcode = request.writes ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = file_;
    entry.off = static_cast<uint64_t>(request.offset);
    entry.addr = reinterpret_cast<uintptr_t>(request.bytes.data());
    entry.len = static_cast<uint32_t>(request.bytes.size());
    entry.user_data = request.tag;
    rings_.at<uint32_t>(how_.sq_off.array)[place] = place;
    tail.fetch_add(1, std::memory_order_release);
    enter(1, 0);
  }

  BlockEnd end() override {
    std::atomic_ref<uint32_t> head(*rings_.at<uint32_t>(how_.cq_off.head));
    std::atomic_ref<uint32_t> tail(*rings_.at<uint32_t>(how_.cq_off.tail));
    const uint32_t place = head.load(std::memory_order_relaxed);
    while (tail.load(std::memory_order_acquire) == place) enter(0, 1);
    const io_uring_cqe& entry =
        rings_.at<io_uring_cqe>(how_.cq_off.cqes)[place & *rings_.at<uint32_t>(how_.cq_off.ring_mask)];
    const BlockEnd out{entry.user_data, entry.res};
    head.store(place + 1, std::memory_order_release);
    return out;
  }

 private:
  void enter(unsigned begins, unsigned ends) const {
    for (;;) {
      const long done =
          ::syscall(SYS_io_uring_enter, ring_, begins, ends, ends > 0 ? IORING_ENTER_GETEVENTS : 0U, nullptr, 0);
      if (done >= 0) return;
      if (errno == EINTR || errno == EAGAIN || errno == EBUSY) continue;
      fail(ErrorKind::kIo, "io_uring takes no more requests: {}", std::strerror(errno));
    }
  }

  int ring_, file_;
  io_uring_params how_;
  SharedRing rings_, requests_;
};

}  // namespace

std::unique_ptr<BlockIo> io_by_uring(int file, int most, int& code) {
  io_uring_params how{};
  const long ring = ::syscall(SYS_io_uring_setup, static_cast<unsigned>(most), &how);
  if (ring < 0) {
    code = errno;
    return nullptr;
  }
  auto out = std::make_unique<UringIo>(static_cast<int>(ring), file, how);
  // One mapping for both rings came with Linux 5.4, reads and writes of plain buffers with 5.6.
  constexpr uint32_t kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS;
  code = (how.features & kNeeded) == kNeeded ? ENOMEM : ENOSYS;
  if (code == ENOSYS || !out->is_mapped()) return nullptr;
  code = 0;
  return out;
}

}  // namespace trireme
