// Random prices for every cut of a model, for tests of certificates.
#pragma once

#include <algorithm>
#include <map>

#include "trireme/planner/certificate/certified_bounds_for_tests.h"
#include "trireme/planner/certificate/certified_least.h"
#include "trireme/planner/certificate/random_space_for_tests.h"
#include "trireme/planner/outer/least_part.h"

namespace trireme::verify_certificate_test {

// Whether a search asks for them or not.
class RandomPrices : public RandomSpace {
 public:
  explicit RandomPrices(uint64_t seed) : RandomSpace(seed) {
    for (const CertifiedWay& way : space()) add_tables(way.cut);
    bound_model();
    find_groups();  // without state nothing lies elsewhere
  }

  const CertifiedTable& alone(const CertifiedCut& cut) const { return alone_.at(cut); }
  const CertifiedTable& prices(const CertifiedCut& cut) const { return prices_.at(cut); }
  // The least step of a way by trying every cut; -1: none fits. `least_bytes`: of the fullest stage.
  int64_t least_of(const CertifiedWay& way, const CertifiedRoom& room, int64_t* least_bytes = nullptr) const {
    const StageProblem problem = as_problem(way, prices(way.cut), runs_, room);
    const int64_t parts = model_.layers + 2;
    int64_t least = -1;
    for (int64_t mask = 0; mask < int64_t{1} << (parts - 1); ++mask) {
      std::vector<int64_t> begins{0};
      for (int64_t i = 1; i < parts; ++i) {
        if ((mask >> (i - 1) & 1) != 0) begins.push_back(i);
      }
      if (static_cast<int64_t>(begins.size()) != way.pp * way.virtual_stages) continue;
      if (way.virtual_stages > 1) {
        const auto even = even_cuts(parts, way.pp * way.virtual_stages);
        if (std::ranges::find(even, begins) == even.end()) continue;
      }
      const int64_t most = std::ranges::max(bytes_of_crews(problem, begins));
      if (least_bytes != nullptr) *least_bytes = std::min(*least_bytes, most);
      const int64_t total = price_of_cut(problem, begins).total;
      const bool has_room = std::ranges::max(bytes_elsewhere(problem, begins, Tier::kHost)) <= room.host &&
                            std::ranges::max(bytes_elsewhere(problem, begins, Tier::kDisk)) <= room.disk;
      if (most <= room.device && has_room && (least < 0 || total < least)) least = total;
    }
    return least;
  }

 protected:
  void fill(CertifiedPart& part, size_t from, size_t end, int64_t most) {
    for (size_t i = from; i < end; ++i) part.*kFields[i].first = number(0, 3) == 0 ? 0 : number(0, most);
  }

  // By the search's rule.
  CertifiedTable least_of(const CertifiedTable& alone, const CertifiedCut& cut) const {
    CertifiedTable out{.cut = cut, .crossing = alone.crossing * cut.rows / alone.cut.rows};
    for (const CertifiedPart& part : alone.parts) {
      const PartPrice least = least_part(as_price(part), {.rows = cut.rows,
                                                          .rows_of_table = alone.cut.rows,
                                                          .is_own = alone.cut == own_of(cut),
                                                          .ranks = cut.tp * cut.cp * cut.ep * cut.dp,
                                                          .zero = cut.zero,
                                                          .state_elsewhere = cut.place.state != Tier::kDevice,
                                                          .update_elsewhere = cut.place.update != Tier::kDevice,
                                                          .parameter_bytes = model_.parameter_bytes,
                                                          .state_bytes = model_.state_bytes,
                                                          .weight_bytes = model_.weight_bytes});
      out.parts.emplace_back();
      for (const auto& [to, from] : kFields) out.parts.back().*to = least.*from;
    }
    return out;
  }

  CertifiedTable least_of_fewer(const CertifiedTable& fewer, const CertifiedCut& cut) const {
    CertifiedTable out{.cut = cut};
    out.parts.resize(fewer.parts.size());
    for (size_t block = 1; block + 1 < out.parts.size(); ++block) {
      const PartPrice least =
          least_part(least_of_cut_part(
                         as_price(fewer.parts[block]),
                         {.tp = cut.tp / fewer.cut.tp, .cp = cut.cp / fewer.cut.cp, .more_ep = cut.ep != fewer.cut.ep}),
                     {.rows = cut.rows, .rows_of_table = fewer.cut.rows, .is_own = false});
      for (size_t i = 0; i < kPasses; ++i) out.parts[block].*kFields[i].first = least.*kFields[i].second;
    }
    return out;
  }

  // Its first figures are those of `least`, or larger.
  CertifiedTable table_above(const CertifiedCut& cut, const CertifiedTable* least, size_t first) {
    CertifiedTable out{.cut = cut, .is_refused = number(0, 19) == 0};
    if (out.is_refused) return out;
    out.is_joined = number(0, 9) == 0;
    out.crossing = number(0, 5) + (least == nullptr ? 0 : least->crossing);
    out.parts.resize(kinds_ + 2);
    const bool is_bounded = least != nullptr && first > kPasses;
    for (size_t part = 0; part < out.parts.size(); ++part) {
      fill(out.parts[part], 0, kPasses, least == nullptr ? 40 : 6);
      fill(out.parts[part], kPasses, kOnDevice, least == nullptr ? 12 : 3);
      const bool is_elsewhere = cut.place != CertifiedPlace() || cut.keep != Tier::kDevice;
      if (is_elsewhere && number(0, 3) > 0) out.parts[part] = {};
      if (is_elsewhere) fill(out.parts[part], kOnDevice, kBeside, 9);
      for (size_t i = 0; least != nullptr && i < first; ++i)
        out.parts[part].*kFields[i].first += least->parts[part].*kFields[i].first;
      out.parts[part].adding = number(0, out.parts[part].weight_grad);
      out.parts[part].sums = number(is_bounded ? least->parts[part].gradients : 0, out.parts[part].gradients);
    }
    out.parts[0].tied_adding = number(0, out.parts[0].update);
    out.parts[0].tied = std::max(number(0, out.parts[0].sync), is_bounded ? least->parts[0].tied : 0);
    out.parts[0].tied_sums = number(0, is_bounded && cut.zero <= 1 ? least->parts[0].tied_sums : 12);
    return out;
  }
  const CertifiedTable& add_alone(const CertifiedCut& cut, const CertifiedTable* least, size_t first) {
    if (const auto found = alone_.find(cut); found != alone_.end()) return found->second;
    CertifiedTable made = table_above(cut, least, first);
    for (const CertifiedCut& fewer : fewer_axes_of(cut)) raise_by_fewer(add_alone(fewer, nullptr, 0), made);
    if (cut.vocabulary) raise_by_whole(alone_.at(certified_whole_vocabulary(cut)), made);
    if (is_kept_with_ep(cut)) {
      const CertifiedTable& none = add_alone(all_kept(kept_without_ep(cut)), nullptr, 0);
      const CertifiedTable& kept = add_alone(kept_without_ep(cut), none.is_refused ? nullptr : &none, kPasses);
      if (!kept.is_refused && !made.is_refused) raise_kept_moves_of(made, kept);
    }
    return alone_.emplace(cut, std::move(made)).first->second;
  }

  void raise_by_fewer(const CertifiedTable& fewer, CertifiedTable& table) const {
    if (!fewer.is_refused && !table.is_refused) raise_blocks(least_of_fewer(fewer, table.cut), table);
  }
  void add_tables(const CertifiedCut& cut) {
    if (prices_.count(cut) != 0) return;
    if (cut.vocabulary) add_tables(certified_whole_vocabulary(cut));
    const CertifiedCut most = most_of(cut), own = own_of(cut);
    const CertifiedTable& none = add_alone(all_kept(most), nullptr, 0);
    const CertifiedTable& again = most == none.cut ? none : add_alone(most, none.is_refused ? nullptr : &none, kPasses);
    CertifiedTable nothing;
    nothing.parts.resize(kinds_ + 2);
    CertifiedTable of_rows = again.is_refused ? nothing : least_of(again, own);
    if (!none.is_refused) {
      const CertifiedTable of_none = least_of(none, own);
      of_rows.crossing = std::max(of_rows.crossing, of_none.crossing);
      for (size_t part = 0; part < of_rows.parts.size(); ++part) {
        for (size_t i = 0; i < kPasses; ++i) {
          const auto field = kFields[i].first;
          of_rows.parts[part].*field = std::max(of_rows.parts[part].*field, of_none.parts[part].*field);
        }
      }
    }
    const CertifiedTable& alone = own == most ? again : add_alone(own, &of_rows, kBeside);
    CertifiedTable least = alone.is_refused ? nothing : least_of(alone, cut);
    CertifiedPart last = least.parts.back();  // the least of it in a stage of all parts
    if (is_more_than_few(cut)) {
      add_tables(few_of(cut));
      if (!prices(few_of(cut)).is_refused) {
        raise_moved_of(least, prices(few_of(cut)));
        raise_last_of_one_stage(last, prices(few_of(cut)));
      }
    }
    if (cut.zero > 0) {
      for (const CertifiedCut& each : without_slices_of(cut)) {
        add_tables(each);
        const CertifiedTable &summed = prices(each), &unsummed = this->alone(own_of(each));
        if (!alone.is_refused && !summed.is_refused && !unsummed.is_refused)
          raise_exchanged_of(least, alone, summed, unsummed);
      }
    }
    bool is_refused = alone.is_refused;
    CertifiedCut nearer = cut, whole = cut, near_keep = cut;
    if (cut.place.state == Tier::kDisk && room_.host > 0) {
      nearer.place.state = Tier::kHost;
    } else {
      nearer.place = {};
    }
    near_keep.keep = cut.keep == Tier::kDisk && room_.host > 0 ? Tier::kHost : Tier::kDevice;
    if (cut.keep == Tier::kDevice) whole.kept_slices = false;
    for (const CertifiedCut& less : {nearer, near_keep, whole}) {
      if (less == cut) continue;
      add_tables(less);
      is_refused = is_refused || prices(less).is_refused;
      if (!is_refused) {
        raise_times_of(least, prices(less));
        raise_last_of_one_stage(last, prices(less));
      }
      least.crossing = std::max(least.crossing, prices(less).crossing);
    }
    prices_.emplace(cut,
                    is_refused ? CertifiedTable{.cut = cut, .is_refused = true} : table_above(cut, &least, kBeside));
    CertifiedTable& priced = prices_.at(cut);
    if (priced.is_refused) return;
    priced.is_joined = alone.is_joined;
    CertifiedPart &first = priced.parts.front(), &part = priced.parts.back();
    first.tied_adding = number(0, first.update - least.parts.front().update);
    part.tied_forward = number(0, part.moving_forward - last.moving_forward);
    part.tied_backward = number(0, part.moving_backward - last.moving_backward);
  }

  // What crews compute on average, and idle for that.
  int64_t computed_by(const CertifiedWay& way) const {
    const StageProblem problem = as_problem(way, prices(way.cut), runs_, room_);
    PartTotals computed;
    for (PartPrice part : problem.parts) {
      part.moving_forward = part.moving_backward = part.leaving = part.returning = 0;
      computed.add(part, 1);
    }
    if (problem.shape.chunks > 1) return problem.micro_batches * (computed.pass() / problem.shape.crews());
    computed.longest_pass = computed.longest_once = computed.once = 0;
    computed.chain.clear();
    return bound_of_longer_parts(computed, problem.shape, problem.micro_batches, 0);
  }

  void bound_moves(const CertifiedTable& table) {
    if (table.is_refused || table.cut.place == CertifiedPlace()) return;
    const StageProblem problem = as_problem({.cut = table.cut}, table, runs_, room_);
    int64_t moved = 0;
    for (const PartPrice& part : problem.parts) moved += part.moves();
    const bool updates = table.cut.place.update == Tier::kHost;
    int64_t& of_host = updates ? model_.update_fs_per_byte : model_.host_fs_per_byte;
    while (certified_moves_ps(table.cut, model_) > moved) {
      int64_t& fs = table.cut.place.state == Tier::kDisk && (!updates || model_.disk_fs_per_byte > of_host)
                        ? model_.disk_fs_per_byte
                        : of_host;
      --fs;
    }
  }

  // Arithmetic and bytes of parameters that hold of all ways, as large as they may be or smaller.
  void bound_model() {
    model_.arithmetic_ps = number(0, 400);
    model_.host_fs_per_byte = number(0, 1) * number(0, 2'000);
    model_.disk_fs_per_byte = number(0, 1) * number(0, 2'000);
    for (const auto& [cut, table] : prices_) bound_moves(table);
    for (const CertifiedWay& way : space()) {
      if (!certified_way_divides(way) || prices(way.cut).is_refused) continue;
      constexpr int64_t kAll = int64_t{1} << 40;
      int64_t bytes = kAll;
      const int64_t step = least_of(way, {kAll, kAll, kAll}, &bytes);
      if (step < 0) continue;
      while (certified_arithmetic_ps(way, model_) > std::min(step, computed_by(way))) --model_.arithmetic_ps;
      while (certified_least_bytes(way, model_, ranks_) > bytes) {
        model_.parameter_bytes = std::max<int64_t>(model_.parameter_bytes - 1, 0);
        model_.state_bytes = std::max<int64_t>(model_.state_bytes - 1, 0);
        model_.weight_bytes = std::max<int64_t>(model_.weight_bytes - 1, 0);
      }
    }
  }

  std::map<CertifiedCut, CertifiedTable> alone_, prices_;
};

}  // namespace trireme::verify_certificate_test
