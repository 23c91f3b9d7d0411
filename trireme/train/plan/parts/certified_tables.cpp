#include "trireme/train/plan/parts/certified_tables.h"

namespace trireme {
namespace {

CertifiedPart certified_part(const PartPrice& part) {
  return {.forward = part.forward,
          .input_grad = part.input_grad,
          .weight_grad = part.weight_grad,
          .again = part.again,
          .moving_forward = part.moving_forward,
          .moving_backward = part.moving_backward,
          .leaving = part.leaving,
          .returning = part.returning,
          .update = part.update,
          .sync = part.sync,
          .persistent = part.persistent,
          .gradients = part.gradients,
          .held = part.held,
          .kept = part.kept,
          .waiting = part.waiting,
          .work = part.work,
          .coming = part.coming,
          .going = part.going,
          .updating = part.updating,
          .host = part.host,
          .disk = part.disk,
          .kept_host = part.kept_host,
          .kept_disk = part.kept_disk,
          .adding = part.adding,
          .sums = part.sums};
}

}  // namespace

CertifiedCut certified_cut(const InnerWay& way) {
  return {.tp = way.tp,
          .cp = way.cp,
          .ep = way.ep,
          .dp = way.dp,
          .sp = way.sp,
          .vocabulary = way.vocabulary,
          .zero = way.zero,
          .rows = way.rows,
          .recompute = way.recompute,
          .kept_slices = way.kept_slices,
          .keep = way.keep,
          .place = {.state = way.place.state, .update = way.place.update}};
}

InnerWay inner_way(const CertifiedCut& cut) {
  return {.tp = cut.tp,
          .cp = cut.cp,
          .ep = cut.ep,
          .dp = cut.dp,
          .sp = cut.sp,
          .vocabulary = cut.vocabulary,
          .zero = cut.zero,
          .rows = cut.rows,
          .recompute = cut.recompute,
          .kept_slices = cut.kept_slices,
          .keep = cut.keep,
          .place = {.state = cut.place.state, .update = cut.place.update}};
}

PartPrice part_price(const CertifiedPart& part) {
  return {.forward = part.forward,
          .input_grad = part.input_grad,
          .weight_grad = part.weight_grad,
          .again = part.again,
          .moving_forward = part.moving_forward,
          .moving_backward = part.moving_backward,
          .update = part.update,
          .sync = part.sync,
          .persistent = part.persistent,
          .gradients = part.gradients,
          .held = part.held,
          .kept = part.kept,
          .waiting = part.waiting,
          .work = part.work,
          .coming = part.coming,
          .going = part.going,
          .updating = part.updating,
          .host = part.host,
          .disk = part.disk,
          .leaving = part.leaving,
          .returning = part.returning,
          .kept_host = part.kept_host,
          .kept_disk = part.kept_disk,
          .adding = part.adding,
          .sums = part.sums};
}

CertifiedTable certified_prices(const InnerWay& way, const std::optional<PartPrices>& prices) {
  CertifiedTable out{.cut = certified_cut(way), .is_refused = !prices};
  if (!prices) return out;
  out.crossing = prices->crossing;
  out.is_joined = prices->is_joined;
  for (const PartPrice& part : prices->parts) out.parts.push_back(certified_part(part));
  return out;
}

}  // namespace trireme
