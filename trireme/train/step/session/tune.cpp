#include "trireme/train/step/session/tune.h"

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
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
      if (!work.empty() && !known.ways.contains(work)) fn(work, query);
    }
  }
}

bool lacks_any(const std::vector<const ExecutionPlan*>& plans, const Device& device, const Tuning& known) {
  bool lacks = false;
  each_unknown(plans, device, known, [&](const std::string&, const KernelQuery&) { lacks = true; });
  return lacks;
}

Tuning measured(const std::vector<const ExecutionPlan*>& plans, const Device& device, const Tuning& known) {
  Tuning found{known.machine, {}};
  const double begin = now_s();
  each_unknown(plans, device, known, [&](const std::string& work, const KernelQuery& query) {
    if (found.ways.contains(work)) return;
    const std::string way = device.quickest_way(query);
    TRIREME_LOG(kDebug, "dispatch", "of the ways to do {}, '{}' is the quickest", work, way);
    found.ways.emplace(work, way);
  });
  TRIREME_LOG(kInfo, "dispatch", "measured the ways to do {} kinds of work for {:.2f} s", found.ways.size(),
              now_s() - begin);
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

std::shared_ptr<const Tuning> known_tuning(const TuningPlace& place, const Device& device) {
  const std::string machine = device.tuned_as();
  if (place.is_off() || machine.empty()) return nullptr;
  const std::string path = place.file(machine);
  if (path.empty()) return std::make_shared<const Tuning>(Tuning{machine, {}});
  try {
    return std::make_shared<const Tuning>(read_tuning(path, machine));
  } catch (const Error& e) {
    if (place.is_named()) throw;
    TRIREME_LOG(kWarn, "dispatch", "{}", e.text());
    return std::make_shared<const Tuning>(Tuning{machine, {}});
  }
}

std::shared_ptr<const Tuning> agreed_tuning(const std::shared_ptr<const Tuning>& mine, comm::World* world) {
  if (world == nullptr || world->size() == 1) return mine;
  return std::make_shared<const Tuning>(parse_tuning(of_first_rank(to_string(*mine), *world)));
}

std::shared_ptr<const Tuning> tune(const std::vector<const ExecutionPlan*>& plans, const Device& device,
                                   const Tuning& known, const TuningPlace& place, comm::World* world) {
  const std::string machine = device.tuned_as(), path = machine.empty() ? "" : place.file(machine);
  Tuning all = known;
  const bool is_first = world == nullptr || world->rank() == 0;
  if (is_first && lacks_any(plans, device, known) && can_keep(path, known, place.is_named())) {
    const Tuning kept = add_to_tuning(path, measured(plans, device, known));
    all.ways.insert(kept.ways.begin(), kept.ways.end());
  }
  const auto agreed = agreed_tuning(std::make_shared<const Tuning>(std::move(all)), world);
  return agreed->ways == known.ways ? nullptr : agreed;
}

}  // namespace trireme
