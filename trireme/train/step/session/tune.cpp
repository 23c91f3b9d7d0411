#include "trireme/train/step/session/tune.h"

#include <algorithm>
#include <span>

#include "trireme/base/clock.h"
#include "trireme/base/cores.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/heap.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

// What the first rank has, on all ranks.
std::string of_first_rank(std::string text, comm::World& world) {
  auto size = static_cast<int64_t>(text.size());
  world.all().broadcast({reinterpret_cast<std::byte*>(&size), {DType::kI64, {1}}}, 0).wait();
  text.resize(static_cast<size_t>(size));
  world.all().broadcast({reinterpret_cast<std::byte*>(text.data()), {DType::kU8, {size}}}, 0).wait();
  return text;
}

// Calls fn(work, query) for what the plans have to do that `known` has no way for.
template <class Fn>
void each_unknown(const std::vector<const ExecutionPlan*>& plans, const Device& device, const Tuning& known, Fn&& fn) {
  for (const ExecutionPlan* plan : plans) {
    const auto types_of = [&](const std::vector<int>& values) {
      std::vector<TensorType> types;
      for (const int id : values) types.push_back(plan->values[static_cast<size_t>(id)].type);
      return types;
    };
    for (const Action& action : plan->actions) {
      if (action.kernel.empty() || !action.op->kernel) continue;  // a move by a kernel of casts
      const std::vector<TensorType> in = types_of(action.in);
      const std::vector<TensorType> out = types_of(action.out);
      const TypeArgs types{in, out, action.attrs};
      const KernelQuery query{*action.op, types, types, Numerics::kFast, plan->threads};
      const std::string work = device.work_to_measure(query);
      if (!work.empty() && known.way_of(work) == nullptr) fn(work, query);
    }
  }
}

bool lacks_any(const std::vector<const ExecutionPlan*>& plans, const Device& device, const Tuning& known) {
  bool lacks = false;
  each_unknown(plans, device, known, [&](const std::string&, const KernelQuery&) { lacks = true; });
  return lacks;
}

// The cores of each rank, in their order.
std::vector<Cores> cores_of_ranks(comm::World* world) {
  const Cores own = allowed_cores();
  if (world == nullptr || world->size() == 1) return {own};
  constexpr int64_t kMostCores = 1024;
  std::vector<uint8_t> mine(kMostCores), all(mine.size() * static_cast<size_t>(world->size()));
  for (const int core : own) {
    if (core < kMostCores) mine[static_cast<size_t>(core)] = 1;
  }
  const auto view = [](std::vector<uint8_t>& of) {
    return View{reinterpret_cast<std::byte*>(of.data()), {DType::kU8, {static_cast<int64_t>(of.size())}}};
  };
  world->all().all_gather(view(mine), view(all)).wait();
  std::vector<Cores> out(static_cast<size_t>(world->size()));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) out[i / mine.size()].push_back(static_cast<int>(i % mine.size()));
  }
  return out;
}

// Of each thread that computes on the first rank's host beside its calling one, but for those beyond the first 16, as
// each has operands of its own. Neighbours are ranks that follow.
std::vector<Cores> cores_beside(const std::vector<Cores>& of_ranks, int threads, int busy) {
  constexpr int kMostThreads = 16;
  std::vector<Cores> out;
  for (int thread = 1; thread < std::min(busy, kMostThreads); ++thread)
    out.push_back(of_ranks[std::min(static_cast<size_t>(thread / threads), of_ranks.size() - 1)]);
  return out;
}

Tuning measured(const std::vector<const ExecutionPlan*>& plans, const Device& device, const Tuning& known,
                std::span<const Cores> others) {
  Tuning found{known.machine, {}, known.busy};
  const double begin = now_s();
  each_unknown(plans, device, known, [&](const std::string& work, const KernelQuery& query) {
    if (found.way_of(work) != nullptr) return;
    const std::string way = device.quickest_way(query, others);
    TRIREME_LOG(kDebug, "dispatch", "of the ways to do {}, '{}' is the quickest", work, way);
    found.ways.emplace(work_among(work, known.busy), way);
  });
  trim_heap(0);  // of what threads that are gone have freed, so that a rank takes the memory that its plan says
  TRIREME_LOG(kInfo, "dispatch", "measured the ways to do {} kinds of work for {:.2f} s, up to {} at a time",
              found.ways.size(), now_s() - begin, counted(static_cast<int64_t>(others.size()) + 1, "thread"));
  return found;
}

// That a file can be written to, before anything is measured for it.
bool can_keep(const std::string& path, const Tuning& known, bool is_named) {
  std::string why = "neither XDG_CACHE_HOME nor HOME names a folder";
  try {
    if (!path.empty()) {
      add_to_tuning(path, {known.machine, {}});
      return true;
    }
  } catch (const Error& e) {
    if (is_named) throw;
    why = e.text();
  }
  TRIREME_LOG(kWarn, "dispatch", "the quickest kernels are not looked for: {}; name a file with --tuning, or 'off'",
              why);
  return false;
}

}  // namespace

std::shared_ptr<const Tuning> known_tuning(const TuningPlace& place, const Device& device, int busy) {
  const std::string machine = device.tuned_as();
  if (place.is_off() || machine.empty()) return nullptr;
  const std::string path = place.file(machine);
  if (path.empty()) return std::make_shared<const Tuning>(Tuning{machine, {}, busy});
  try {
    Tuning out = read_tuning(path, machine);
    out.busy = busy;
    return std::make_shared<const Tuning>(std::move(out));
  } catch (const Error& e) {
    if (place.is_named()) throw;
    TRIREME_LOG(kWarn, "dispatch", "{}", e.text());
    return std::make_shared<const Tuning>(Tuning{machine, {}, busy});
  }
}

std::shared_ptr<const Tuning> agreed_tuning(const std::shared_ptr<const Tuning>& mine, comm::World* world) {
  if (world == nullptr || world->size() == 1) return mine;
  Tuning out = parse_tuning(of_first_rank(to_string(*mine), *world));
  out.busy = mine->busy;
  return std::make_shared<const Tuning>(std::move(out));
}

std::shared_ptr<const Tuning> tune(const std::vector<const ExecutionPlan*>& plans, const Device& device,
                                   const Tuning& known, const TuningPlace& place, comm::World* world) {
  const std::string machine = device.tuned_as(), path = machine.empty() ? "" : place.file(machine);
  Tuning all = known;
  const bool is_first = world == nullptr || world->rank() == 0;
  const std::vector<Cores> of_ranks = cores_of_ranks(world);
  if (is_first && lacks_any(plans, device, known) && can_keep(path, known, place.is_named())) {
    const std::vector<Cores> others = cores_beside(of_ranks, plans.front()->threads, known.busy);
    const Tuning kept = add_to_tuning(path, measured(plans, device, known, others));
    all.ways.insert(kept.ways.begin(), kept.ways.end());
  }
  const auto agreed = agreed_tuning(std::make_shared<const Tuning>(std::move(all)), world);
  return agreed->ways == known.ways ? nullptr : agreed;
}

}  // namespace trireme
