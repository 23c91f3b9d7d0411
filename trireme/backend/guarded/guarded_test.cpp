#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::guarded_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class Guarded : public testing::Test {
 protected:
  View on_device(int64_t elements) {
    memory_.push_back(device_->allocate(elements * 4));
    return {memory_.back().bytes.data(), {DType::kF32, {elements}}, Memory::kDevice};
  }
  std::vector<float> read(DeviceStream& stream, const View& view) {
    const HostTensor copy(view.type);
    stream.copy(view, copy.view());
    stream.synchronize();
    return {copy.as<float>().begin(), copy.as<float>().end()};
  }

  std::shared_ptr<Device> device_ = make_device("guarded:3");
  std::vector<DeviceMemory> memory_;
};

using GuardedDeathTest = Guarded;

TEST_F(GuardedDeathTest, the_host_that_touches_device_memory_ends_and_says_why) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const View view = on_device(300);
  const std::string why = "guarded: the host touches device memory, byte 1200 of an allocation of 4096 bytes";
  volatile std::byte* const data = view.data;
  EXPECT_DEATH(data[1200] = std::byte{1}, why);
  EXPECT_DEATH((void)std::byte{data[1200]}, why);
}

TEST_F(Guarded, memory_holds_no_numbers_before_they_are_written) {
  const auto stream = device_->stream();
  const View view = on_device(3);
  EXPECT_THAT(read(*stream, view), Each(testing::IsNan()));
  const HostTensor values = HostTensor::of<float>({3}, std::vector<float>{1, 2, 3});
  stream->copy(values.view(), view);
  EXPECT_THAT(read(*stream, view), ElementsAre(1, 2, 3));
}

TEST_F(Guarded, a_stream_does_its_work_in_order_and_after_the_call) {
  const auto stream = device_->stream();
  const View view = on_device(1);
  KernelFn* const begin = [](const KernelArgs& args) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    args.out[0].as<float>()[0] = 1;
  };
  KernelFn* const twice = [](const KernelArgs& args) { args.out[0].as<float>()[0] = 2 * args.in[0].as<float>()[0]; };
  const Attrs attrs;
  const std::vector<View> views{view};
  const std::string what = "in a test";
  const auto called = std::chrono::steady_clock::now();
  stream->launch(begin, {.out = views, .attrs = attrs}, what);
  for (int i = 0; i < 5; ++i) stream->launch(twice, {.in = views, .out = views, .attrs = attrs}, what);
  EXPECT_LT(std::chrono::steady_clock::now() - called, std::chrono::milliseconds(20));
  EXPECT_THAT(read(*stream, view), ElementsAre(32));
}

// What `second` reads while `first` writes it, many times: with an event between them, or without.
int stale_reads(Device& device, const View& view, bool with_event) {
  const auto first = device.stream();
  const auto second = device.stream();
  const auto written = device.event();
  KernelFn* const count = [](const KernelArgs& args) { args.out[0].as<float>()[0] += 1; };
  const Attrs attrs;
  const std::vector<View> views{view};
  const std::string what = "in a test";
  const HostTensor zero(view.type);
  first->copy(zero.view(), view);
  first->synchronize();
  int stale = 0;
  for (int i = 1; i <= 100; ++i) {
    first->launch(count, {.out = views, .attrs = attrs}, what);
    first->record(*written);
    if (with_event) second->wait(*written);
    const HostTensor copy(view.type);
    second->copy(view, copy.view());
    second->synchronize();
    stale += copy.as<float>()[0] == static_cast<float>(i) ? 0 : 1;
    first->synchronize();
  }
  return stale;
}

TEST_F(Guarded, events_keep_streams_in_order_and_nothing_else_does) {
  const View view = on_device(1);
  EXPECT_EQ(stale_reads(*device_, view, true), 0);
  EXPECT_GT(stale_reads(*device_, view, false), 0);
}

TEST_F(Guarded, errors_come_out_of_the_next_wait_also_of_a_stream_that_waited) {
  const auto first = device_->stream();
  const auto second = device_->stream();
  const auto done = device_->event();
  const View view = on_device(1);
  const HostTensor one = HostTensor::of<float>({1}, std::vector<float>{1});
  KernelFn* const broken = [](const KernelArgs&) { require(false, "the id {} is not in the table", 7); };
  const Attrs attrs;
  const std::string what = "in embedding at 'wte'";
  first->copy(one.view(), view);
  first->launch(broken, {.attrs = attrs}, what);
  const HostTensor two = HostTensor::of<float>({1}, std::vector<float>{2});
  first->copy(two.view(), view);  // left out
  first->record(*done);
  second->wait(*done);
  for (DeviceStream* stream : {second.get(), first.get()}) {
    try {
      stream->synchronize();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("the id 7 is not in the table"));
      EXPECT_THAT(e.what(), HasSubstr("in embedding at 'wte'"));
    }
  }
  EXPECT_THAT(read(*first, view), ElementsAre(1));
}

TEST_F(Guarded, is_told_a_seed_or_nothing) {
  EXPECT_EQ(make_device("guarded")->name(), "guarded");
  try {
    make_device("guarded:often");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(
        e.text(),
        "the device 'guarded' does not take 'often'; after the colon stands the seed of its delays, as in guarded:7");
  }
}

}  // namespace
}  // namespace trireme::guarded_test
