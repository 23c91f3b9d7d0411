#include "trireme/train/plan/parts/inner_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/planner/outer/least_part.h"

namespace trireme {

std::vector<std::string> one_block_keys(const JobConfig& job) {
  JobConfig copy = job;
  if (std::ranges::count(copy.model.spec->keys(), std::string_view("layers"), &Key::name) == 0) {
    fail(ErrorKind::kUnsupported,
         "plan: the exact search prices one block of each kind, and a model of kind '{}' has no number of blocks "
         "(model.layers); use --search compiled",
         job.model.kind);
  }
  std::vector<std::string> out{"data.validation=0"};
  for (const std::string& key : job.model.spec->one_block_of_each_kind()) out.push_back("model." + key);
  return out;
}

InnerWay alone_of(InnerWay way) {
  way.dp = 1;
  way.zero = 0;
  way.place = {};
  return way;
}

InnerWay with_most_rows(const InnerWay& way) {
  InnerWay out = alone_of(way);
  out.rows = kMostRows;
  return out;
}

InnerWay with_whole_vocabulary(InnerWay way) {
  way.vocabulary = false;
  return way;
}

InnerWay all_kept(InnerWay way) {
  way.recompute = WayRecompute::kNone;
  way.kept_slices = false;
  way.keep = Tier::kDevice;
  return way;
}

std::optional<InnerWay> by_tp_alone(const InnerWay& way) {
  if (way.cp == 1 && way.ep == 1 && !way.vocabulary) return std::nullopt;
  InnerWay out = all_kept(with_most_rows(way));
  out.cp = out.ep = 1;
  out.vocabulary = false;
  return out;
}

std::optional<InnerWay> by_fewer_tp(const InnerWay& way) {
  if (way.tp <= kFewerTp || way.tp % kFewerTp != 0) return std::nullopt;
  InnerWay out = all_kept(with_most_rows(way));
  out.tp = kFewerTp;
  out.cp = out.ep = 1;
  out.vocabulary = false;
  return out;
}

std::optional<InnerWay> by_tp_and_ep(const InnerWay& way) {
  if (way.ep == 1 || (way.cp == 1 && !way.vocabulary)) return std::nullopt;
  InnerWay out = all_kept(with_most_rows(way));
  out.cp = 1;
  out.vocabulary = false;
  return out;
}

std::optional<InnerWay> by_fewer_ep(const InnerWay& way, int64_t ep) {
  if (way.ep <= ep || way.ep % ep != 0) return std::nullopt;
  std::optional<InnerWay> out = by_tp_alone(way);
  out->ep = ep;
  return out;
}

std::optional<InnerWay> by_half_cp(const InnerWay& way) {
  if (way.cp % 4 != 0) return std::nullopt;
  std::optional<InnerWay> out = by_tp_alone(way);
  out->cp = way.cp / 2;
  out->ep = way.ep;
  return out;
}

std::vector<InnerWay> by_fewer_axes(const InnerWay& way) {
  std::vector<std::optional<InnerWay>> all{by_fewer_tp(way), by_tp_alone(way), by_tp_and_ep(way), by_half_cp(way)};
  for (const int64_t ep : kFewerEp) all.push_back(by_fewer_ep(way, ep));
  std::vector<InnerWay> out;
  for (const std::optional<InnerWay>& each : all) {
    if (each) out.push_back(*each);
  }
  return out;
}

PartPrices least_by_fewer_axes(const PartPrices& prices, const InnerWay& known, const InnerWay& way) {
  PartPrices out;
  out.parts.resize(prices.parts.size());
  const LeastPartOf of{.rows = way.rows, .rows_of_table = known.rows, .is_own = false};
  for (size_t block = 1; block + 1 < out.parts.size(); ++block) {
    const PartPrice cut = least_of_cut_part(
        prices.parts[block], {.tp = way.tp / known.tp, .cp = way.cp / known.cp, .more_ep = known.ep != way.ep});
    raise_passes(out.parts[block], least_part(cut, of));
  }
  return out;
}

std::optional<InnerWay> by_kept_without_ep(const InnerWay& way) {
  if (way.keep == Tier::kDevice || (way.ep == 1 && !way.vocabulary)) return std::nullopt;
  InnerWay out = with_most_rows(way);
  out.ep = 1;
  out.vocabulary = false;
  return out;
}

void raise_kept_moves(PartPrices& to, const PartPrices& of_known, const InnerWay& known, const InnerWay& way) {
  for (size_t i = 1; i + 1 < to.parts.size(); ++i)
    raise_kept_moves(to.parts[i], {.known = of_known.parts[i], .rows = way.rows, .rows_of_table = known.rows});
}

InnerWay with_nearer_keep(InnerWay way) {
  way.keep = way.keep == Tier::kDisk ? Tier::kHost : Tier::kDevice;
  return way;
}

InnerWay with_nearer_state(InnerWay way) {
  const bool is_on_disk = way.place.state == Tier::kDisk;
  if (!is_on_disk) way.place.update = Tier::kDevice;
  way.place.state = is_on_disk ? Tier::kHost : Tier::kDevice;
  return way;
}

std::optional<InnerWay> with_few_ranks(const InnerWay& way) {
  if (way.dp <= kFewRanks || way.dp % kFewRanks != 0) return std::nullopt;
  InnerWay out = way;
  out.dp = kFewRanks;
  out.kept_slices = false;
  out.keep = Tier::kDevice;
  out.place = {};
  return out;
}

bool come_for_the_step(const InnerWay& way) {
  return way.place.update == Tier::kHost && (way.zero == 0 || way.zero == 3);
}

int64_t least_moves_ps(const InnerWay& way, const StepFigures& figures) {
  if (way.place == UpdatePlace()) return 0;
  const int64_t bytes = figures.state_bytes / (way.zero > 0 ? way.ranks() : way.tp * way.ep);
  const bool updates = way.place.update == Tier::kHost;
  int64_t fs_per_byte = updates ? figures.update_fs_per_byte : figures.host_fs_per_byte;
  if (way.place.state == Tier::kDisk) fs_per_byte = std::max(updates ? fs_per_byte : 0, figures.disk_fs_per_byte);
  int64_t fs = 0;
  require(!__builtin_mul_overflow(bytes, fs_per_byte, &fs),
          "plan: {} bytes of state take more than two hours to move or update by the rates of the machine", bytes);
  return fs / 1000;
}

void raise_moved(PartPrices& to, const PartPrices& of_few) {
  for (size_t i = 0; i < to.parts.size(); ++i) raise_moved(to.parts[i], of_few.parts[i]);
}

std::optional<InnerWay> without_slices(InnerWay way) {
  if (way.zero == 0) return std::nullopt;
  way = all_kept(std::move(way));
  way.zero = 0;
  way.rows = 1;
  way.vocabulary = false;
  way.place = {};
  return way;
}

std::optional<InnerWay> with_fewest_sums(const InnerWay& without) {
  std::optional<InnerWay> out = with_few_ranks(without);
  if (!out) return std::nullopt;
  out->cp = 1;
  out->sp = false;
  return out;
}

void raise_exchanged(PartPrices& to, const ExchangedBlocks& of, int64_t zero) {
  for (size_t i = 1; i + 1 < to.parts.size(); ++i)
    raise_exchanged(to.parts[i], {of.alone.parts[i], of.summed.parts[i], of.unsummed.parts[i], zero});
}

LeastPartOf least_part_of(const InnerWay& known, const InnerWay& way, const StepFigures& figures) {
  return {.rows = way.rows,
          .rows_of_table = known.rows,
          .is_own = known == alone_of(way),
          .ranks = way.ranks(),
          .zero = way.zero,
          .state_elsewhere = way.place.state != Tier::kDevice,
          .update_elsewhere = way.place.update != Tier::kDevice,
          .parameter_bytes = figures.parameter_bytes,
          .state_bytes = figures.state_bytes,
          .weight_bytes = figures.weight_bytes};
}

PartPrices least_of(const PartPrices& alone, const LeastPartOf& of) {
  PartPrices out;
  out.parts.reserve(alone.parts.size());
  for (const PartPrice& part : alone.parts) out.parts.push_back(least_part(part, of));
  out.crossing = alone.crossing * of.rows / of.rows_of_table;  // the links between larger crews are no faster
  return out;
}

PartPrices least_of(const PartPrices& alone, const InnerWay& known, const InnerWay& way, const StepFigures& figures) {
  return least_of(alone, least_part_of(known, way, figures));
}

size_t InnerWayHash::operator()(const InnerWay& way) const noexcept {
  auto out = static_cast<size_t>(way.recompute);
  const int64_t flags =
      (way.sp ? 1 : 0) + (way.vocabulary ? 2 : 0) + (way.kept_slices ? 4 : 0) + 8 * static_cast<int64_t>(way.keep);
  for (const int64_t each : {way.tp, way.cp, way.ep, way.dp, way.zero, way.rows, flags,
                             static_cast<int64_t>(way.place.state), static_cast<int64_t>(way.place.update)})
    out = (out ^ static_cast<size_t>(each)) * 0x9E3779B97F4A7C15U;
  return out ^ out >> 32;
}

Way InnerWay::way() const {
  return {.tp = tp,
          .cp = cp,
          .ep = ep,
          .sp = sp,
          .vocabulary = vocabulary,
          .zero = zero,
          .recompute = recompute,
          .kept_slices = kept_slices,
          .keep = keep,
          .place = place};
}

}  // namespace trireme
