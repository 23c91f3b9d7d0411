#include "trireme/backend/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/backend/cpu/isa/isa.h"
#include "trireme/base/error.h"

namespace trireme::device_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

std::string refusal_of(std::string_view description) {
  try {
    make_device(description);
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

TEST(Device, is_made_by_its_name) {
  EXPECT_EQ(make_device("cpu")->name(), "cpu");
  EXPECT_EQ(cpu_device().name(), "cpu");
  EXPECT_THAT(device_names(), Contains("cpu"));
}

TEST(Device, that_is_not_there_is_refused_with_those_that_are) {
  EXPECT_EQ(refusal_of("cpus"), "there is no device 'cpus'. Did you mean 'cpu'?");
  EXPECT_THAT(refusal_of("tpu:4"), HasSubstr("there is no device 'tpu'."));
  EXPECT_THAT(refusal_of("cpu:4"), HasSubstr("'cpu' takes nothing after a colon ('4')"));
}

TEST(Device, cpu_works_where_it_is_called) {
  const std::unique_ptr<DeviceStream> stream = cpu_device().stream();
  int calls = 0;
  DeviceStream* told = nullptr;
  std::shared_ptr<void> state(&calls, [](void*) {});
  KernelFn* const count = [](const KernelArgs& args) { ++*static_cast<int*>(args.state->get()); };
  KernelFn* const keep = [](const KernelArgs& args) { *static_cast<DeviceStream**>(args.state->get()) = args.stream; };
  const Attrs attrs;
  KernelArgs args{.attrs = attrs};
  args.state = &state;
  stream->launch(count, args, "");
  EXPECT_EQ(calls, 1);
  std::shared_ptr<void> place(static_cast<void*>(&told), [](void*) {});
  args.state = &place;
  stream->launch(keep, args, "");
  EXPECT_EQ(told, stream.get());
}

TEST(Device, cpu_says_what_its_instruction_set_has_no_products_of) {
  const std::shared_ptr<Device> guarded = make_device("guarded");
  set_isa(Isa::kBaseline);
  EXPECT_EQ(cpu_device().why_no_quicker(DType::kF32), "");
  EXPECT_EQ(cpu_device().why_no_quicker(DType::kBF16),
            "'baseline' has no products of bf16, so that their operands are widened to f32");
  EXPECT_EQ(guarded->why_no_quicker(DType::kBF16), cpu_device().why_no_quicker(DType::kBF16));
  EXPECT_EQ(guarded->processor(), cpu_device().processor());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64})
    EXPECT_EQ(guarded->fuses_products(dtype), cpu_device().fuses_products(dtype));
  set_isa(process_isa());
}

TEST(View, of_device_memory_is_not_the_hosts_to_touch) {
  const View view{nullptr, {DType::kF32, {2, 3}}, Memory::kDevice};
  const auto refusal = [&](const std::function<void()>& touch) {
    try {
      touch();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidArgument);
      return e.text();
    }
    return std::string();
  };
  EXPECT_THAT(refusal([&] { (void)view.as<float>(); }), HasSubstr("a view of f32[2,3] lies in device memory"));
  EXPECT_THAT(refusal([&] { (void)view.raw(); }), HasSubstr("copy it (Executor::read_input"));
  EXPECT_EQ(view.with({DType::kF32, {6}}).memory, Memory::kDevice);
}

}  // namespace
}  // namespace trireme::device_test
