#include "trireme/train/plan/certified_tables.h"

namespace trireme {
namespace {

CertifiedPart certified_part(const PartPrice& part) {
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
          .kept = part.kept,
          .waiting = part.waiting,
          .work = part.work};
}

CertifiedPart certified_passes_of(const PartPrice& part) {
  CertifiedPart out = certified_part(part);
  out.update = out.sync = out.persistent = out.gradients = out.kept = out.waiting = out.work = 0;
  return out;
}

}  // namespace

CertifiedCut certified_cut(const InnerWay& way) {
  return {.tp = way.tp,
          .cp = way.cp,
          .ep = way.ep,
          .dp = way.dp,
          .sp = way.sp,
          .zero = way.zero,
          .rows = way.rows,
          .recompute = way.recompute};
}

CertifiedTable certified_passes(const InnerWay& way, bool with_again, const std::optional<PartPrices>& prices) {
  CertifiedTable out{.cut = certified_cut(way), .is_refused = !prices};
  out.cut.dp = 1;
  out.cut.zero = 0;
  if (!with_again) out.cut.recompute = "none";
  if (!prices) return out;
  out.before = certified_passes_of(prices->before);
  out.block = certified_passes_of(prices->block);
  out.after = certified_passes_of(prices->after);
  return out;
}

CertifiedTable certified_prices(const InnerWay& way, const std::optional<PartPrices>& prices) {
  CertifiedTable out{.cut = certified_cut(way), .is_refused = !prices};
  if (!prices) return out;
  out.crossing = prices->crossing;
  out.before = certified_part(prices->before);
  out.block = certified_part(prices->block);
  out.after = certified_part(prices->after);
  return out;
}

}  // namespace trireme
