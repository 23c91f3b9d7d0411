#include "trireme/layout/reshard.h"

#include <algorithm>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/said.h"
#include "trireme/layout/collective_cost.h"
#include "trireme/layout/reshard_over_ranks.h"
#include "trireme/layout/reshard_search.h"

namespace trireme {
namespace {

using Kind = ReshardStep::Kind;
using detail::ReshardProblem;
using detail::ReshardUnit;

constexpr size_t kPrimeUnits = 4;  // up to this number of axes, each is a unit of its own

int64_t local_bytes(const TensorType& whole, const Layout& layout, const Mesh& mesh) {
  return TensorType{whole.dtype, local_shape(whole.shape, layout, mesh)}.bytes();
}

// How many leading axes of a dimension both layouts share. They never move: whatever is done after
// them is done within a part they cut.
size_t common_prefix(const Layout& from, const Layout& to, size_t dim) {
  const auto& a = from.dims[dim];
  const auto& b = to.dims[dim];
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Where an axis stands: `kind` and, on a dimension, which place of it.
struct Stand {
  int group = -1;  // a dimension; -1 idle; -2 partial
  int place = 0;
  friend bool operator==(const Stand&, const Stand&) = default;
};

Stand stand_of(const Layout& layout, int axis) {
  const int dim = layout.dim_cut_by(axis);
  if (dim < 0) return {layout.is_partial_over(axis) ? -2 : -1, 0};
  const Axes& axes = layout.dims[static_cast<size_t>(dim)];
  return {dim, static_cast<int>(std::find(axes.begin(), axes.end(), axis) - axes.begin())};
}

// The search's problem and the mesh axes of each unit.
struct AxisUnits {
  ReshardProblem problem;
  std::vector<Axes> axes;
};

class UnitBuilder {
 public:
  UnitBuilder(const Layout& from, const Layout& to, const Mesh& mesh, const ReshardCosts& costs)
      : from_(from), to_(to), mesh_(mesh), costs_(costs) {}

  // Axes that move, then axes idle in both layouts: cutting by those for a while makes other steps
  // cheaper (reduce within hosts, then across). Few axes are all units of their own; of many, those
  // that go the same way over the same kind of link go together.
  std::vector<Axes> build() {
    Axes moving;
    Axes idle;
    for (int axis = 0; axis < mesh_.axes(); ++axis) {
      const Stand here = stand_of(from_, axis);
      if (here.group == -1 && stand_of(to_, axis).group == -1) {
        if (!is_micro_batch_axis(mesh_, axis)) idle.push_back(axis);
      } else if (!stays(axis)) {
        moving.push_back(axis);
      }
    }
    std::stable_sort(moving.begin(), moving.end(), [this](int a, int b) { return key(a) < key(b); });
    std::vector<Axes> units;
    const bool join = moving.size() + idle.size() > kPrimeUnits;
    for (int axis : moving) add(axis, join, units);
    const size_t first_idle = units.size();
    for (int axis : idle) {
      const bool same_axis =
          units.size() > first_idle && join && mesh_.user_axis_of(units.back().back()) == mesh_.user_axis_of(axis);
      if (same_axis) {
        units.back().push_back(axis);
      } else if (units.size() < detail::kMaxUnits) {
        units.push_back({axis});
      }
    }
    return units;
  }

 private:
  bool stays(int axis) const {
    const Stand here = stand_of(from_, axis);
    if (here.group == -2) return stand_of(to_, axis).group == -2;
    if (here.group < 0) return false;
    const auto dim = static_cast<size_t>(here.group);
    return static_cast<size_t>(here.place) < common_prefix(from_, to_, dim);
  }

  // Axes of one dimension in their order; others in the order in which the target takes them.
  std::tuple<int, int, int, int> key(int axis) const {
    const Stand a = stand_of(from_, axis);
    const Stand b = stand_of(to_, axis);
    return {a.group, a.place, b.group, b.place};
  }

  void add(int axis, bool join, std::vector<Axes>& units) const {
    if (join && !units.empty()) {
      const int last = units.back().back();
      const auto next_to = [&](const Layout& layout) {
        Stand before = stand_of(layout, last);
        if (before.group >= 0) ++before.place;
        return before == stand_of(layout, axis);
      };
      if (next_to(from_) && next_to(to_) && costs_.of(last) == costs_.of(axis)) {
        units.back().push_back(axis);
        return;
      }
    }
    units.push_back({axis});
  }

  const Layout& from_;
  const Layout& to_;
  const Mesh& mesh_;
  const ReshardCosts& costs_;
};

detail::UnitState state_of(const Layout& layout, const std::vector<Axes>& units, const std::vector<size_t>& prefix) {
  detail::UnitState state = ~detail::UnitState{0};
  const auto unit_of = [&](int axis) {
    for (size_t unit = 0; unit < units.size(); ++unit) {
      if (units[unit].front() == axis) return static_cast<int>(unit);
    }
    return -1;
  };
  for (size_t dim = 0; dim < layout.dims.size(); ++dim) {
    int place = 0;
    for (size_t i = prefix[dim]; i < layout.dims[dim].size(); ++i) {
      const int unit = unit_of(layout.dims[dim][i]);
      if (unit < 0) continue;
      state = detail::with_place(state, unit, static_cast<uint8_t>(dim * 16 + static_cast<size_t>(place++)));
    }
  }
  for (const PartialAxis& p : layout.partial) {
    if (const int unit = unit_of(p.axis); unit >= 0) {
      state = detail::with_place(state, unit, detail::kPartial);
    }
  }
  return state;
}

AxisUnits make_units(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh,
                     const ReshardCosts& costs) {
  AxisUnits out;
  out.axes = UnitBuilder(from, to, mesh, costs).build();
  if (out.axes.size() > detail::kMaxUnits) return out;
  std::vector<size_t> prefix;
  out.problem.bytes = static_cast<double>(whole.bytes());
  for (size_t dim = 0; dim < from.dims.size(); ++dim) {
    prefix.push_back(common_prefix(from, to, dim));
    const int64_t cuts = mesh.size_of(std::span(from.dims[dim]).first(prefix.back()));
    out.problem.dims.push_back(whole.shape[static_cast<int>(dim)] / cuts);
    out.problem.bytes /= static_cast<double>(cuts);
  }
  for (const Axes& axes : out.axes) {
    ReshardUnit unit{mesh.size_of(axes), static_cast<int>(axes.size()), costs.of(axes[0])};
    for (int axis : axes) {
      unit.link = slower(unit.link, costs.of(axis));
    }
    out.problem.units.push_back(unit);
  }
  out.problem.from = state_of(from, out.axes, prefix);
  out.problem.to = state_of(to, out.axes, prefix);
  return out;
}

class ChainBuilder {
 public:
  explicit ChainBuilder(const Layout& from)
      : now_(from), reduction_(from.partial.empty() ? Reduction::kSum : from.partial[0].reduction) {}

  void add(Kind kind, int dim, int from_dim, Axes axes) {
    if (axes.empty()) return;
    const bool reduces = kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
    ReshardStep step{kind, dim, from_dim, std::move(axes), reduces ? reduction_ : Reduction::kSum, {}};
    step.after = now_ = layout_after(step, now_);
    steps_.push_back(std::move(step));
  }

  // Slices that stand together commute between dimensions; those of one dimension become one.
  std::vector<ReshardStep> finish(const Layout& from) {
    std::vector<ReshardStep> loose = std::move(steps_);
    steps_.clear();
    now_ = from;
    for (size_t i = 0; i < loose.size();) {
      size_t end = i;
      while (end < loose.size() && loose[end].kind == Kind::kSlice) ++end;
      for (int dim = 0; dim < from.rank(); ++dim) {
        Axes axes;
        for (size_t j = i; j < end; ++j) {
          if (loose[j].dim == dim) axes.append(loose[j].axes.begin(), loose[j].axes.end());
        }
        add(Kind::kSlice, dim, -1, std::move(axes));
      }
      if (end == i) {
        add(loose[i].kind, loose[i].dim, loose[i].from_dim, loose[i].axes);
        ++end;
      }
      i = end;
    }
    return std::move(steps_);
  }

 private:
  Layout now_;
  Reduction reduction_;
  std::vector<ReshardStep> steps_;
};

// The chain that always works: gather what must move, reduce, slice. It bounds the search, and is
// the answer where nothing has to be sent or the search is too large.
std::vector<ReshardStep> plain_chain(const Layout& from, const Layout& to) {
  ChainBuilder chain(from);
  Axes to_reduce;
  for (const PartialAxis& p : from.partial) {
    if (!to.is_partial_over(p.axis)) to_reduce.push_back(p.axis);
  }
  std::vector<size_t> done(from.dims.size());
  for (size_t dim = 0; dim < from.dims.size(); ++dim) {
    done[dim] = common_prefix(from, to, dim);
    chain.add(Kind::kAllGather, static_cast<int>(dim), -1,
              {from.dims[dim].begin() + static_cast<int64_t>(done[dim]), from.dims[dim].end()});
  }
  for (size_t dim = 0; dim < to.dims.size(); ++dim) {
    Axes scattered;
    for (; done[dim] < to.dims[dim].size(); ++done[dim]) {
      const auto at = std::find(to_reduce.begin(), to_reduce.end(), to.dims[dim][done[dim]]);
      if (at == to_reduce.end()) break;
      scattered.push_back(*at);
      to_reduce.erase(at);
    }
    chain.add(Kind::kReduceScatter, static_cast<int>(dim), -1, scattered);
  }
  chain.add(Kind::kAllReduce, -1, -1, to_reduce);
  for (size_t dim = 0; dim < to.dims.size(); ++dim) {
    chain.add(Kind::kSlice, static_cast<int>(dim), -1,
              {to.dims[dim].begin() + static_cast<int64_t>(done[dim]), to.dims[dim].end()});
  }
  return chain.finish(from);
}

}  // namespace

std::string_view to_string(ReshardStep::Kind kind) {
  switch (kind) {
    case Kind::kSlice:
      return "slice";
    case Kind::kAllGather:
      return "all_gather";
    case Kind::kAllToAll:
      return "all_to_all";
    case Kind::kAllReduce:
      return "all_reduce";
    case Kind::kReduceScatter:
      return "reduce_scatter";
  }
  return "unknown";
}

std::string to_string(const ReshardStep& step, const Mesh& mesh) {
  const std::string axes = print_axes(step.axes, mesh);
  const std::string_view kind = to_string(step.kind);
  const std::string_view reduction = to_string(step.reduction);
  switch (step.kind) {
    case Kind::kAllToAll:
      return fmt::format("{}(dim {} -> {} over {})", kind, step.from_dim, step.dim, axes);
    case Kind::kAllReduce:
      return fmt::format("{}({} over {})", kind, reduction, axes);
    case Kind::kReduceScatter:
      return fmt::format("{}({}, dim {} over {})", kind, reduction, step.dim, axes);
    case Kind::kSlice:
    case Kind::kAllGather:
      break;
  }
  return fmt::format("{}(dim {} over {})", kind, step.dim, axes);
}

std::string to_string(std::span<const ReshardStep> steps, const Mesh& mesh) {
  std::string out;
  for (const ReshardStep& step : steps) {
    out += fmt::format("{}{}", out.empty() ? "" : "; ", to_string(step, mesh));
  }
  return out;
}

Layout layout_after(const ReshardStep& step, const Layout& before) {
  Layout out = before;
  const auto dim_axes = [&](int dim) -> Axes& {
    invariant(dim >= 0 && dim < out.rank(), "{} of dim {} of a layout of {} dimensions", said(step.kind), dim,
              out.rank());
    return out.dims[static_cast<size_t>(dim)];
  };
  const auto append = [&] {
    for (int axis : step.axes) {
      invariant(!out.uses(axis), "{} by axis {}, which is in use", said(step.kind), axis);
      dim_axes(step.dim).push_back(axis);
    }
  };
  const auto remove = [&](Axes& axes) {
    const bool are_last = axes.size() >= step.axes.size() &&
                          std::equal(step.axes.begin(), step.axes.end(), axes.end() - step.axes.size());
    invariant(are_last, "{} over axes that are not the last of their dimension", said(step.kind));
    axes.resize(axes.size() - step.axes.size());
  };
  const auto reduce = [&] {
    for (int axis : step.axes) {
      const auto at = std::find(out.partial.begin(), out.partial.end(), PartialAxis{axis, step.reduction});
      invariant(at != out.partial.end(), "{} over axis {}, over which nothing is partial ({})", said(step.kind), axis,
                said(step.reduction));
      out.partial.erase(at);
    }
  };
  switch (step.kind) {
    case Kind::kSlice:
      append();
      break;
    case Kind::kAllGather:
      remove(dim_axes(step.dim));
      break;
    case Kind::kAllToAll:
      remove(dim_axes(step.from_dim));
      append();
      break;
    case Kind::kAllReduce:
      reduce();
      break;
    case Kind::kReduceScatter:
      reduce();
      append();
      break;
  }
  return out;
}

ReshardCosts reshard_costs(const Machine& machine, const Mesh& mesh) {
  ReshardCosts out;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const LinkLevel& level = machine.level_of(mesh.stride(axis) * mesh.axis(axis).size);
    out.axes.push_back({level.latency_s, level.bytes_per_s});
  }
  return out;
}

int64_t bytes_sent(const ReshardStep& step, const TensorType& whole, const Mesh& mesh) {
  const int64_t p = mesh.size_of(step.axes);
  const int64_t after = local_bytes(whole, step.after, mesh);
  if (!step.axes.empty() && is_micro_batch_axis(mesh, step.axes[0])) return 0;
  switch (step.kind) {
    case Kind::kSlice:
      return 0;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      return after / p * (p - 1);
    case Kind::kAllReduce:
      return (2 * (p - 1) * after + p - 1) / p;
    case Kind::kReduceScatter:
      return after * (p - 1);
  }
  return 0;
}

double seconds(const ReshardStep& step, const TensorType& whole, const Mesh& mesh, const ReshardCosts& costs) {
  if (step.axes.empty()) return 0;
  LinkCost link = costs.of(step.axes[0]);
  for (const int axis : step.axes) link = slower(link, costs.of(axis));
  const int64_t ranks = mesh.size_of(step.axes);
  auto payload = static_cast<double>(local_bytes(whole, step.after, mesh));
  if (step.kind == Kind::kReduceScatter) payload *= static_cast<double>(ranks);
  if (is_micro_batch_axis(mesh, step.axes[0])) payload = 0;
  return detail::step_seconds(step.kind, static_cast<int>(step.axes.size()), ranks, link, payload, costs);
}

void detail::check_ends(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh) {
  const std::string what = to_string(whole);
  check(from, whole.shape, mesh, what);
  check(to, whole.shape, mesh, what);
  for (const PartialAxis& p : to.partial) {
    if (std::find(from.partial.begin(), from.partial.end(), p) != from.partial.end()) continue;
    fail(ErrorKind::kInvalidArgument,
         "reshard of {} from {} to {}: the target is partial ({}) over '{}' and the source is not; "
         "a "
         "whole value cannot be taken apart, so let the target replicate or cut over '{}'",
         what, to_string(from, mesh), to_string(to, mesh), to_string(p.reduction), mesh.axis(p.axis).name,
         mesh.axis(p.axis).name);
  }
}

std::vector<ReshardStep> detail::plan_over_ranks(const Layout& from, const Layout& to, const TensorType& whole,
                                                 const Mesh& mesh, const ReshardCosts& costs) {
  check_ends(from, to, whole, mesh);
  std::vector<ReshardStep> plain = plain_chain(from, to);
  double bound = 0;
  bool sends = false;
  for (const ReshardStep& step : plain) {
    bound += seconds(step, whole, mesh, costs);
    sends = sends || step.kind != Kind::kSlice;
  }
  if (!sends) return plain;
  const AxisUnits units = make_units(from, to, whole, mesh, costs);
  if (units.axes.size() > detail::kMaxUnits) return plain;
  const auto moves = detail::cheapest_moves(units.problem, bound, costs);
  if (!moves) return plain;
  ChainBuilder chain(from);
  for (const detail::UnitMove& move : *moves) {
    Axes axes;
    for (int i = 0; i < move.count; ++i) {
      const Axes& more = units.axes[static_cast<size_t>(move.units[static_cast<size_t>(i)])];
      axes.append(more.begin(), more.end());
    }
    chain.add(move.kind, move.dim, move.from_dim, std::move(axes));
  }
  return chain.finish(from);
}

size_t ReshardPlans::KeyHash::operator()(const KeyView& key) const {
  size_t h = hash(key.from) * 31 + hash(key.to);
  for (int64_t size : key.whole.shape) h = h * 1000003 + static_cast<size_t>(size);
  return h * 31 + static_cast<size_t>(key.whole.dtype);
}

const Reshard* ReshardPlans::find(const Layout& from, const Layout& to, const TensorType& whole) const {
  const auto found = plans_.find(KeyView{from, to, whole});
  return found == plans_.end() ? nullptr : &found->second;
}

const Reshard& ReshardPlans::add(const Layout& from, const Layout& to, const TensorType& whole, Reshard made) {
  return plans_.emplace(Key{from, to, whole}, std::move(made)).first->second;
}

std::shared_ptr<ReshardPlans> ReshardMemory::of(const Mesh& mesh, const ReshardCosts& costs) {
  constexpr size_t kMostMeshes = 32;
  const auto is_same = [&](const Known& known) { return known.mesh == mesh && known.costs == costs; };
  const auto found = std::ranges::find_if(known_, is_same);
  if (found != known_.end()) return found->plans;
  if (known_.size() == kMostMeshes) known_.pop_front();
  return known_.emplace_back(Known{mesh, costs, std::make_shared<ReshardPlans>()}).plans;
}

ReshardPlanner::ReshardPlanner(Mesh mesh, ReshardCosts costs, ReshardMemory* memory)
    : mesh_(std::move(mesh)),
      costs_(std::move(costs)),
      plans_(memory != nullptr ? memory->of(mesh_, costs_) : std::make_shared<ReshardPlans>()) {}

const Reshard& ReshardPlanner::plan(const Layout& from, const Layout& to, const TensorType& whole) {
  if (const Reshard* const found = plans_->find(from, to, whole)) return *found;
  Reshard out;
  out.steps = plan_reshard(from, to, whole, mesh_, costs_);
  int64_t before = local_bytes(whole, from, mesh_);
  for (const ReshardStep& step : out.steps) {
    out.seconds += trireme::seconds(step, whole, mesh_, costs_);
    out.bytes_sent += trireme::bytes_sent(step, whole, mesh_);
    const int64_t after = local_bytes(whole, step.after, mesh_);
    out.peak_bytes = std::max(out.peak_bytes, before + after);
    before = after;
  }
  return plans_->add(from, to, whole, std::move(out));
}

}  // namespace trireme
