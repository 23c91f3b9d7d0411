// The device described: what a machine file says of a device (mesh/machine.h), enough to size a step for it, and no
// code to run one. described:machines/h200x8.toml
#include <string>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/mesh/machine.h"

namespace trireme {
namespace {

double bytes_of(std::span<const TensorType> types) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

class DescribedDevice : public Device {
 public:
  DescribedDevice(Machine machine, std::string file) : machine_(std::move(machine)), file_(std::move(file)) {}

  const std::string& name() const override { return machine_.name; }

  // One for each op that computes; what it needs besides, the file says.
  KernelChoice choose(const KernelQuery& query) const override {
    KernelChoice out{.name = fmt::format("{}.{}", query.op.name, machine_.name)};
    for (const ScratchRule& rule : machine_.scratch) {
      if (!matches(rule.ops, query.op.name)) continue;
      const double shares = rule.of_operands * bytes_of(query.types.in) + rule.of_results * bytes_of(query.types.out);
      require(shares < 0x1p62, "{}: the scratch of '{}' for {} is {} bytes", file_, rule.ops, query.op.name, shares);
      out.scratch_bytes = rule.bytes + static_cast<int64_t>(shares);
      break;
    }
    return out;
  }
  KernelFn* kernel(const OpDef& /*op*/, std::string_view /*name*/) const override { return nullptr; }
  std::string bits(Numerics numerics) const override {
    if (numerics == Numerics::kInvariant) {
      fail(ErrorKind::kUnsupported,
           "numerics = 'invariant' is a promise of kernels, and '{}' describes a device without them; use 'fast'",
           file_);
    }
    return "fast";
  }

  // What works in the host's memory, with no link to it, is a CPU.
  bool fuses_products(DType dtype) const override {
    return dtype == DType::kF32 || (dtype == DType::kBF16 && machine_.to_host_bytes_per_s == 0);
  }

  Memory memory() const override { return Memory::kDevice; }
  bool sends_in_place() const override { return true; }
  int64_t memory_bytes() const override { return machine_.memory_bytes; }
  int64_t alignment() const override { return machine_.alignment; }
  DeviceMemory allocate(int64_t /*bytes*/) override { refuse(); }
  std::unique_ptr<DeviceStream> stream() override { refuse(); }
  std::unique_ptr<DeviceEvent> event() override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorKind::kUnsupported,
         "'{}' describes device '{}' and has no kernels for it: a job can be planned for it (trireme explain "
         "--stage memory), not run on it; leave the device out to run on the CPU",
         file_, machine_.name);
  }

  Machine machine_;
  std::string file_;
};

}  // namespace

std::shared_ptr<Device> make_described(std::string_view told) {
  require(!told.empty(),
          "the device 'described' needs a machine file after a colon, as in described:machines/h200x8.toml");
  const std::string file(told);
  return std::make_shared<DescribedDevice>(read_machine(file), file);
}

}  // namespace trireme
