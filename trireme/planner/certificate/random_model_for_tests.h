// Random models with prices for every cut, and what a search finds for them, for tests of certificates.
#pragma once

#include <algorithm>
#include <map>

#include "trireme/planner/certificate/certified_passes.h"
#include "trireme/planner/certificate/random_prices_for_tests.h"
#include "trireme/planner/outer/outer_search.h"
#include "trireme/version.h"

namespace trireme::verify_certificate_test {

class RandomModel : public RandomPrices {
 public:
  using RandomPrices::RandomPrices;

  // Steps of the ways that are to be looked at and fit: of those with the state or what is kept elsewhere, or that in
  // slices, the ones that are too large with one thing less of that, or would be faster by a cut that is.
  std::vector<int64_t> all_steps() const {
    constexpr int64_t kAll = int64_t{1} << 40;
    std::vector<int64_t> out;
    for (const Group& group : groups_) {
      std::vector<char> frees(group.size(), 0);  // those with one thing more
      for (size_t i = 0; i < group.size(); ++i) {
        const CertifiedWay& way = group[i];
        bool is_needed = certified_way_divides(way) && !prices(way.cut).is_refused &&
                         !(alone(own_of(way.cut)).is_joined && way.pp > 1);
        for (size_t k = 0; k < i; ++k) is_needed = is_needed && (frees[k] != 0 || !has_one_less(group[k], way));
        if (!is_needed) continue;
        const int64_t least = least_of(way, room_);
        if (least >= 0) out.push_back(least);
        frees[i] = least < 0 || least_of(way, {kAll, kAll, kAll}) < least ? 1 : 0;
      }
    }
    std::ranges::sort(out);
    return out;
  }

  // Of what a search finds.
  Certificate certificate(size_t top) {
    // With and without slices of what is kept, in each tier for that, in each place.
    const size_t keeps = 1 + tiers_.keeps.size(), count = 2 * keeps * (1 + tiers_.places.size());
    OuterVariants variants{.after = {}};
    for (size_t v = 0; v < count; ++v) {
      std::vector<size_t>& after = variants.after.emplace_back();
      const size_t keep = v / 2 % keeps, place = v / 2 / keeps;
      if (v % 2 == 1 && keep == 0) after.push_back(v - 1);
      if (keep > 0) after.push_back(v - 2);
      if (place > 0) after.push_back(2 * (keeps * place_before(place) + keep) + v % 2);
    }
    std::vector<OuterCandidate> candidates;
    std::vector<CertifiedWay> ways;  // by their numbers
    for (const Group& group : groups_) {
      const bool divides = certified_way_divides(group.front()), has_slices = group.size() == count;
      candidates.push_back({.divides = divides,
                            .variants = has_slices ? (1U << count) - 1 : 0x15555555U & ((1U << count) - 1),
                            .bound_ps = divides ? certified_arithmetic_ps(group.front(), model_) : 0});
      for (size_t v = 0; v < count; ++v) ways.push_back(group[has_slices ? v : v / 2]);
    }
    std::map<CertifiedCut, CertifiedTable> asked_alone, asked_prices;
    using Kind = OuterAnswer::Kind;
    const auto answer = [&](size_t i, const CertifiedCut& known, bool of_memory) -> OuterAnswer {
      const CertifiedTable& table = alone(known);
      asked_alone.emplace(known, table);
      if (table.is_refused) return {.kind = known == own_of(ways[i].cut) ? Kind::kRefused : Kind::kBound};
      const StageProblem least = as_problem(ways[i], least_of(table, ways[i].cut), runs_, room_);
      if (!of_memory) return {.bound_ps = bound_with_moves(ways[i], least)};
      return {.kind = some_cut_fits(least) ? Kind::kBound : Kind::kTooLarge};
    };
    const auto joined = [&](size_t i) -> OuterAnswer {
      const CertifiedTable& table = alone(own_of(ways[i].cut));
      asked_alone.emplace(table.cut, table);
      return {.kind = table.is_refused || (table.is_joined && ways[i].pp > 1) ? Kind::kRefused : Kind::kBound};
    };
    const auto problem = [&](size_t i) -> std::optional<StageProblem> {
      const CertifiedTable& table = prices(ways[i].cut);
      asked_prices.emplace(table.cut, table);
      if (table.is_refused) return std::nullopt;
      return as_problem(ways[i], table, runs_, room_);
    };
    const auto by = [&](auto known, bool of_memory) {
      return [&, known, of_memory](size_t i) { return answer(i, known(ways[i].cut), of_memory); };
    };
    const auto none = [](const CertifiedCut& cut) { return all_kept(most_of(cut)); };
    const auto by_few = [&](size_t i) -> OuterAnswer {
      const CertifiedCut& cut = ways[i].cut;
      if (!is_more_than_few(cut)) return {};
      const CertifiedTable& few = prices(few_of(cut));
      asked_prices.emplace(few.cut, few);
      if (few.is_refused) return {};
      CertifiedTable least = least_of(alone(own_of(cut)), cut);
      raise_moved_of(least, ways[i].pp == 1 ? certified_without_tied(few) : few);
      return {.bound_ps = bound_with_moves(ways[i], as_problem(ways[i], least, runs_, room_))};
    };
    enum class Sums : uint8_t { kNone, kOfFew, kOfAll };
    const auto by_parts = [&](const CertifiedWay& way, const CertifiedCut& by, Sums sums) -> OuterAnswer {
      CertifiedCut without = unsliced(way.cut);
      if (sums == Sums::kOfFew && is_more_than_few(without)) without = fewest_sums_of(without);
      const CertifiedTable &known = alone(by), &summed = prices(without), &unsummed = alone(own_of(without));
      asked_alone.emplace(known.cut, known);
      if (sums != Sums::kNone) {
        asked_prices.emplace(without, summed);
        asked_alone.emplace(unsummed.cut, unsummed);
        if (summed.is_refused || unsummed.is_refused) return {};
      }
      if (known.is_refused) return {};
      CertifiedTable least = least_of(known, way.cut);
      if (by.vocabulary != way.cut.vocabulary) least.parts.front() = least.parts.back() = {};
      const CertifiedTable unexchanged = least;
      if (sums != Sums::kNone) raise_exchanged_of(least, unexchanged, summed, unsummed);
      return {.bound_ps = bound_with_moves(way, as_problem(way, least, runs_, room_))};
    };
    const auto by_sums = [&](auto known, Sums sums) {
      return [&, known, sums](size_t i) -> OuterAnswer {
        return ways[i].cut.zero == 0 ? OuterAnswer() : by_parts(ways[i], known(ways[i].cut), sums);
      };
    };
    const auto by_blocks = [&](auto known, Sums sums) {
      return [&, known, sums](size_t i) -> OuterAnswer {
        CertifiedCut by = known(ways[i].cut);
        if (!by.vocabulary || (sums != Sums::kNone && ways[i].cut.zero == 0)) return {};
        by.vocabulary = false;
        return by_parts(ways[i], by, sums);
      };
    };
    const auto by_kept = [&](size_t i) -> OuterAnswer {
      const CertifiedWay& way = ways[i];
      if (!is_kept_with_ep(way.cut)) return {};
      const CertifiedTable &known = alone(none(way.cut)), &kept = alone(kept_without_ep(way.cut));
      for (const CertifiedTable* const each : {&known, &kept}) asked_alone.emplace(each->cut, *each);
      if (known.is_refused || kept.is_refused) return {};
      CertifiedTable least = least_of(known, way.cut);
      raise_kept_moves_of(least, kept);
      return {.bound_ps = bound_with_moves(way, as_problem(way, least, runs_, room_))};
    };
    const auto by_fewer = [&](auto is_more, auto known) {
      return [&, is_more, known](size_t i) -> OuterAnswer {
        const CertifiedCut& cut = ways[i].cut;
        if (!is_more(cut)) return {};
        const CertifiedTable& table = alone(known(cut));
        asked_alone.emplace(table.cut, table);
        if (table.is_refused) return {};
        const StageProblem least = as_problem(ways[i], least_of_fewer(table, cut), runs_, room_);
        const int64_t bound = bound_with_moves(ways[i], least);
        if (cut.ep == table.cut.ep) return {.bound_ps = bound};
        int64_t moved = 0;
        for (const PartPrice& part : least.parts) moved += part.pass();
        return {.bound_ps =
                    std::max(bound, candidates[i / count].bound_ps + ways[i].micro_batches * (moved / ways[i].pp))};
      };
    };
    std::vector<std::function<OuterAnswer(size_t)>> bounds{by_fewer(is_more_than_fewer_tp, fewer_tp_of),
                                                           by_fewer(is_more_than_tp, tp_of)};
    for (const int64_t ep : {2, 4, 8, 16}) {
      bounds.push_back(by_fewer([ep](const CertifiedCut& cut) { return is_more_than_ep(cut, ep); },
                                [ep](const CertifiedCut& cut) { return fewer_ep_of(cut, ep); }));
    }
    for (std::function<OuterAnswer(size_t)>& each : std::vector<std::function<OuterAnswer(size_t)>>{
             by_fewer(is_more_than_tp_and_ep, tp_and_ep_of), by_fewer(is_more_than_half_cp, half_cp_of),
             by_blocks(none, Sums::kNone), by(none, false), by_sums(none, Sums::kOfFew), by_kept,
             by_blocks(most_of, Sums::kNone), by_blocks(most_of, Sums::kOfFew), by(most_of, false),
             by_sums(most_of, Sums::kOfFew), by(most_of, true), by_blocks(own_of, Sums::kNone),
             by_blocks(own_of, Sums::kOfFew), joined, by(own_of, false), by(own_of, true),
             by_sums(own_of, Sums::kOfFew), by_sums(own_of, Sums::kOfAll), by_few})
      bounds.push_back(std::move(each));
    if (model_.joined == 1) bounds.clear();
    const OuterResult found =
        search_outer(candidates, variants, memory_, top,
                     {.least_bytes = [&](size_t i) { return certified_least_bytes(ways[i], model_, ranks_); },
                      .bounds = std::move(bounds),
                      .problem = problem});
    Certificate out{.version = std::string(kVersion),
                    .graph = "0123456789abcdef",
                    .machine_hash = "fedcba9876543210",
                    .machine = "a machine of tests",
                    .ranks = ranks_,
                    .memory = memory_,
                    .host = room_.host,
                    .disk = room_.disk,
                    .model = model_,
                    .before = {"wte"},
                    .after = {"ln_f"},
                    .blocks = "h",
                    .runs = runs_,
                    .top = static_cast<int64_t>(top)};
    const OuterLedger& l = found.ledger;
    out.ledger = {l.ways, l.do_not_divide, l.memory_least, l.bound, l.slower, l.memory, l.needless, l.solved};
    for (const SolvedWay& way : found.best) {
      const StageProblem solved = *problem(way.way);
      out.best.push_back({ways[way.way], way.begins, way.price.total, bytes_of_crews(solved, way.begins)});
    }
    for (auto& [cut, table] : asked_alone) out.alone.push_back(table);
    for (auto& [cut, table] : asked_prices) out.prices.push_back(table);
    return out;
  }

 private:
  int64_t bound_with_moves(const CertifiedWay& way, const StageProblem& least) const {
    PartTotals totals;
    for (const PartPrice& part : least.parts) totals.add(part, 1);
    totals.once += certified_moves_ps(way.cut, model_);
    return bound_of_longer_parts(totals, least.shape, least.micro_batches, least.crossing);
  }
  bool has_one_less(const CertifiedWay& less, const CertifiedWay& more) const {
    const size_t one_keep = keep_of(less), other_keep = keep_of(more);
    const bool is_alike = less.cut.kept_slices == more.cut.kept_slices;
    if (less.cut.place == more.cut.place)
      return one_keep != other_keep ? is_alike && one_keep + 1 == other_keep
                                    : one_keep == 0 && !less.cut.kept_slices && more.cut.kept_slices;
    const size_t near = place_of(less), far = place_of(more);
    return is_alike && one_keep == other_keep && far > 0 && place_before(far) == near;
  }
  size_t keep_of(const CertifiedWay& way) const {
    if (way.cut.keep == Tier::kDevice) return 0;
    return static_cast<size_t>(std::ranges::find(tiers_.keeps, way.cut.keep) - tiers_.keeps.begin()) + 1;
  }
  // 0: all on the device; else those in which state and updates may be.
  size_t place_of(const CertifiedWay& way) const {
    if (way.cut.place == CertifiedPlace()) return 0;
    return static_cast<size_t>(std::ranges::find(tiers_.places, way.cut.place) - tiers_.places.begin()) + 1;
  }
  size_t place_before(size_t place) const {
    const bool is_first = place == 1 || tiers_.places[place - 2].update != tiers_.places[place - 1].update;
    return is_first ? 0 : place - 1;
  }
};

}  // namespace trireme::verify_certificate_test
