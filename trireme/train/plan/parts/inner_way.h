// A way without its pipeline, and what the parts of a model take by it (part_prices.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/planner/outer/stage_problem.h"
#include "trireme/train/plan/ways/ways.h"

namespace trireme {

struct InnerWay {
  int64_t tp = 1, cp = 1, ep = 1, dp = 1;
  bool sp = false;
  bool vocabulary = false;  // embedding, head and loss are cut over tp
  int64_t zero = 0;
  int64_t rows = 1;  // samples of a micro-batch, of each of the dp * ep ranks that share the batch
  std::string recompute = "none";
  bool kept_slices = false;   // what is kept for the backward pass lies in slices on ranks of tp
  Tier keep = Tier::kDevice;  // where what is kept lies
  UpdatePlace place = {};     // of the optimizer's state and updates

  int64_t ranks() const { return tp * cp * ep * dp; }
  int64_t samples() const { return rows * dp * ep; }  // of a micro-batch
  Way way() const;
  friend auto operator<=>(const InnerWay&, const InnerWay&) = default;
};
struct InnerWayHash {
  size_t operator()(const InnerWay& way) const noexcept;
};

struct PartPrices {
  std::vector<PartPrice> parts;  // what stands before, a block of each kind, what stands after
  // What a micro-batch sends over a boundary, there and back.
  int64_t messages = 0, message_bytes = 0;
  int64_t crossing = 0;  // ps that takes
  // Something works on all micro-batches at once (a mixture's groups of several): no pipeline runs them in turn.
  bool is_joined = false;

  friend bool operator==(const PartPrices&, const PartPrices&) = default;
};

}  // namespace trireme
