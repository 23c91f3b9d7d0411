#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/op/registry.h"

namespace trireme::described_test {
namespace {

using testing::HasSubstr;

constexpr const char* kFile = R"(name = "toy"
devices_per_host = 2

[device]
memory_bytes = 1000000
memory_bytes_per_s = 1e9
alignment = 512

[[device.scratch]]
ops = "exp"
bytes = 100
of_operands = 2
of_results = 0.5

[[device.scratch]]
ops = "*"
bytes = 7

[device.flops_per_s]
f32 = 1e9

[[level]]
name = "host"
devices = 2
latency_s = 1e-6
bytes_per_s = 1e9
)";

class Described : public testing::Test {
 protected:
  Described() { std::ofstream(path_) << kFile; }
  ~Described() override { std::filesystem::remove(path_); }

  std::string path_ = std::filesystem::temp_directory_path() / "trireme-described.toml";
};

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.text();
  }
  return "";
}

TEST_F(Described, is_what_its_file_says) {
  const std::shared_ptr<Device> device = make_device("described:" + path_);
  EXPECT_EQ(device->name(), "toy");
  EXPECT_EQ(device->memory_bytes(), 1000000);
  EXPECT_EQ(device->alignment(), 512);
  EXPECT_EQ(device->bits(Numerics::kFast), "fast");
}

TEST_F(Described, of_bf16_fuses_products_where_it_works_in_the_hosts_memory) {
  EXPECT_TRUE(make_device("described:" + path_)->fuses_products(DType::kBF16));
  std::string file = kFile;
  file.insert(file.find("alignment"), "to_host_bytes_per_s = 64e9\nfrom_host_bytes_per_s = 64e9\n");
  std::ofstream(path_) << file;
  const std::shared_ptr<Device> gpu = make_device("described:" + path_);
  EXPECT_FALSE(gpu->fuses_products(DType::kBF16));
  EXPECT_TRUE(gpu->fuses_products(DType::kF32));
}

TEST_F(Described, the_first_rule_that_names_an_op_says_its_scratch) {
  const std::shared_ptr<Device> device = make_device("described:" + path_);
  const std::vector<TensorType> one{{DType::kF32, {10}}};
  const Attrs none;
  const TypeArgs types{one, one, none};
  const KernelChoice exp = device->choose({op("exp"), types, types});
  EXPECT_EQ(exp.name, "exp.toy");
  EXPECT_EQ(exp.scratch_bytes, 100 + 2 * 40 + 20);
  EXPECT_EQ(device->choose({op("log"), types, types}).scratch_bytes, 7);
}

TEST_F(Described, has_no_code_and_says_so) {
  const std::shared_ptr<Device> device = make_device("described:" + path_);
  EXPECT_EQ(device->kernel(op("exp"), "exp.toy"), nullptr);
  const std::string text = refusal([&] { device->stream(); });
  EXPECT_THAT(text, HasSubstr("describes device 'toy' and has no kernels for it"));
  EXPECT_THAT(text, HasSubstr("trireme explain --stage memory"));
  EXPECT_EQ(refusal([&] { device->allocate(4); }), text);
  EXPECT_THAT(refusal([&] { device->bits(Numerics::kInvariant); }), HasSubstr("use 'fast'"));
  ThreadPool pool(1);
  EXPECT_FALSE(device->measure_peak(pool, {}));
  EXPECT_EQ(device->processor(), "");
}

TEST(DescribedDevice, that_no_file_describes_is_refused) {
  EXPECT_THAT(refusal([] { make_device("described"); }), HasSubstr("needs a machine file after a colon"));
  EXPECT_THAT(refusal([] { make_device("described:/nowhere.toml"); }),
              HasSubstr("machine: there is no file '/nowhere.toml'"));
}

}  // namespace
}  // namespace trireme::described_test
