#include "trireme/exec/disk/disk_rate.h"

#include <algorithm>
#include <deque>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/disk/disk_lane.h"
#include "trireme/exec/disk/swap_file.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kValueBytes = 32 << 20;  // as a weight of a large model has

// All values, one after the other; how many bytes a second.
double transfer_all(DiskLane& lane, bool stores, const HostTensor& value, const HostTensor& staging,
                    std::deque<DiskValue>& values) {
  const double begin = now_s();
  double bytes = 0;
  for (DiskValue& at : values) {
    const DiskTransfer transfer{.stores = stores, .value = value.view(), .at = &at, .staging = staging.view().raw()};
    lane.wait(lane.put(transfer));
    bytes += static_cast<double>(at.bytes);
  }
  return bytes / std::max(now_s() - begin, 1e-9);
}

}  // namespace

DiskRate measure_disk(const std::string& directory, int64_t bytes) {
  const int64_t count = std::max<int64_t>(1, bytes / kValueBytes);
  const SwapFile file(directory, count * kValueBytes);
  DiskLane lane(file.file(), cpu_device());
  lane.reserve(1);
  const HostTensor value({DType::kU8, {kValueBytes}}), staging({DType::kU8, {staged_by_disk(kValueBytes, {})}});
  std::ranges::fill(value.view().raw(), std::byte{0x5A});
  std::deque<DiskValue> values;
  for (int64_t i = 0; i < count; ++i) values.emplace_back("a value to measure by", i * kValueBytes, kValueBytes);
  DiskRate out{.way = std::string(lane.way()), .is_direct = file.is_direct()};
  out.written_bytes_per_s = transfer_all(lane, true, value, staging, values);
  out.read_bytes_per_s = transfer_all(lane, false, value, staging, values);
  return out;
}

}  // namespace trireme
