#include "trireme/planner/certificate/verify_certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/certified_least.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/certificate/exact_numbers_impl.h"
#include "trireme/version.h"

namespace trireme {
namespace {

template <class... Args>
[[noreturn]] void not_proven(fmt::format_string<Args...> text, Args&&... args) {
  fail(ErrorKind::kInvalidArgument, "certificate: {}", fmt::format(text, std::forward<Args>(args)...));
}

std::string certified_way_text(const CertifiedWay& way) {
  const CertifiedCut& cut = way.cut;
  std::string out =
      fmt::format("pp={} tp={} cp={} ep={} dp={} sp={} vocabulary={} zero={} rows={} recompute={}", way.pp, cut.tp,
                  cut.cp, cut.ep, cut.dp, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0, cut.zero, cut.rows, cut.recompute);
  if (cut.kept_slices) out += " kept_slices=1";
  if (cut.keep != Tier::kDevice) out += fmt::format(" keep={}", to_string(cut.keep));
  if (way.pp > 1) out += " schedule=" + way.schedule;
  if (way.virtual_stages > 1) out += fmt::format(" virtual_stages={}", way.virtual_stages);
  if (cut.place.state != Tier::kDevice) out += fmt::format(" state={}", to_string(cut.place.state));
  if (cut.place.update != Tier::kDevice) out += fmt::format(" update={}", to_string(cut.place.update));
  return out;
}

CertifiedTable nothing_of(const CertifiedTable& table) {
  CertifiedTable out{.cut = table.cut};
  out.parts.resize(table.parts.size());
  return out;
}

class CertificateVerifier {
 public:
  explicit CertificateVerifier(const Certificate& certificate) : c_(certificate) {
    for (const auto& [tables, into] : {std::pair(&c_.alone, &alone_), std::pair(&c_.prices, &prices_)}) {
      for (const CertifiedTable& table : *tables) into->emplace(table.cut, &table);
    }
  }

  void verify() {
    if (c_.version != kVersion) {
      not_proven("trireme {} made it and this is {}, whose ways and prices may be others; plan again", c_.version,
                 kVersion);
    }
    tiers_ = certified_tiers(c_.model, c_.host, c_.disk);
    check_bounds();
    check_best();
    for_each_group(c_.model, c_.ranks, tiers_, [this](CertifiedGroup group) { look_at_group(group); });
    check_ledger();
    check_used();
  }

 private:
  using Tables = std::map<CertifiedCut, const CertifiedTable*>;

  const CertifiedTable& table_of(const Tables& tables, const CertifiedCut& key, const CertifiedWay& way) {
    const auto found = tables.find(key);
    if (found == tables.end()) {
      not_proven("{} is nowhere ruled out: the line '{} ...' of its {} is missing", certified_way_text(way),
                 &tables == &alone_ ? "alone" : "prices", &tables == &alone_ ? "bounds" : "cut");
    }
    used_.insert(found->second);
    return *found->second;
  }

  // Of what is known none is less than what bounds say of it; whoever needs a table that is not there says so.
  void check_bounds() const {
    for (const auto& [cut, table] : prices_) {
      check_bound(*table, cut, certified_alone(cut));
      check_less_of_variants(*table);
      check_moves(*table, c_.runs, c_.model);
      const auto few = certified_few_ranks(cut);
      const auto found = few ? prices_.find(*few) : prices_.end();
      if (found != prices_.end() && !table->is_refused && !found->second->is_refused)
        check_no_less(*table, with_moved(nothing_of(*table), *found->second));
      check_sums(*table);
    }
    for (const auto& [cut, table] : alone_) {
      for (const CertifiedPart& part : table->parts) {
        if (part.adding > part.weight_grad || part.sums > part.gradients)
          not_proven("gradients of {} take more to be added than in all", certified_way_text({.cut = cut}));
      }
      const CertifiedCut most = certified_most_rows(cut);
      if (cut != most) check_bound(*table, cut, most);
      if (cut != certified_all_kept(most)) check_passes(*table);
      for (const auto& fewer : {certified_by_tp(cut), certified_by_tp_and_ep(cut)}) {
        const auto found = fewer ? alone_.find(*fewer) : alone_.end();
        if (found != alone_.end() && !table->is_refused && !found->second->is_refused)
          check_no_less(*table, certified_least_by_fewer(*found->second, cut));
      }
    }
  }
  // Nor do slices exchange less than what sums without them say, where these are known.
  void check_sums(const CertifiedTable& table) const {
    const auto own = certified_without_slices(table.cut);
    if (table.is_refused || !own) return;
    const auto alone = alone_.find(certified_alone(table.cut)), unsummed = alone_.find(certified_alone(*own));
    if (alone == alone_.end() || unsummed == alone_.end()) return;
    for (const auto& cut : {own, certified_few_ranks(*own)}) {
      const auto summed = cut ? prices_.find(*cut) : prices_.end();
      if (summed == prices_.end()) continue;
      const CertifiedSums by{*alone->second, *summed->second, *unsummed->second};
      if (by.alone.is_refused || by.summed.is_refused || by.unsummed.is_refused) continue;
      check_no_less(table, with_exchanged(nothing_of(table), by));
    }
  }
  void check_bound(const CertifiedTable& table, const CertifiedCut& cut, const CertifiedCut& of) const {
    const auto found = alone_.find(of);
    if (found == alone_.end() || table.is_refused) return;
    if (!found->second->is_refused) return check_no_less(table, certified_least(*found->second, cut, c_.model));
    if (of == certified_alone(cut))
      not_proven("{} has prices, and one data parallel rank of it is refused", certified_way_text({.cut = cut}));
  }
  // With the state, or what is kept, elsewhere nothing takes less time than with it on the device, nor on the disk than
  // on the host, nor with updates on the host; nor with what is kept there in slices than with it whole.
  void check_less_of_variants(const CertifiedTable& table) const {
    if (table.is_refused) return;
    std::vector<CertifiedPlace> nearer = tiers_.places;
    nearer.emplace_back();
    for (const CertifiedPlace& place : nearer) {
      for (const Tier keep : kEveryTier) {
        for (const bool slices : {false, true}) {
          CertifiedCut cut = table.cut;
          cut.kept_slices = slices;
          cut.keep = keep;
          cut.place = place;
          if (cut == table.cut || !is_no_slower_in_group(cut, table.cut)) continue;
          const auto found = prices_.find(cut);
          if (found != prices_.end() && !found->second->is_refused) check_less_of(table, *found->second);
        }
      }
    }
  }
  void check_less_of(const CertifiedTable& table, const CertifiedTable& of) const {
    const bool has_same_updates = table.cut.place.update == of.cut.place.update;
    CertifiedTable times = nothing_of(of);
    times.cut = table.cut;
    for (size_t part = 0; part < of.parts.size(); ++part) {
      for (size_t i = 0; i < kCertifiedPassFields; ++i)
        times.parts[part].*kCertifiedPartFields[i] = of.parts[part].*kCertifiedPartFields[i];
      times.parts[part].sync = of.parts[part].sync;
      for (const auto field :
           {&CertifiedPart::update, &CertifiedPart::coming, &CertifiedPart::going, &CertifiedPart::updating})
        times.parts[part].*field = has_same_updates ? of.parts[part].*field : 0;
      if (certified_once_of(table.parts[part]) < certified_once_of(of.parts[part]))
        not_proven("a part of {} takes less once a step than with {}", certified_way_text({.cut = table.cut}),
                   certified_way_text({.cut = of.cut}));
    }
    check_no_less(table, times);
    if (table.crossing < of.crossing)
      not_proven("messages of {} take less time than those of {}", certified_way_text({.cut = table.cut}),
                 certified_way_text({.cut = of.cut}));
  }
  void check_passes(const CertifiedTable& table) const {
    const auto found = alone_.find(certified_all_kept(certified_most_rows(table.cut)));
    if (found == alone_.end() || table.is_refused || found->second->is_refused) return;
    const CertifiedTable least = certified_least(*found->second, table.cut, c_.model);
    CertifiedTable passes = nothing_of(table);
    passes.crossing = least.crossing;
    for (size_t part = 0; part < passes.parts.size(); ++part) {
      for (size_t i = 0; i < kCertifiedPassFields; ++i)
        passes.parts[part].*kCertifiedPartFields[i] = least.parts[part].*kCertifiedPartFields[i];
    }
    check_no_less(table, passes);
  }

  void check_best() {
    const std::set<CertifiedWay> ways = best_in_space();
    if (static_cast<int64_t>(c_.best.size()) > c_.top) not_proven("it has more ways than the {} asked for", c_.top);
    int64_t before = 0;
    for (const CertifiedPlan& plan : c_.best) {
      const std::string text = certified_way_text(plan.way);
      if (ways.count(plan.way) == 0) not_proven("{} of {} ranks is no way in its space", text, c_.ranks);
      if (!certified_way_divides(plan.way))
        not_proven("{} has too few micro-batches, or no multiple of its crews", text);
      if (!best_.emplace(plan.way, &plan).second) not_proven("{} stands in it twice", text);
      const CertifiedTable& table = table_of(prices_, plan.way.cut, plan.way);
      if (table.is_refused) not_proven("{} is refused by the compiler", text);
      if (table.is_joined && plan.way.pp > 1) not_proven("micro-batches of {} depend on each other", text);
      const auto cut = price(plan.way, table).of_cut(plan.begins);
      if (!cut.has_room_beside) not_proven("{} has more on the host or the disk than a rank has there", text);
      if (cut.step_ps != plan.step_ps)
        not_proven("{} takes {} ps by its prices, not the {} that it says", text, cut.step_ps, plan.step_ps);
      if (cut.crew_bytes != plan.crew_bytes) not_proven("the crews of {} hold other bytes than it says", text);
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
    for_each_group(c_.model, c_.ranks, tiers_, [&](CertifiedGroup group) {
      for (const CertifiedPlan& plan : c_.best) {
        const CertifiedWay &said = plan.way, &first = group.front();
        if (said.pp != first.pp || said.micro_batches != first.micro_batches || said.cut.tp != first.cut.tp) continue;
        if (std::ranges::find(group, said) != group.end()) out.insert(said);
      }
    });
    return out;
  }

  // What was found of a way: that it is too large for what a rank has, or that a cut that is so would be fast enough,
  // so that those with one thing more have to be looked at.
  enum class Found : uint8_t { kDone, kTooLarge };

  // Of each way of a group those with just one thing less, and whether one has just one thing more.
  struct GroupOrder {
    std::vector<std::vector<size_t>> less;
    std::vector<char> has_next;
  };
  // Groups of as many ways are alike in that.
  const GroupOrder& order_of(CertifiedGroup group) {
    const auto [known, is_new] = orders_.try_emplace(group.size());
    if (!is_new) return known->second;
    GroupOrder& out = known->second;
    out.less.resize(group.size());
    out.has_next.assign(group.size(), 0);
    for (size_t i = 0; i < group.size(); ++i) {
      for (size_t k = 0; k < group.size(); ++k) {
        if (!is_next_in_group(group[k].cut, group[i].cut, tiers_)) continue;
        out.less[i].push_back(k);
        out.has_next[k] = 1;
      }
    }
    return out;
  }

  // One is looked at where all with one thing less are too large.
  void look_at_group(CertifiedGroup group) {
    ledger_.ways += static_cast<int64_t>(group.size());
    if (!certified_way_divides(group.front())) {
      ledger_.do_not_divide += static_cast<int64_t>(group.size());
      return;
    }
    const GroupOrder& order = order_of(group);
    std::vector<Found> found(group.size(), Found::kDone);
    for (size_t i = 0; i < group.size(); ++i) {
      const bool is_needed = std::ranges::all_of(order.less[i], [&](size_t k) { return found[k] == Found::kTooLarge; });
      if (is_needed) {
        found[i] = look_at(group[i], order.has_next[i] != 0);
      } else {
        ++ledger_.needless;
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
    const CertifiedCut most = certified_most_rows(way.cut), own = certified_alone(way.cut);
    if (is_slower_by_fewer(way, certified_by_tp(way.cut)) || is_slower_by_fewer(way, certified_by_tp_and_ep(way.cut)))
      return Found::kDone;
    if (is_slower(way, certified_all_kept(most)) || is_slower(way, most)) return Found::kDone;
    if (is_too_large(way, most)) return Found::kTooLarge;
    const CertifiedTable& table = table_of(alone_, own, way);
    if (table.is_refused || (table.is_joined && way.pp > 1)) {
      ++ledger_.do_not_divide;
      check_not_best(way, table.is_refused ? "the compiler refuses it for one data parallel rank"
                                           : "its micro-batches depend on each other");
      return Found::kDone;
    }
    if (is_slower(way, own)) return Found::kDone;
    if (is_too_large(way, own)) return Found::kTooLarge;
    const auto unsliced = certified_without_slices(way.cut);
    if (unsliced && (is_slower_by_sums(way, certified_few_ranks(*unsliced)) || is_slower_by_sums(way, unsliced)))
      return Found::kDone;
    if (is_slower_than_few(way, own)) return Found::kDone;
    return std::nullopt;
  }
  // Of experts that lie otherwise nothing is known of what is computed, but that it takes no less than the arithmetic;
  // what moves comes on top.
  bool is_slower_by_fewer(const CertifiedWay& way, const std::optional<CertifiedCut>& fewer) {
    if (!fewer) return false;
    const CertifiedTable& known = table_of(alone_, *fewer, way);
    if (known.is_refused) return false;
    const CertifiedTable least = certified_least_by_fewer(known, way.cut);
    if (is_slower_by(way, least)) return true;
    if (way.cut.ep == fewer->ep) return false;
    const int64_t moved = exact_product(way.micro_batches, price(way, least).share_of_passes());
    if (exact_sum(certified_arithmetic_ps(way, c_.model), moved) <= limit_) return false;
    ++ledger_.slower;
    check_not_best(way, "its arithmetic and what it moves take longer");
    return true;
  }
  bool is_slower_than_few(const CertifiedWay& way, const CertifiedCut& own) {
    const auto cut = certified_few_ranks(way.cut);
    if (!cut) return false;
    const CertifiedTable& few = table_of(prices_, *cut, way);
    if (few.is_refused) return false;
    const CertifiedTable least = with_moved(certified_least(table_of(alone_, own, way), way.cut, c_.model), few);
    return is_slower_by(way, least);
  }
  bool is_slower_by_sums(const CertifiedWay& way, const std::optional<CertifiedCut>& without_slices) {
    if (!without_slices) return false;
    const CertifiedSums by{table_of(alone_, certified_alone(way.cut), way), table_of(prices_, *without_slices, way),
                           table_of(alone_, certified_alone(*without_slices), way)};
    if (by.alone.is_refused || by.summed.is_refused || by.unsummed.is_refused) return false;
    return is_slower_by(way, with_exchanged(certified_least(by.alone, way.cut, c_.model), by));
  }
  bool is_slower(const CertifiedWay& way, const CertifiedCut& by) {
    const CertifiedTable& alone = table_of(alone_, by, way);
    if (alone.is_refused) return false;
    return is_slower_by(way, certified_least(alone, way.cut, c_.model));
  }
  bool is_slower_by(const CertifiedWay& way, const CertifiedTable& least) {
    if (!price(way, least).longer_passes_exceed(limit_, certified_moves_ps(way.cut, c_.model))) return false;
    ++ledger_.slower;
    check_not_best(way, "its bounds take longer");
    return true;
  }
  bool is_too_large(const CertifiedWay& way, const CertifiedCut& by) {
    const CertifiedTable& alone = table_of(alone_, by, way);
    if (alone.is_refused) return false;
    const CertifiedTable least = certified_least(alone, way.cut, c_.model);
    if (price(way, least).fits()) return false;
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
      not_proven("{} fits, and is not among the {} best that were asked for, of which it has {}",
                 certified_way_text(way), c_.top, c_.best.size());
    const auto less = priced.least_below(said);
    if (!less) return said;
    if (listed == best_.end()) {
      not_proven("{} fits and takes {} ps, less than the {} of a way that it has instead", certified_way_text(way),
                 *less, said);
    }
    not_proven("{} takes {} ps by another cut into stages, less than the {} that it says", certified_way_text(way),
               *less, said);
  }

  void check_not_best(const CertifiedWay& way, std::string_view why) const {
    if (best_.count(way) != 0) not_proven("{} is said to be among the best, and {}", certified_way_text(way), why);
  }

  void check_ledger() const {
    for (const auto& [name, field] : kCertifiedLedgerNames) {
      if (ledger_.*field != c_.ledger.*field)
        not_proven("{} of the ledger is {}, and counting the ways gives {}", name, c_.ledger.*field, ledger_.*field);
    }
  }

  // What nothing follows from is not what the search found.
  void check_used() const {
    for (const auto* const tables : {&c_.alone, &c_.prices}) {
      for (const CertifiedTable& table : *tables) {
        if (used_.count(&table) == 0)
          not_proven("no way needs the {} of {}", tables == &c_.alone ? "bounds" : "prices",
                     certified_way_text(CertifiedWay{.cut = table.cut}));
      }
    }
  }

  const Certificate& c_;
  CertifiedTiers tiers_;
  std::map<size_t, GroupOrder> orders_;  // by the number of ways
  Tables alone_, prices_;
  std::set<const CertifiedTable*> used_;
  std::map<CertifiedWay, const CertifiedPlan*> best_;
  int64_t limit_ = std::numeric_limits<int64_t>::max();  // what takes longer is not among the best
  CertifiedLedger ledger_;
};

std::string certified_ms(int64_t ps) {
  return fmt::format("{:.3f} ms", static_cast<double>(ps) * 1e-9);
}

std::string certified_mib(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
}

}  // namespace

void verify_certificate(const Certificate& certificate) {
  CertificateVerifier(certificate).verify();
}

std::string proven_text(const Certificate& c) {
  std::string out = fmt::format("certificate for step {}, {} ranks of '{}' with {} each\n", c.graph, c.ranks, c.machine,
                                certified_mib(c.memory));
  const CertifiedLedger& l = c.ledger;
  const auto counts = [&] {
    const size_t tables = c.alone.size() + c.prices.size();
    return fmt::format(
        "its {} ways are {}\n"
        "  {:>8} do not divide, or are refused by the compiler\n"
        "  {:>8} are too large by their parameters and state alone\n"
        "  {:>8} are slower by their arithmetic alone\n"
        "  {:>8} are slower by what their tables, or bounds from others, say\n"
        "  {:>8} fit by no cut into stages\n"
        "  {:>8} have state, updates or kept activations farther, or these in slices, without need\n"
        "  {:>8} fit, {}\n"
        "it rests on {} tables of what parts of the model take\n",
        l.ways, certified_space_text(), l.do_not_divide, l.memory_least, l.bound, l.slower, l.memory, l.needless,
        l.solved, c.best.empty() ? "which is none" : "and no cut of them is faster than the best", tables);
  };
  if (c.best.empty()) return out + "proven: no way in its space fits in the memory of a rank\n" + counts();
  const CertifiedPlan& best = c.best.front();
  const int64_t most = *std::ranges::max_element(best.crew_bytes);
  out += fmt::format("plan {} micro_batches={}\n", certified_way_text(best.way), best.way.micro_batches);
  out += fmt::format("proven: by its tables it fits, the fullest rank holds {}; it takes {} a step, exactly {} ps\n",
                     certified_mib(most), certified_ms(best.step_ps), best.step_ps);
  out += "proven: no other way in its space takes less; the gap is 0\n";
  for (size_t i = 1; i < c.best.size(); ++i)
    out += fmt::format("proven: the next best, {}, takes {}\n", certified_way_text(c.best[i].way),
                       certified_ms(c.best[i].step_ps));
  return out + counts();
}

}  // namespace trireme
