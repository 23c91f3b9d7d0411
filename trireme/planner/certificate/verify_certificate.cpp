#include "trireme/planner/certificate/verify_certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>

#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/certified_least.h"
#include "trireme/planner/certificate/certified_passes.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/certificate/exact_numbers_impl.h"
#include "trireme/planner/certificate/not_proven_impl.h"
#include "trireme/planner/certificate/table_bounds.h"
#include "trireme/version.h"

namespace trireme {
namespace {

class CertificateVerifier {
 public:
  explicit CertificateVerifier(const Certificate& certificate) : c_(certificate) {
    for (const auto& [tables, into] : {std::pair(&c_.alone, &alone_), std::pair(&c_.prices, &prices_)}) {
      for (const CertifiedTable& table : *tables) into->emplace(table.cut, KnownTable{&table});
    }
  }

  void verify() {
    if (c_.version != kVersion) {
      not_proven("trireme {} made it, and this is {}, whose ways and prices may differ; plan again", c_.version,
                 kVersion);
    }
    tiers_ = certified_tiers(c_.model, c_.host, c_.disk);
    check_table_bounds(c_, tiers_);
    check_best();
    for_each_group(c_.model, c_.ranks, tiers_, [this](CertifiedGroup group) { look_at_group(group); });
    check_ledger();
    check_used();
  }

 private:
  struct KnownTable {
    const CertifiedTable* table = nullptr;
    bool is_used = false;
  };
  using Tables = std::map<CertifiedCut, KnownTable>;

  const CertifiedTable& table_of(Tables& tables, const CertifiedCut& key, const CertifiedWay& way) {
    const auto found = tables.find(key);
    if (found == tables.end()) {
      not_proven("nothing rules out {}: the line '{} ...' of its {} is missing", certified_way_text(way),
                 &tables == &alone_ ? "alone" : "prices", &tables == &alone_ ? "bounds" : "cut");
    }
    found->second.is_used = true;
    return *found->second.table;
  }
  void check_best() {
    const std::set<CertifiedWay> ways = best_in_space();
    if (static_cast<int64_t>(c_.best.size()) > c_.top) not_proven("it has more ways than the {} asked for", c_.top);
    int64_t before = 0;
    for (const CertifiedPlan& plan : c_.best) {
      const std::string text = certified_way_text(plan.way);
      if (ways.count(plan.way) == 0) not_proven("{} on {} ranks is not one of its ways", text, c_.ranks);
      if (!certified_way_divides(plan.way))
        not_proven("{} has too few micro-batches, or not a multiple of its crews", text);
      if (!best_.emplace(plan.way, &plan).second) not_proven("{} appears twice", text);
      const CertifiedTable& table = table_of(prices_, plan.way.cut, plan.way);
      if (table.is_refused) not_proven("{} is refused by the compiler", text);
      if (table.is_joined && plan.way.pp > 1) not_proven("micro-batches of {} depend on each other", text);
      const auto cut = price(plan.way, table).of_cut(plan.begins);
      if (!cut.has_room_beside) not_proven("{} needs more of the host's memory or the disk than a rank has", text);
      if (cut.step_ps != plan.step_ps)
        not_proven("{} takes {} ps by its prices, not {} as it says", text, cut.step_ps, plan.step_ps);
      if (cut.crew_bytes != plan.crew_bytes) not_proven("the crews of {} do not hold as many bytes as it says", text);
      for (size_t crew = 0; crew < cut.crew_bytes.size(); ++crew) {
        if (cut.crew_bytes[crew] > c_.memory)
          not_proven("crew {} of {} holds {} bytes, more than the {} of a rank", crew, text, cut.crew_bytes[crew],
                     c_.memory);
      }
      if (plan.step_ps < before) not_proven("its best ways are not in the order of their time");
      before = plan.step_ps;
    }
    if (static_cast<int64_t>(c_.best.size()) == c_.top) limit_ = before;
  }

  // Of those that are said to be the best the ways that there are.
  std::set<CertifiedWay> best_in_space() const {
    std::set<CertifiedWay> out;
    for (const CertifiedPlan& plan : c_.best) {
      const auto look = [&](CertifiedGroup group) {
        if (group.front().micro_batches == plan.way.micro_batches && group.has(plan.way)) out.insert(plan.way);
      };
      for_each_group(c_.model, c_.ranks, tiers_, look, &plan.way);
    }
    return out;
  }

  // What was found of a way: that it is too large for what a rank has, or that a cut that is so would be fast enough,
  // so that those with one thing more have to be looked at.
  enum class Found : uint8_t { kDone, kTooLarge };

  // Of a group's ways: those with one thing less, and whether there is one with one thing more.
  struct OrderInGroup {
    std::vector<size_t> after;
    bool has_next = false;
  };
  // The same of all groups of as many ways.
  const std::vector<OrderInGroup>& order_in(CertifiedGroup group) {
    std::vector<OrderInGroup>& out = orders_[group.size()];
    if (!out.empty()) return out;
    out.resize(group.size());
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t k = 0; k < group.size(); ++k) {
        if (!is_next_in_group(group[k].cut, group[i].cut, tiers_)) continue;
        out[i].after.push_back(k);
        out[k].has_next = true;
      }
    }
    return out;
  }

  // But for slices of state, what is computed again, and variants.
  static bool is_cut_like(const CertifiedWay& a, const CertifiedWay& b) {
    const auto cut_of = [](const CertifiedWay& way) {
      const CertifiedCut& cut = way.cut;
      return std::tuple(way.pp, way.micro_batches, way.virtual_stages, way.schedule, cut.tp, cut.cp, cut.ep, cut.sp,
                        cut.vocabulary, cut.rows);
    };
    return cut_of(a) == cut_of(b);
  }

  // One is looked at where all with one thing less are too large.
  void look_at_group(CertifiedGroup group) {
    ledger_.ways += static_cast<int64_t>(group.size());
    if (!certified_way_divides(group.front())) {
      ledger_.do_not_divide += static_cast<int64_t>(group.size());
      return;
    }
    if (!is_cut_like(group.front(), last_)) {
      bounds_.clear();
      fits_.clear();
      by_fewer_axes_.clear();
      if (group.front().pp != last_.pp || group.front().cut.tp != last_.cut.tp) bounds_by_fewer_.clear();
      last_ = group.front();
    }
    const std::vector<OrderInGroup>& order = order_in(group);
    const bool has_best = std::ranges::any_of(best_, [&](const auto& best) { return group.has(best.first); });
    found_.assign(group.size(), Found::kDone);
    for (size_t i = 0; i < group.size(); ++i) {
      const bool is_needed =
          std::ranges::all_of(order[i].after, [&](size_t k) { return found_[k] == Found::kTooLarge; });
      if (is_needed) {
        found_[i] = look_at(group[i], order[i].has_next);
      } else {
        ++ledger_.needless;
        if (!has_best) continue;
        check_not_best(group[i],
                       "with its state, updates or what is kept nearer, or that whole, it is no slower, and fits or is "
                       "ruled out");
      }
    }
  }

  // Why it is not among the best, by the first reason that there is; or that it is.
  Found look_at(const CertifiedWay& way, bool has_next) {
    if (certified_least_bytes(way, c_.model, c_.ranks) > c_.memory) {
      ++ledger_.memory_least;
      check_not_best(way, "its parameters and state alone are too much for a rank's memory");
      return Found::kTooLarge;
    }
    if (certified_arithmetic_ps(way, c_.model) > limit_) {
      ++ledger_.bound;
      check_not_best(way, "its arithmetic alone takes longer");
      return Found::kDone;
    }
    return look_at_tables(way, has_next);
  }

  // By tables of one data parallel rank: what they say of all that is computed, then of memory.
  std::optional<Found> ruled_out(const CertifiedWay& way) {
    if (c_.model.joined == 1) return std::nullopt;  // what ranks take depends on how many there are
    const CertifiedCut most = certified_most_rows(way.cut), own = certified_alone(way.cut);
    if (is_slower_by_fewer_axes(way)) return Found::kDone;
    const auto unsliced = certified_without_slices(way.cut);
    auto of_few = unsliced ? certified_fewest_sums(*unsliced) : unsliced;
    if (!of_few) of_few = unsliced;
    const CertifiedCut kept = certified_all_kept(most);
    if (is_slower_by_blocks(way, kept) || is_slower(way, kept) || is_slower_by_sums(way, kept, of_few))
      return Found::kDone;
    if (is_slower_by_kept(way, kept)) return Found::kDone;
    if (is_slower_by_blocks(way, most, of_few) || is_slower(way, most) || is_slower_by_sums(way, most, of_few))
      return Found::kDone;
    if (is_too_large(way, most)) return Found::kTooLarge;
    if (is_slower_by_blocks(way, own, of_few)) return Found::kDone;
    const CertifiedTable& table = table_of(alone_, own, way);
    if (table.is_refused || (table.is_joined && way.pp > 1)) {
      ++ledger_.do_not_divide;
      check_not_best(way, table.is_refused ? "the compiler refuses it for one data parallel rank"
                                           : "its micro-batches depend on each other");
      return Found::kDone;
    }
    if (is_slower(way, own)) return Found::kDone;
    if (is_too_large(way, own)) return Found::kTooLarge;
    if (is_slower_by_sums(way, own, of_few) || is_slower_by_sums(way, own, unsliced)) return Found::kDone;
    if (is_slower_than_few(way, own)) return Found::kDone;
    return std::nullopt;
  }
  // Of ways that are cut alike and move as much once a step the same.
  bool is_slower_by_fewer_axes(const CertifiedWay& way) {
    const int64_t moves = certified_moves_ps(way.cut, c_.model);
    const auto known = by_fewer_axes_.find(moves);
    const std::string_view why = known != by_fewer_axes_.end()
                                     ? known->second
                                     : by_fewer_axes_.emplace(moves, why_slower_by_fewer_axes(way)).first->second;
    return !why.empty() && count_slower(way, why);
  }
  // "": it may not be.
  std::string_view why_slower_by_fewer_axes(const CertifiedWay& way) {
    std::vector<std::optional<CertifiedCut>> all{certified_by_fewer_tp(way.cut), certified_by_tp(way.cut)};
    for (const CertifiedCut& fewer : certified_by_fewer_ep(way.cut)) all.emplace_back(fewer);
    all.push_back(certified_by_tp_and_ep(way.cut));
    all.push_back(certified_by_half_cp(way.cut));
    for (const std::optional<CertifiedCut>& fewer : all) {
      const std::string_view why = fewer ? why_slower_by(way, *fewer) : "";
      if (!why.empty()) return why;
    }
    return "";
  }
  // Of experts that lie otherwise nothing is known of what is computed, but that it takes no less than the arithmetic;
  // what moves comes on top.
  std::string_view why_slower_by(const CertifiedWay& way, const CertifiedCut& fewer) {
    const CertifiedTable& known = table_of(alone_, fewer, way);
    if (known.is_refused) return "";
    const auto least = [&] { return certified_least_by_fewer(known, way.cut); };
    const KnownBound& bound = bound_by(way, known, Counted::kBlocks, least);
    if (bound.is_slower) return "its bounds take longer";
    if (way.cut.ep == fewer.ep) return "";
    const int64_t moved = exact_product(way.micro_batches, bound.share_of_passes);
    const bool is_slower = exact_sum(certified_arithmetic_ps(way, c_.model), moved) > limit_;
    return is_slower ? "its arithmetic and what it moves take longer" : "";
  }
  bool count_slower(const CertifiedWay& way, std::string_view why) {
    ++ledger_.slower;
    check_not_best(way, why);
    return true;
  }

  // What a bound by time has of a table: passes of blocks that are cut less, or alike, of all parts, or with them what
  // they do once.
  enum class Counted : uint8_t { kBlocks, kBlocksAlike, kPasses, kAll };
  struct KnownBound {
    bool is_slower = false;
    int64_t share_of_passes = 0;
  };
  // Of ways that are cut alike the same for all of which it counts the same and that move as much once a step.
  // `summed`: what its blocks exchange is counted as well, of each micro-batch where zero scatters sums of these.
  template <class Least>
  const KnownBound& bound_by(const CertifiedWay& way, const CertifiedTable& of, Counted counted, Least least,
                             const CertifiedTable* summed = nullptr) {
    const int64_t moves = certified_moves_ps(way.cut, c_.model);
    const bool is_all = counted == Counted::kAll;  // which depends on where state and updates are
    const std::tuple key(&of, counted, is_all ? way.cut.place : CertifiedPlace(), moves, summed,
                         summed != nullptr && way.cut.zero > 1);
    const auto found = bounds_.find(key);
    if (found != bounds_.end()) return found->second;
    const KnownBound bound =
        counted == Counted::kBlocks ? bound_by_fewer(way, of, moves, least) : bound_of(way, least(), moves);
    return bounds_.emplace(key, bound).first->second;
  }
  // Ways with more ep and less dp have as many micro-batches, and the same bound by blocks that are cut less.
  template <class Least>
  const KnownBound& bound_by_fewer(const CertifiedWay& way, const CertifiedTable& of, int64_t moves, Least least) {
    const FewerKey key(&of, way.cut.rows, way.cut.cp, way.cut.ep != of.cut.ep, way.micro_batches, way.virtual_stages,
                       way.schedule, moves);
    const auto found = bounds_by_fewer_.find(key);
    if (found != bounds_by_fewer_.end()) return found->second;
    return bounds_by_fewer_.emplace(key, bound_of(way, least(), moves)).first->second;
  }
  KnownBound bound_of(const CertifiedWay& way, const CertifiedTable& least, int64_t moves) const {
    const CertifiedPrice priced = price(way, least);
    return {priced.longer_passes_exceed(limit_, moves), priced.share_of_passes()};
  }
  // By the table with all kept, and what moves of what is kept elsewhere by the one without ep.
  bool is_slower_by_kept(const CertifiedWay& way, const CertifiedCut& all_kept) {
    const auto without = certified_kept_without_ep(way.cut);
    if (!without) return false;
    const CertifiedTable &known = table_of(alone_, all_kept, way), &moved = table_of(alone_, *without, way);
    if (known.is_refused || moved.is_refused) return false;
    const auto least = [&] { return with_kept_moves(certified_least(known, way.cut, c_.model), moved); };
    return bound_by(way, known, Counted::kPasses, least, &moved).is_slower &&
           count_slower(way, "its bounds take longer");
  }
  bool is_slower_than_few(const CertifiedWay& way, const CertifiedCut& own) {
    const auto cut = certified_few_ranks(way.cut);
    if (!cut) return false;
    const CertifiedTable& few = table_of(prices_, *cut, way);
    if (few.is_refused) return false;
    const CertifiedTable least = with_moved(certified_least(table_of(alone_, own, way), way.cut, c_.model),
                                            way.pp == 1 ? certified_without_tied(few) : few);
    return is_slower_by(way, least);
  }
  // By a table of one data parallel rank, or its blocks where it has the vocabulary whole that the way cuts; with what
  // sums without slices have these exchange.
  bool is_slower_by_parts(const CertifiedWay& way, const CertifiedCut& by, const std::optional<CertifiedCut>& sums) {
    const CertifiedTable& known = table_of(alone_, by, way);
    const CertifiedTable *summed = nullptr, *unsummed = nullptr;
    if (sums) {
      summed = &table_of(prices_, *sums, way);
      unsummed = &table_of(alone_, certified_alone(*sums), way);
      if (summed->is_refused || unsummed->is_refused) return false;
    }
    if (known.is_refused) return false;
    const bool of_blocks = by.vocabulary != way.cut.vocabulary;
    const auto least = [&] {
      CertifiedTable out = certified_least(known, way.cut, c_.model);
      if (of_blocks) out = certified_blocks_of(out, way.cut);
      return summed == nullptr ? out : with_exchanged(out, {out, *summed, *unsummed});
    };
    const Counted counted = of_blocks ? Counted::kBlocksAlike : Counted::kPasses;
    if (!bound_by(way, known, counted, least, summed).is_slower) return false;
    return count_slower(way, "its bounds take longer");
  }
  bool is_slower_by_sums(const CertifiedWay& way, const CertifiedCut& by, const std::optional<CertifiedCut>& sums) {
    return sums && is_slower_by_parts(way, by, sums);
  }
  // Before its vocabulary is cut: the blocks are the same.
  bool is_slower_by_blocks(const CertifiedWay& way, const CertifiedCut& by) {
    return way.cut.vocabulary && is_slower_by_parts(way, certified_whole_vocabulary(by), std::nullopt);
  }
  bool is_slower_by_blocks(const CertifiedWay& way, const CertifiedCut& by, const std::optional<CertifiedCut>& sums) {
    return is_slower_by_blocks(way, by) ||
           (way.cut.vocabulary && is_slower_by_sums(way, certified_whole_vocabulary(by), sums));
  }
  bool is_slower(const CertifiedWay& way, const CertifiedCut& by) {
    const CertifiedTable& alone = table_of(alone_, by, way);
    if (alone.is_refused) return false;
    const bool is_whole = way.cut.zero == 0 && by == certified_alone(way.cut);
    const auto least = [&] { return certified_least(alone, way.cut, c_.model); };
    if (!bound_by(way, alone, is_whole ? Counted::kAll : Counted::kPasses, least).is_slower) return false;
    return count_slower(way, "its bounds take longer");
  }
  bool is_slower_by(const CertifiedWay& way, const CertifiedTable& least) {
    if (!price(way, least).longer_passes_exceed(limit_, certified_moves_ps(way.cut, c_.model))) return false;
    return count_slower(way, "its bounds take longer");
  }
  bool is_too_large(const CertifiedWay& way, const CertifiedCut& by) {
    const CertifiedTable& alone = table_of(alone_, by, way);
    if (alone.is_refused) return false;
    // Of its place it is a matter whether the state is on the device, and whether weights come for the step.
    const bool is_whole = way.cut.zero == 0 && by == certified_alone(way.cut);
    const std::tuple key(&alone, is_whole, way.cut.zero, way.cut.place.state == Tier::kDevice,
                         certified_comes_for_step(way.cut));
    const auto known = fits_.find(key);
    const bool fits =
        known != fits_.end()
            ? known->second
            : fits_.emplace(key, price(way, certified_least(alone, way.cut, c_.model)).fits()).first->second;
    if (fits) return false;
    ++ledger_.memory;
    check_not_best(way, "by its bounds no cut of it fits");
    return true;
  }

  Found look_at_tables(const CertifiedWay& way, bool has_next) {
    if (const auto found = ruled_out(way)) return *found;
    const CertifiedTable& table = table_of(prices_, way.cut, way);
    if (table.is_refused) {
      ++ledger_.do_not_divide;
      return Found::kDone;
    }
    const CertifiedPrice priced = price(way, table);
    if (priced.every_cut_exceeds(limit_)) {
      ++ledger_.slower;
      check_not_best(way, "every cut of it takes longer");
    } else if (!priced.fits()) {
      ++ledger_.memory;
      check_not_best(way, "no cut of it fits");
      return Found::kTooLarge;
    } else {
      ++ledger_.solved;
      const int64_t said = check_solved(way, priced);
      if (has_next && is_faster_without_limits(way, table, priced, said)) return Found::kTooLarge;
    }
    return Found::kDone;
  }

  CertifiedPrice price(const CertifiedWay& way, const CertifiedTable& table) const {
    return {way, table, c_.runs, {c_.memory, c_.host, c_.disk}};
  }

  // Whether a cut that is too large is faster than all that fit, which take `said` or longer, and not slower than the
  // last of the best.
  bool is_faster_without_limits(const CertifiedWay& way, const CertifiedTable& table, const CertifiedPrice& priced,
                                int64_t said) const {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    const CertifiedPrice without(way, table, c_.runs, {kAll, kAll, kAll});
    if (without.least_below(said)) return true;
    if (best_.count(way) != 0) return false;
    return without.least_below(said + 1) && !priced.least_below(said + 1);
  }

  // What it takes, or the limit where all its cuts that fit take as long or longer.
  int64_t check_solved(const CertifiedWay& way, const CertifiedPrice& priced) const {
    const auto listed = best_.find(way);
    const int64_t said = listed == best_.end() ? limit_ : listed->second->step_ps;
    if (said == std::numeric_limits<int64_t>::max())
      not_proven("{} fits, but is not among the best ways: {} were asked for, and it lists {}", certified_way_text(way),
                 c_.top, c_.best.size());
    const auto less = priced.least_below(said);
    if (!less) return said;
    if (listed == best_.end()) {
      not_proven("{} fits and takes {} ps, less than the {} of a way that it lists instead", certified_way_text(way),
                 *less, said);
    }
    not_proven("{} takes {} ps with another cut into stages, less than the {} that it says", certified_way_text(way),
               *less, said);
  }

  void check_not_best(const CertifiedWay& way, std::string_view why) const {
    if (best_.count(way) != 0) not_proven("it lists {} among the best, but {}", certified_way_text(way), why);
  }

  void check_ledger() const {
    for (const auto& [name, field] : kCertifiedLedgerNames) {
      if (ledger_.*field != c_.ledger.*field)
        not_proven("the ledger has {} = {}, but counting the ways gives {}", name, c_.ledger.*field, ledger_.*field);
    }
  }

  // What nothing follows from is not what the search found.
  void check_used() const {
    for (const auto& [tables, known] : {std::pair(&c_.alone, &alone_), std::pair(&c_.prices, &prices_)}) {
      for (const CertifiedTable& table : *tables) {
        const KnownTable& of = known->at(table.cut);
        if (of.table != &table || !of.is_used)
          not_proven("no way needs the {} of {}", tables == &c_.alone ? "bounds" : "prices",
                     certified_way_text(CertifiedWay{.cut = table.cut}));
      }
    }
  }

  const Certificate& c_;
  CertifiedTiers tiers_;
  Tables alone_, prices_;
  std::map<size_t, std::vector<OrderInGroup>> orders_;
  std::vector<Found> found_;  // of the ways of the group that is looked at
  CertifiedWay last_;         // that was looked at; bounds are of ways that are cut like it
  std::map<std::tuple<const CertifiedTable*, Counted, CertifiedPlace, int64_t, const CertifiedTable*, bool>, KnownBound>
      bounds_;
  std::map<int64_t, std::string_view> by_fewer_axes_;  // of ways that are cut like the last, by what they move
  using FewerKey = std::tuple<const CertifiedTable*, int64_t, int64_t, bool, int64_t, int64_t, WaySchedule, int64_t>;
  std::map<FewerKey, KnownBound> bounds_by_fewer_;  // of ways with the pp and tp of the last
  std::map<std::tuple<const CertifiedTable*, bool, int64_t, bool, bool>, bool> fits_;  // by tables of bounds
  std::map<CertifiedWay, const CertifiedPlan*> best_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();  // what takes longer is not among the best
  CertifiedLedger ledger_;
};

}  // namespace

void verify_certificate(const Certificate& certificate) {
  CertificateVerifier(certificate).verify();
}

}  // namespace trireme
