#include "trireme/backend/cpu/device/copy_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/tensor/host_tensor.h"

namespace trireme::copy_stream_test {
namespace {

HostTensor counted(int64_t first) {
  HostTensor out(TensorType{DType::kI64, {5000}});
  for (int64_t& each : out.as<int64_t>()) each = first++;
  return out;
}

// More copies than the stream has room for at first; each is done when its event has come.
TEST(CopyStream, copies_in_order_beside_the_caller) {
  const std::unique_ptr<DeviceStream> copies = cpu_device().copy_stream();
  const std::unique_ptr<DeviceStream> compute = cpu_device().stream();
  const std::unique_ptr<DeviceEvent> arrived = cpu_device().event();
  std::vector<HostTensor> chain;
  for (int64_t i = 0; i < 100; ++i) chain.push_back(counted(1000 * i));
  for (size_t i = 1; i < chain.size(); ++i) copies->copy(chain[i - 1].view(), chain[i].view());
  copies->record(*arrived);
  compute->wait(*arrived);
  EXPECT_TRUE(std::ranges::equal(chain.back().view().raw(), counted(0).view().raw()));
}

TEST(CopyStream, waits_for_another) {
  const std::unique_ptr<DeviceStream> out = cpu_device().copy_stream(), in = cpu_device().copy_stream();
  const std::unique_ptr<DeviceEvent> left = cpu_device().event();
  const HostTensor from = counted(7), at_home = counted(0), to = counted(0);
  for (int round = 0; round < 50; ++round) {
    out->copy(from.view(), at_home.view());
    out->record(*left);
    in->wait(*left);
    in->copy(at_home.view(), to.view());
    in->synchronize();
    ASSERT_TRUE(std::ranges::equal(to.view().raw(), from.view().raw()));
  }
}

TEST(CopyStream, an_event_of_the_kernels_stream_has_come_already) {
  const std::unique_ptr<DeviceStream> copies = cpu_device().copy_stream(), compute = cpu_device().stream();
  const std::unique_ptr<DeviceEvent> event = cpu_device().event();
  copies->wait(*event);  // never recorded
  const HostTensor from = counted(1), to = counted(0);
  copies->copy(from.view(), to.view());
  copies->record(*event);
  compute->record(*event);
  copies->wait(*event);
  copies->synchronize();
  EXPECT_EQ(to.as<int64_t>()[4999], 5000);
}

}  // namespace
}  // namespace trireme::copy_stream_test
