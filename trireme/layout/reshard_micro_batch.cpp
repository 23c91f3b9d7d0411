// plan_reshard. The axis of micro-batches moves no bytes between ranks, so its moves are taken out of the search over
// ranks: sums and gathers over it come first, when a rank has what it needs of all its micro-batches, and cuts by it
// last. What the search is given differs in the axes of ranks alone. Sums are taken before gathers where nothing that
// ranks do comes between: of chunks of positions each is summed as it is made, and they are put together once.
#include <algorithm>

#include "trireme/layout/reshard.h"
#include "trireme/layout/reshard_over_ranks.h"
#include "trireme/layout/reshard_search.h"

namespace trireme {
namespace {

using Kind = ReshardStep::Kind;

class MicroBatchMoves {
 public:
  MicroBatchMoves(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh,
                  const ReshardCosts& costs)
      : now_(from), to_(to), whole_(whole), mesh_(mesh), costs_(costs) {}

  std::vector<ReshardStep> run() {
    Layout begin = now_, end = to_;
    for (size_t dim = 0; dim < end.dims.size(); ++dim) {
      begin.dims[dim].resize(first_moving(now_, to_, dim));
      end.dims[dim].resize(first_moving(to_, now_, dim));
    }
    const Axes sums = sums_to_take();
    const bool late = costs_.sum_micro_batches_late && scatters(begin, end);
    const bool first = !late && costs_.sum_before_micro_batches.empty();
    if (first) reduce(sums);
    for (size_t dim = 0; dim < begin.dims.size(); ++dim) take_out(static_cast<int>(dim), begin.dims[dim].size());
    if (!first && !sums.empty()) {
      move_over_ranks(late ? scattered(end, sums) : with_early_sums());
      reduce(sums);
    }
    move_over_ranks(end);
    for (size_t dim = 0; dim < to_.dims.size(); ++dim) put_in(static_cast<int>(dim));
    return std::move(steps_);
  }

 private:
  bool is_ours(int axis) const { return is_micro_batch_axis(mesh_, axis); }

  // The place in a dimension of the first axis of micro-batches that the other layout does not have there after the
  // same axes; the number of its axes when there is none.
  size_t first_moving(const Layout& of, const Layout& other, size_t dim) const {
    const Axes& axes = of.dims[dim];
    const Axes& there = other.dims[dim];
    const auto same =
        static_cast<size_t>(std::mismatch(axes.begin(), axes.end(), there.begin(), there.end()).first - axes.begin());
    size_t place = same;
    while (place < axes.size() && !is_ours(axes[place])) ++place;
    return place;
  }

  // Gathers the axes from `place` on, those of ranks and ours in steps of their own.
  void take_out(int dim, size_t place) {
    while (now_.dims[static_cast<size_t>(dim)].size() > place) {
      const Axes& axes = now_.dims[static_cast<size_t>(dim)];
      size_t first = axes.size();
      while (first > place && is_ours(axes[first - 1]) == is_ours(axes.back())) --first;
      add({.kind = Kind::kAllGather, .dim = dim, .axes = {axes.begin() + static_cast<int64_t>(first), axes.end()}});
    }
  }

  // Cuts the dimension by what the target has there and the value has not.
  void put_in(int dim) {
    const Axes& want = to_.dims[static_cast<size_t>(dim)];
    for (size_t first = now_.dims[static_cast<size_t>(dim)].size(); first < want.size();) {
      size_t end = first;
      while (end < want.size() && is_ours(want[end]) == is_ours(want[first])) ++end;
      add({.kind = Kind::kSlice,
           .dim = dim,
           .axes = {want.begin() + static_cast<int64_t>(first), want.begin() + static_cast<int64_t>(end)}});
      first = end;
    }
  }

  Axes sums_to_take() const {
    Axes out;
    for (const PartialAxis& p : now_.partial) {
      if (is_ours(p.axis) && !to_.is_partial_over(p.axis)) out.push_back(p.axis);
    }
    return out;
  }

  // Whether sums over ranks leave each rank less than it has.
  bool scatters(const Layout& begin, const Layout& end) const {
    return local_shape(whole_.shape, end, mesh_).elements() < local_shape(whole_.shape, begin, mesh_).elements();
  }

  // The target before sums over micro-batches and those that leave a rank no less than it has: once is enough for them.
  Layout scattered(Layout end, const Axes& sums) const {
    const std::vector<int>& early = costs_.sum_before_micro_batches;
    for (const PartialAxis& p : now_.partial) {
      if (end.uses(p.axis)) continue;
      const bool waits =
          is_ours(p.axis) ? std::ranges::count(sums, p.axis) > 0 : std::ranges::count(early, p.axis) == 0;
      if (waits) end.add_partial(p.axis, p.reduction);
    }
    return end;
  }

  Layout with_early_sums() const {
    const std::vector<int>& early = costs_.sum_before_micro_batches;
    Layout out = now_;
    erase_if(out.partial, [&](const PartialAxis& p) {
      return std::ranges::count(early, p.axis) > 0 && !to_.is_partial_over(p.axis);
    });
    return out;
  }

  void move_over_ranks(const Layout& end) {
    for (ReshardStep& step : detail::plan_over_ranks(now_, end, whole_, mesh_, costs_)) {
      now_ = step.after;
      steps_.push_back(std::move(step));
    }
  }

  void reduce(const Axes& axes) {
    if (axes.empty()) return;
    add({.kind = Kind::kAllReduce, .axes = axes, .reduction = now_.partial.front().reduction});
  }

  void add(ReshardStep step) {
    step.after = now_ = layout_after(step, now_);
    steps_.push_back(std::move(step));
  }

  Layout now_;
  const Layout& to_;
  const TensorType& whole_;
  const Mesh& mesh_;
  const ReshardCosts& costs_;
  std::vector<ReshardStep> steps_;
};

}  // namespace

std::vector<ReshardStep> plan_reshard(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh,
                                      const ReshardCosts& costs) {
  if (micro_batches(mesh) == 1) return detail::plan_over_ranks(from, to, whole, mesh, costs);
  detail::check_ends(from, to, whole, mesh);
  return MicroBatchMoves(from, to, whole, mesh, costs).run();
}

}  // namespace trireme
