#include "trireme/layout/deliveries.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

namespace {

// The layout without the cuts of dimensions in which the frames differ.
Layout whole_where_differ(const Layout& layout, const Shape& a, const Shape& b) {
  Layout out = layout;
  for (int dim = 0; dim < a.rank(); ++dim) {
    if (a[dim] != b[dim]) out.dims[static_cast<size_t>(dim)].clear();
  }
  return out;
}

// Whether the wanted layout only cuts more: each rank has all of what it wants.
bool only_cuts_more(const Layout& have, const Layout& want, const Shape& whole, const Mesh& mesh) {
  if (have.partial != want.partial) return false;
  const Shape from = frame(whole, have, mesh), to = frame(whole, want, mesh);
  for (size_t dim = 0; dim < have.dims.size(); ++dim) {
    const Axes &a = have.dims[dim], &b = want.dims[dim];
    if (a.size() > b.size() || !std::equal(a.begin(), a.end(), b.begin())) return false;
    if (!a.empty() && from[static_cast<int>(dim)] != to[static_cast<int>(dim)]) return false;
  }
  return true;
}

}  // namespace

Deliveries::Deliveries(Layout own, TensorType whole, ReshardPlanner& planner)
    : whole_(std::move(whole)), planner_(planner) {
  served_.push_back({std::move(own)});
}

int Deliveries::find(const Layout& layout, const std::function<bool(int)>& shares) const {
  for (size_t i = 0; i < served_.size(); ++i) {
    const Served& served = served_[i];
    if (served.layout == layout && (i == 0 || !shares || shares(served.reader))) return served.piece;
  }
  return -1;
}

int Deliveries::deliver(const Layout& want, int reader, const std::function<bool(int)>& shares) {
  if (const int known = find(want, shares); known >= 0) return known;
  for (size_t i = 1; i < served_.size(); ++i) {
    const bool is_shared = !shares || shares(served_[i].reader);
    if (is_shared && only_cuts_more(served_[i].layout, want, whole_.shape, planner_.mesh()))
      return bring(Served(served_[i]), want, reader, shares);
  }
  return bring(Served(served_[0]), want, reader, shares);
}

// Layouts whose frames differ meet where the dimensions in question are whole.
int Deliveries::bring(const Served& start, const Layout& want, int reader, const std::function<bool(int)>& shares) {
  const Layout& have = start.layout;
  const Shape from = frame(whole_.shape, have, planner_.mesh());
  const Shape to = frame(whole_.shape, want, planner_.mesh());
  if (from == to) return take_steps(start.piece, have, want, from, reader, shares);
  const Layout middle = whole_where_differ(have, from, to);
  const Shape between = frame(whole_.shape, middle, planner_.mesh());
  int piece = find(middle, shares);
  if (piece < 0) {
    piece = take_steps(start.piece, have, middle, from, reader, shares);
    piece = resize(piece, middle, from, between, whole_.shape);
    served_.push_back({middle, piece, reader});
  }
  Shape widened = between;
  for (int dim = 0; dim < to.rank(); ++dim) {
    if (from[dim] != to[dim]) widened[dim] = to[dim];
  }
  piece = resize(piece, middle, between, widened, widened);
  return take_steps(piece, middle, want, widened, reader, shares);
}

int Deliveries::take_steps(int piece, const Layout& from, const Layout& to, const Shape& size, int reader,
                           const std::function<bool(int)>& shares) {
  Layout have = from;
  for (const ReshardStep& step : planner_.plan(from, to, {whole_.dtype, size}).steps) {
    const bool natural = frame(whole_.shape, step.after, planner_.mesh()) == size;
    if (const int known = natural ? find(step.after, shares) : -1; known >= 0) {
      piece = known;
    } else {
      all_.push_back({.kind = Delivery::Kind::kStep,
                      .from = piece,
                      .step = step,
                      .layout = step.after,
                      .whole = natural ? whole_.shape : size});
      piece = static_cast<int>(all_.size());
      if (natural) served_.push_back({step.after, piece, reader});
    }
    have = step.after;
  }
  invariant(have == to, "a reshard of {} ends in another layout", to_string(whole_));
  return piece;
}

int Deliveries::resize(int piece, const Layout& layout, const Shape& old_size, const Shape& size, const Shape& whole) {
  if (old_size == size) return piece;
  all_.push_back({.kind = Delivery::Kind::kResize,
                  .from = piece,
                  .old_size = old_size,
                  .size = size,
                  .layout = layout,
                  .whole = whole});
  return static_cast<int>(all_.size());
}

std::vector<Delivery> deliveries(const Layout& have, const std::vector<Layout>& wants, const TensorType& whole,
                                 ReshardPlanner& planner) {
  Deliveries out(have, whole, planner);
  for (const Layout& want : wants) out.deliver(want);
  return out.all();
}

}  // namespace trireme
