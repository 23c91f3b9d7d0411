#include "trireme/planner/certificate/table_bounds.h"

#include <map>
#include <optional>
#include <vector>

#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/certified_least.h"
#include "trireme/planner/certificate/certified_passes.h"
#include "trireme/planner/certificate/not_proven_impl.h"

namespace trireme {
namespace {

CertifiedTable nothing_of(const CertifiedTable& table) {
  CertifiedTable out{.cut = table.cut};
  out.parts.resize(table.parts.size());
  return out;
}

class TableBounds {
 public:
  TableBounds(const Certificate& certificate, const CertifiedTiers& tiers) : c_(certificate), tiers_(tiers) {
    for (const auto& [tables, into] : {std::pair(&c_.alone, &alone_), std::pair(&c_.prices, &prices_)}) {
      for (const CertifiedTable& table : *tables) into->emplace(table.cut, &table);
    }
  }

  void check() const {
    for (const auto& [cut, known] : prices_) {
      const CertifiedTable& table = *known;
      check_tied(table);
      check_less_of_variants(table);
      check_moves(table, c_.runs, c_.model);
      if (c_.model.joined == 1) continue;  // nothing follows from others than its variants
      check_bound(table, cut, certified_alone(cut));
      const CertifiedTable* const few = table_if_any(prices_, certified_few_ranks(cut));
      if (few != nullptr && !table.is_refused) {
        check_no_less(table, with_moved(nothing_of(table), *few));
        check_no_less(certified_without_tied(table), with_moved(nothing_of(table), certified_without_tied(*few)));
      }
      check_sums(table);
    }
    for (const auto& [cut, known] : alone_) {
      const CertifiedTable& table = *known;
      for (const CertifiedPart& part : table.parts) {
        if (part.adding > part.weight_grad || part.sums > part.gradients)
          not_proven("adding the gradients of {} takes more than everything that includes it",
                     certified_way_text({.cut = cut}));
      }
      check_tied(table);
      const CertifiedCut most = certified_most_rows(cut);
      if (cut != most) check_bound(table, cut, most);
      if (cut != most) check_whole_sums(table, table_if_any(alone_, most));
      if (cut != certified_all_kept(most)) check_passes(table);
      check_whole_vocabulary(table);
      const CertifiedTable* const kept = table_if_any(alone_, certified_kept_without_ep(cut));
      if (kept != nullptr && !table.is_refused) check_no_less(table, with_kept_moves(nothing_of(table), *kept));
      std::vector<std::optional<CertifiedCut>> of_fewer_axes{certified_by_fewer_tp(cut), certified_by_tp(cut),
                                                             certified_by_tp_and_ep(cut), certified_by_half_cp(cut)};
      for (const CertifiedCut& of_fewer : certified_by_fewer_ep(cut)) of_fewer_axes.emplace_back(of_fewer);
      for (const auto& of_fewer : of_fewer_axes) {
        const CertifiedTable* const fewer = table_if_any(alone_, of_fewer);
        if (fewer != nullptr && !table.is_refused) check_no_less(table, certified_least_by_fewer(*fewer, cut));
      }
    }
  }

 private:
  using Tables = std::map<CertifiedCut, const CertifiedTable*>;

  // Where it is there and no cut is refused.
  static const CertifiedTable* table_if_any(const Tables& tables, const std::optional<CertifiedCut>& cut) {
    const auto found = cut ? tables.find(*cut) : tables.end();
    return found == tables.end() || found->second->is_refused ? nullptr : found->second;
  }

  // A vocabulary that is cut has the blocks of one that is whole.
  void check_whole_vocabulary(const CertifiedTable& table) const {
    const auto found = table.cut.vocabulary ? alone_.find(certified_whole_vocabulary(table.cut)) : alone_.end();
    if (found == alone_.end() || table.is_refused) return;
    if (found->second->is_refused)
      not_proven("{} has prices, but the same cut with its vocabulary whole is refused",
                 certified_way_text({.cut = table.cut}));
    check_no_less(table, certified_blocks_of(*found->second, table.cut));
  }
  // Nor do slices exchange less than what sums without them say, where these are known.
  void check_sums(const CertifiedTable& table) const {
    const auto own = certified_without_slices(table.cut);
    if (table.is_refused || !own) return;
    const CertifiedTable* const alone = table_if_any(alone_, certified_alone(table.cut));
    if (alone == nullptr) return;
    for (const auto& cut : {own, certified_fewest_sums(*own)}) {
      const CertifiedTable* const summed = table_if_any(prices_, cut);
      const CertifiedTable* const unsummed = cut ? table_if_any(alone_, certified_alone(*cut)) : nullptr;
      if (summed != nullptr && unsummed != nullptr)
        check_no_less(table, with_exchanged(nothing_of(table), {*alone, *summed, *unsummed}));
    }
  }
  // Sums of gradients are as large whatever the rows: of others these alone are known.
  static void check_whole_sums(const CertifiedTable& table, const CertifiedTable* most) {
    if (most == nullptr || table.is_refused) return;
    for (size_t i = 0; i < table.parts.size(); ++i) {
      if (table.parts[i].sums < most->parts[i].sums)
        not_proven("sums of gradients of {} are smaller than those with the most rows",
                   certified_way_text({.cut = table.cut}));
    }
  }
  // What one stage takes otherwise is a matter of the first part, of which it is taken.
  static void check_tied(const CertifiedTable& table) {
    for (size_t i = 0; i < table.parts.size(); ++i) {
      const CertifiedPart& part = table.parts[i];
      if (part.tied > (i == 0 ? part.sync : 0) || (i > 0 && part.tied_sums > 0) ||
          part.tied_adding > (i == 0 ? part.update : 0))
        not_proven("sums of a tied weight's gradients are more than all sums of {}",
                   certified_way_text({.cut = table.cut}));
      const bool is_last = i + 1 == table.parts.size();
      if (part.tied_forward > (is_last ? part.moving_forward : 0) ||
          part.tied_backward > (is_last ? part.moving_backward : 0))
        not_proven("gathers of a tied weight take more than all collectives of {}",
                   certified_way_text({.cut = table.cut}));
    }
  }
  void check_bound(const CertifiedTable& table, const CertifiedCut& cut, const CertifiedCut& of) const {
    const auto found = alone_.find(of);
    if (found == alone_.end() || table.is_refused) return;
    const CertifiedTable& alone = *found->second;
    if (!alone.is_refused) {
      if (cut.zero <= 1 && table.parts.front().tied_sums > alone.parts.front().tied_sums)
        not_proven("one stage of {} does without more sums of gradients than with one data parallel rank",
                   certified_way_text({.cut = cut}));
      return check_no_less(certified_without_tied(table), certified_least(alone, cut, c_.model));
    }
    if (of == certified_alone(cut))
      not_proven("{} has prices, but the same cut with one data parallel rank is refused",
                 certified_way_text({.cut = cut}));
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
          const CertifiedTable* const of = table_if_any(prices_, cut);
          if (of == nullptr) continue;
          check_less_of(table, *of);
          check_less_of(certified_without_tied(table), certified_without_tied(*of));
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
      times.parts[part].tied = of.parts[part].tied;
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
    const CertifiedTable* const found = table_if_any(alone_, certified_all_kept(certified_most_rows(table.cut)));
    if (found == nullptr || table.is_refused) return;
    const CertifiedTable least = certified_least(*found, table.cut, c_.model);
    CertifiedTable passes = nothing_of(table);
    passes.crossing = least.crossing;
    for (size_t part = 0; part < passes.parts.size(); ++part) {
      for (size_t i = 0; i < kCertifiedPassFields; ++i)
        passes.parts[part].*kCertifiedPartFields[i] = least.parts[part].*kCertifiedPartFields[i];
    }
    check_no_less(table, passes);
  }

  const Certificate& c_;
  const CertifiedTiers& tiers_;
  Tables alone_, prices_;
};

}  // namespace

void check_table_bounds(const Certificate& certificate, const CertifiedTiers& tiers) {
  TableBounds(certificate, tiers).check();
}

}  // namespace trireme
