#include "trireme/exec/run/tier_memory.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/exec/background/bound_disk_move.h"
#include "trireme/exec/background/bound_move.h"
#include "trireme/exec/disk/blocks.h"
#include "trireme/exec/memory/memory_plan.h"

namespace trireme {

// The device's arena may be given, and is shared with other ranks; what lies on the host besides, and on the disk, is
// this rank's alone.
TierMemory::TierMemory(const ExecutionPlan& plan, const TierOptions& options, Device& device, TierMemory* beside)
    : plan_(plan), device_(device) {
  if (!use(Tier::kDevice, options.arena)) take(Tier::kDevice, options.world);
  if (!use(Tier::kHost, options.host_arena)) {
    take(Tier::kHost, options.world);
    locked_ = device.lock_pages(arena(Tier::kHost));
  }
  if (std::ranges::none_of(plan.buffers, [](const Buffer& buffer) { return buffer.tier == Tier::kDisk; })) return;
  const int64_t on_disk = plan.arena(Tier::kDisk).bytes;
  invariant(on_disk == 0 || beside == nullptr, "plan '{}': what lies on the disk is both its own and another's",
            plan.name);
  file_ = on_disk > 0 ? std::make_shared<SwapFile>(options.disk, on_disk) : beside ? beside->file_ : nullptr;
  invariant(file_ != nullptr, "plan '{}' reads a disk, and nobody says whose", plan.name);
  place_disk_values(beside);
}

// Whether the arena is one that was given.
bool TierMemory::use(Tier tier, std::optional<std::span<std::byte>> given) {
  if (!given) return false;
  const auto bytes = static_cast<size_t>(plan_.arena(tier).bytes);
  require(given->size() >= bytes, "the plan needs an arena of {} bytes{}; {} are given", bytes,
          tier == Tier::kHost ? " on the host" : "", given->size());
  arenas_[static_cast<size_t>(tier)] = given->first(bytes);
  return true;
}

// What is sent lies where other ranks read it in place, if that is in the host's memory: results of kernels, or their
// staging. All ranks take such memory together, also a crew that needs none where others do.
void TierMemory::take(Tier tier, comm::World* world) {
  const auto bytes = static_cast<size_t>(plan_.arena(tier).bytes);
  const bool is_sent = tier == Tier::kDevice ? device_.memory() == Memory::kHost : !device_.sends_in_place();
  if (is_sent && world != nullptr && world->size() > 1) {
    arenas_[static_cast<size_t>(tier)] = world->allocate(std::max<size_t>(bytes, 1)).first(bytes);
    return;
  }
  if (bytes == 0) return;
  DeviceMemory& memory = own_[static_cast<size_t>(tier)];
  memory = (tier == Tier::kDevice ? device_ : cpu_device()).allocate(static_cast<int64_t>(bytes));
  arenas_[static_cast<size_t>(tier)] = memory.bytes;
}

void TierMemory::place_disk_values(TierMemory* beside) {
  disk_values_.resize(plan_.buffers.size(), nullptr);
  std::vector<std::vector<int64_t>> cuts(plan_.buffers.size());
  for (const PlanValue& value : plan_.values) {
    if (value.offset > 0) cuts[static_cast<size_t>(value.buffer)].push_back(value.offset);
  }
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const Buffer& buffer = plan_.buffers[i];
    if (buffer.tier != Tier::kDisk) continue;
    const std::string name = name_of(static_cast<int>(i));
    if (buffer.offset < 0) {
      disk_values_[i] = &beside->on_disk(beside->plan_.input(name).value);
      continue;
    }
    std::ranges::sort(cuts[i]);
    cuts[i].erase(std::ranges::unique(cuts[i]).begin(), cuts[i].end());
    disk_values_[i] =
        &own_disk_values_.emplace_back(name, buffer.offset, buffer.bytes, cuts[i], plan_.disk_blocks.bytes);
  }
}

std::string TierMemory::name_of(int buffer) const {
  for (const PlanInput& input : plan_.inputs) {
    if (buffer_of(input.value) == buffer) return input.name;
  }
  for (const Action& action : plan_.actions) {
    if (is_move(*action.op) && buffer_of(action.out[0]) == buffer) return fmt::format("what '{}' keeps", action.scope);
  }
  return "";
}

std::span<std::byte> TierMemory::bytes_of(const Buffer& buffer) const {
  return arena(buffer.tier).subspan(static_cast<size_t>(buffer.offset), static_cast<size_t>(buffer.bytes));
}

View TierMemory::view_of(int value) const {
  const Buffer& buffer = plan_.buffers[static_cast<size_t>(buffer_of(value))];
  const TensorType& type = plan_.values[static_cast<size_t>(value)].type;
  if (buffer.tier == Tier::kDisk) return {nullptr, type, Memory::kDisk};
  return {arena(buffer.tier).data() + plan_.offset_of(value), type,
          buffer.tier == Tier::kDevice ? device_.memory() : Memory::kHost};
}

std::span<std::byte> idle_between_steps(const ExecutionPlan& plan, std::span<std::byte> arena) {
  std::vector<std::pair<int64_t, int64_t>> taken{{0, plan.arena().persistent},
                                                 {plan.arena().bytes, plan.arena().bytes}};
  const auto take = [&](int value) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(plan.values[static_cast<size_t>(value)].buffer)];
    if (buffer.tier == Tier::kDevice && buffer.offset >= 0)
      taken.emplace_back(buffer.offset, buffer.offset + buffer.bytes);
  };
  for (const PlanInput& input : plan.inputs) take(input.value);
  for (const PlanOutput& output : plan.outputs) take(output.value);
  std::ranges::sort(taken);
  std::pair<int64_t, int64_t> best{0, 0};
  int64_t free_from = 0;
  for (const auto& [begin, end] : taken) {
    if (begin - free_from > best.second - best.first) best = {free_from, begin};
    free_from = std::max(free_from, align_buffer(end, plan.alignment));
  }
  return arena.subspan(static_cast<size_t>(best.first), static_cast<size_t>(best.second - best.first));
}

Movers::Movers(const ExecutionPlan& plan, TierMemory& memory, Device& device)
    : plan_(plan), memory_(memory), device_(device) {
  const auto moves = [&](Lane lane) {
    return static_cast<size_t>(std::ranges::count(plan.actions, lane, &Action::lane));
  };
  if (moves(Lane::kIn) > 0) in_ = device.copy_stream();
  if (moves(Lane::kOut) > 0) out_ = device.copy_stream();
  if (memory.file() == nullptr) return;
  load_ = std::make_unique<DiskLane>(memory.file()->file(), device, plan.disk_blocks);
  store_ = std::make_unique<DiskLane>(memory.file()->file(), device, plan.disk_blocks);
  load_->reserve(1 + moves(Lane::kLoad));
  store_->reserve(1 + moves(Lane::kStore));
}

std::unique_ptr<Background> Movers::bind(const Action& action, const View& from, const View& to,
                                         std::span<std::byte> staging, DeviceStream& compute) {
  switch (action.lane) {
    case Lane::kIn:
      return std::make_unique<BoundMove>(from, to, device_, compute, *in_);
    case Lane::kOut:
      return std::make_unique<BoundMove>(from, to, device_, compute, *out_);
    case Lane::kLoad:
      return std::make_unique<BoundDiskMove>(transfer(false, to, action.in[0], staging), device_, compute, *load_);
    default:
      return std::make_unique<BoundDiskMove>(transfer(true, from, action.out[0], staging), device_, compute, *store_);
  }
}

DiskTransfer Movers::transfer(bool stores, const View& value, int on_disk, std::span<std::byte> staging) {
  return {.stores = stores,
          .value = value,
          .at = &memory_.on_disk(on_disk),
          .begin = plan_.values[static_cast<size_t>(on_disk)].offset,
          .staging = staging};
}

std::string Movers::disk() const {
  const SwapFile* const file = memory_.file();
  if (file == nullptr) return "";
  return fmt::format("{} bytes in '{}', by {}{}", file->bytes(), file->directory(), load_->way(),
                     file->is_direct() ? "" : " and the system's cache");
}

void Movers::read(int value, const View& to) {
  transfer_now(transfer(false, to, value, {}));
}

void Movers::write(int value, const View& from) {
  transfer_now(transfer(true, from, value, {}));
}

void Movers::transfer_now(DiskTransfer transfer) {
  const HostTensor staging({DType::kU8, {staged_by_disk(transfer.value.bytes(), plan_.disk_blocks)}});
  transfer.staging = staging.view().raw();
  DiskLane& lane = transfer.stores ? *store_ : *load_;
  lane.wait(lane.put(transfer));
}

}  // namespace trireme
