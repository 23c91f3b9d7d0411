// Memory of the device guarded. It has two addresses: the one in views, which nobody may touch (a read or a write there
// ends the process, and says why), and one by which the device's own work reaches the same bytes.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "trireme/backend/device.h"

namespace trireme::guarded {

class GuardedMemory {
 public:
  DeviceMemory allocate(int64_t bytes);  // of no numbers: f32 and bf16 there are NaN, integers -1

  // Where the device's work finds the bytes of a view of device memory; views of the host's stay as they are.
  View reached(const View& view) const;
  std::byte* reached(std::byte* address) const;  // an address that is not the device's stays as it is

 private:
  struct Mapping;
  struct Mappings {
    mutable std::mutex mutex;
    std::map<const std::byte*, const Mapping*> by_address;
  };
  std::shared_ptr<Mappings> mappings_ = std::make_shared<Mappings>();  // allocations may outlive the device
};

}  // namespace trireme::guarded
