// Prices of parts as a certificate has them.
#pragma once

#include <map>
#include <optional>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/train/plan/part_prices.h"

namespace trireme {

// All that a search asked for.
struct CertifiedTables {
  std::map<CertifiedCut, CertifiedTable> passes, prices;
};

CertifiedCut certified_cut(const InnerWay& way);
CertifiedTable certified_passes(const InnerWay& way, bool with_again, const std::optional<PartPrices>& prices);
CertifiedTable certified_prices(const InnerWay& way, const std::optional<PartPrices>& prices);

}  // namespace trireme
