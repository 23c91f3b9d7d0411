// The memory of a plan's tiers on one rank: an arena for each tier in memory, and the file for what lies on the disk.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/background/background.h"
#include "trireme/exec/disk/disk_lane.h"
#include "trireme/exec/disk/swap_file.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {

// Of an executor's options, what the memory follows from.
struct TierOptions {
  comm::World* world = nullptr;
  std::optional<std::span<std::byte>> arena = {};       // the device's; none: it is taken
  std::optional<std::span<std::byte>> host_arena = {};  // the host's
  std::string disk = {};                                // a directory
};

class TierMemory {
 public:
  // The arenas that `options` does not give are taken here, by all ranks of the world together: so all give the same
  // ones. What the plan has on the disk from outside lies where `beside` has it. The plan outlives it, and so does
  // `beside`.
  TierMemory(const ExecutionPlan& plan, const TierOptions& options, Device& device, TierMemory* beside);

  std::span<std::byte> arena(Tier tier) const { return arenas_[static_cast<size_t>(tier)]; }
  std::span<std::byte> bytes_of(const Buffer& buffer) const;  // not of the disk
  View view_of(int value) const;                        // of one whose buffer has a place; on the disk: no address
  const SwapFile* file() const { return file_.get(); }  // null: the plan has nothing on the disk
  DiskValue& on_disk(int value) { return *disk_values_[static_cast<size_t>(buffer_of(value))]; }

 private:
  int buffer_of(int value) const { return plan_.values[static_cast<size_t>(value)].buffer; }
  bool use(Tier tier, std::optional<std::span<std::byte>> given);
  void take(Tier tier, comm::World* world);
  void place_disk_values(TierMemory* beside);
  std::string name_of(int buffer) const;

  const ExecutionPlan& plan_;
  Device& device_;
  std::array<DeviceMemory, kTiers> own_;  // arenas that nobody gave
  std::array<std::span<std::byte>, kTiers> arenas_;
  std::shared_ptr<void> locked_;  // pages of the host's, while these are here
  std::shared_ptr<SwapFile> file_;
  std::deque<DiskValue> own_disk_values_;
  std::vector<DiskValue*> disk_values_;  // by buffer
};

// The longest run of the arena's bytes in which nothing lies between steps: nothing that stays, is fed to a step or is
// its result.
std::span<std::byte> idle_between_steps(const ExecutionPlan& plan, std::span<std::byte> arena);

// Who carries values between the tiers, beside the kernels: a stream or a lane for each way, where the plan has moves.
class Movers {
 public:
  Movers(const ExecutionPlan& plan, TierMemory& memory, Device& device);

  // The work of an action that is a move; `compute` is the stream of kernels.
  std::unique_ptr<Background> bind(const Action& action, const View& from, const View& to, std::span<std::byte> staging,
                                   DeviceStream& compute);
  std::string disk() const;  // as Executor::disk
  // Between memory of the host and a value that lies on the disk. Not while a step runs.
  void read(int value, const View& to);
  void write(int value, const View& from);

 private:
  DiskTransfer transfer(bool stores, const View& value, int on_disk, std::span<std::byte> staging);
  void transfer_now(DiskTransfer transfer);

  const ExecutionPlan& plan_;
  TierMemory& memory_;
  Device& device_;
  std::unique_ptr<DeviceStream> in_, out_;
  std::unique_ptr<DiskLane> load_, store_;
};

}  // namespace trireme
