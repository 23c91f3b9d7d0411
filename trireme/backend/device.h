// Device: where a rank's kernels run: which kernels it has, its memory, and streams of work. The planner asks it what a
// step takes, the executor runs the step on it; neither knows which one it is. A device is a folder of backend/ and a
// line of devices.def (docs/howto/add_a_device.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/backend/peak.h"
#include "trireme/base/cores.h"
#include "trireme/layout/box.h"
#include "trireme/mesh/tuning.h"
#include "trireme/op/kept_bits.h"
#include "trireme/op/numerics.h"
#include "trireme/op/op_def.h"

namespace trireme {

class ThreadPool;

// A place in a stream, for another stream to wait for.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work for the device, done in the order in which it is put in. The calls may return before it is done: what they are
// given views of, and what the arguments point to, stays until synchronize(). One thread at a time puts work
// into a stream. Errors of the work come out of the next synchronize(), of that stream or of one that waited for it;
// until then the rest of the work is left out, or works on what the failed piece has left.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;
  // `what` says where in the step it is, for errors that come later.
  virtual void launch(KernelFn* kernel, const KernelArgs& args, const std::string& what) = 0;
  // The bytes of one view to another of as many; either may be the host's.
  virtual void copy(const View& from, const View& to) = 0;
  // As trireme::copy_region, within the memory that kernels work in.
  virtual void copy_region(const View& from, const Box& from_box, const View& to, const Box& to_box,
                           const Box& region) = 0;
  // The event is here from now on: it comes when all that was put in before is done.
  virtual void record(DeviceEvent& event) = 0;
  // What is put in from now on begins after the event has come, as it was recorded last.
  virtual void wait(const DeviceEvent& event) = 0;
  virtual void synchronize() = 0;  // returns when all is done
};

// Bytes of a device, freed with the last copy of `owner`.
struct DeviceMemory {
  std::span<std::byte> bytes;
  std::shared_ptr<void> owner;
};

// A kernel is asked for: for a call on these types, in a step that computes with so many threads.
struct KernelQuery {
  const OpDef& op;
  TypeArgs types;
  TypeArgs chosen_by;  // the choice goes by these: the same, or those of the whole tensors, so that no cut changes it
  Numerics numerics = Numerics::kFast;
  int threads = 1;
  const Tuning* tuning =
      nullptr;  // kFast: by which one of several ways to do the same is taken; null: the usual one is
};

// What the planner must know of it.
struct KernelChoice {
  std::string name;
  int64_t scratch_bytes = 0;
  KeptBits kept = {};  // of its results, however the op is cut
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;  // stands in plans, so ranks agree on it

  // The best kernel that it has. Throws kUnsupported when there is none, with the reason.
  virtual KernelChoice choose(const KernelQuery& query) const = 0;
  // This device as a tuning names it; "": it has nothing to measure.
  virtual std::string tuned_as() const { return ""; }
  // What measuring would tell the choice: the work by which a tuning has it, "" for nothing. And what it tells, in
  // about a tenth of a second, on the calling thread, while as many other threads do the same, each on one of its
  // cores: a core's threads share its units, and all cores share the memory.
  virtual std::string work_to_measure(const KernelQuery& /*query*/) const { return ""; }
  virtual std::string quickest_way(const KernelQuery& /*query*/, std::span<const Cores> /*others*/) const { return ""; }
  // The kernel that a plan names; null: the device has no such kernel.
  virtual KernelFn* kernel(const OpDef& op, std::string_view name) const = 0;
  // What bits come of kernels that are chosen so, and of which instructions: "fast on avx2", "invariant on avx512".
  // Stands in plans, so ranks agree on it. Throws kUnsupported, with the reason, for numerics that its kernels do not
  // keep.
  virtual std::string bits(Numerics numerics) const = 0;
  // The model of what its kernels run on, where the last bits of kFast depend on it; "": they do not, or nobody knows.
  virtual std::string processor() const { return ""; }
  // Why products of this type take as long as those of f32; "": they take less, or nobody knows.
  virtual std::string why_no_quicker(DType /*dtype*/) const { return ""; }
  // Whether a product of this type and ops on its rows are better one op than several (pass/fuse_rows).
  virtual bool fuses_products(DType dtype) const { return dtype == DType::kF32; }
  // What it reaches with this pool; null: it does not measure that.
  virtual std::optional<Peak> measure_peak(ThreadPool& /*pool*/, const PeakOptions& /*options*/) const {
    return std::nullopt;
  }

  // kHost: kernels work in the host's memory. kDevice: the host's threads cannot touch what allocate() gives.
  virtual Memory memory() const = 0;
  // Whether ranks send each other what lies in its memory from there; otherwise it is carried to the host and back.
  virtual bool sends_in_place() const = 0;
  virtual int64_t memory_bytes() const = 0;  // that one rank may take; 0: as much as the host has
  virtual int64_t alignment() const = 0;     // of buffers in it, bytes
  virtual DeviceMemory allocate(int64_t bytes) = 0;
  // Locks the pages of these bytes of the host's memory, where that makes copies between them and its own quicker and
  // the system allows it, until the last copy of what is returned goes. Null: nothing is locked.
  virtual std::shared_ptr<void> lock_pages(std::span<std::byte> /*host*/) { return nullptr; }
  virtual std::unique_ptr<DeviceStream> stream() = 0;
  // For copies that run beside kernels.
  virtual std::unique_ptr<DeviceStream> copy_stream() { return stream(); }
  virtual std::unique_ptr<DeviceEvent> event() = 0;
};

// The device of this description: a name of devices.def and, after a colon, what that device is told ("guarded:7",
// "described:h200.toml"). Throws kNotFound with the names there are, kInvalidArgument for what it cannot be told.
std::shared_ptr<Device> make_device(std::string_view description);
std::vector<std::string> device_names();
std::vector<std::string> device_docs();  // for help, of each: "cuda or cuda:N, a GPU of NVIDIA's"

// Where nothing else is asked for: kernels on the calling thread and its pool, in the host's memory.
Device& cpu_device();

}  // namespace trireme
