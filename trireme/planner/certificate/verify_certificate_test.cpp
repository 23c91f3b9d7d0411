#include "trireme/planner/certificate/verify_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "trireme/base/error.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/planner/outer/outer_search.h"
#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/version.h"

namespace trireme::verify_certificate_test {
namespace {

constexpr std::pair<int64_t CertifiedPart::*, int64_t PartPrice::*> kFields[] = {
    {&CertifiedPart::forward, &PartPrice::forward},
    {&CertifiedPart::input_grad, &PartPrice::input_grad},
    {&CertifiedPart::weight_grad, &PartPrice::weight_grad},
    {&CertifiedPart::again, &PartPrice::again},
    {&CertifiedPart::moving_forward, &PartPrice::moving_forward},
    {&CertifiedPart::moving_backward, &PartPrice::moving_backward},
    {&CertifiedPart::update, &PartPrice::update},
    {&CertifiedPart::sync, &PartPrice::sync},
    {&CertifiedPart::persistent, &PartPrice::persistent},
    {&CertifiedPart::gradients, &PartPrice::gradients},
    {&CertifiedPart::kept, &PartPrice::kept},
    {&CertifiedPart::work, &PartPrice::work},
    {&CertifiedPart::waiting, &PartPrice::waiting}};
constexpr size_t kPasses = 6;  // of the fields above
constexpr auto kThreeParts = {&CertifiedTable::before, &CertifiedTable::block, &CertifiedTable::after};

PartPrice as_price(const CertifiedPart& part) {
  PartPrice out;
  for (const auto& [from, to] : kFields) out.*to = part.*from;
  return out;
}

const PipelineShape& shape_once(const std::string& schedule, int64_t pp) {
  static std::map<std::pair<std::string, int64_t>, PipelineShape> shapes;
  const std::pair key(schedule, pp);
  const auto found = shapes.find(key);
  return found != shapes.end() ? found->second : shapes.emplace(key, shape_of_schedule(schedule, pp)).first->second;
}

StageProblem as_problem(const CertifiedWay& way, const CertifiedTable& table, int64_t layers, int64_t memory) {
  StageProblem out{.shape = shape_once(way.schedule, way.pp),
                   .micro_batches = way.micro_batches,
                   .crossing = table.crossing,
                   .memory = memory};
  out.parts.push_back(as_price(table.before));
  out.parts.insert(out.parts.end(), static_cast<size_t>(layers), as_price(table.block));
  out.parts.push_back(as_price(table.after));
  return out;
}

// A model with prices of every cut, whether a search asks for them or not.
class RandomModel {
 public:
  explicit RandomModel(uint64_t seed) : random_(seed) {
    model_ = {.layers = number(1, 5),
              .heads = number(0, 2) * 2,
              .experts = number(0, 3) == 0 ? 2 : 0,
              .weights = number(0, 3) > 0 ? 1 : 0,
              .positions = number(0, 1),
              .sequence = number(1, 3) * 1024,
              .batch = number(1, 12)};
    ranks_ = std::vector<int64_t>{1, 2, 3, 4, 6, 8, 16}[static_cast<size_t>(number(0, 6))];
    if (ranks_ == 16) model_.batch = 16 * number(1, 3);
    memory_ = number(0, 3) == 0 ? number(10, 100) : number(100, 400);
    // So few that a smaller sum makes no larger share.
    model_.parameter_bytes = number(0, 500);
    model_.state_bytes = number(0, 500);
    for (const CertifiedWay& way : certified_space(model_, ranks_)) add_tables(way.cut);
    bound_model();
  }

  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  const CertifiedTable& alone(const CertifiedCut& cut) const { return alone_.at(cut); }
  const CertifiedTable& prices(const CertifiedCut& cut) const { return prices_.at(cut); }

  // The least step of a way by trying every cut; -1: none fits. `least_bytes`: of the fullest stage.
  int64_t least_of(const CertifiedWay& way, int64_t memory, int64_t* least_bytes = nullptr) const {
    const StageProblem problem = as_problem(way, prices(way.cut), model_.layers, memory);
    const int64_t parts = model_.layers + 2;
    int64_t least = -1;
    for (int64_t mask = 0; mask < int64_t{1} << (parts - 1); ++mask) {
      std::vector<int64_t> begins{0};
      for (int64_t i = 1; i < parts; ++i) {
        if ((mask >> (i - 1) & 1) != 0) begins.push_back(i);
      }
      if (static_cast<int64_t>(begins.size()) != way.pp) continue;
      const int64_t most = std::ranges::max(bytes_of_stages(problem, begins));
      if (least_bytes != nullptr) *least_bytes = std::min(*least_bytes, most);
      const int64_t total = price_of_cut(problem, begins).total;
      if (most <= memory && (least < 0 || total < least)) least = total;
    }
    return least;
  }

  // Of what a search finds.
  Certificate certificate(size_t top) {
    const std::vector<CertifiedWay> ways = certified_space(model_, ranks_);
    std::vector<OuterCandidate> candidates;
    for (const CertifiedWay& way : ways) {
      const bool divides = certified_way_divides(way);
      candidates.push_back({.divides = divides,
                            .least_bytes = certified_least_bytes(way, model_, ranks_),
                            .bound_ps = divides ? certified_arithmetic_ps(way, model_) : 0});
    }
    std::map<CertifiedCut, CertifiedTable> asked_alone, asked_prices;
    using Kind = OuterAnswer::Kind;
    const auto answer = [&](size_t i, const CertifiedCut& known, bool of_memory) -> OuterAnswer {
      const CertifiedTable& table = alone(known);
      asked_alone.emplace(known, table);
      if (table.is_refused) return {.kind = known == own_of(ways[i].cut) ? Kind::kRefused : Kind::kBound};
      const StageProblem least = as_problem(ways[i], least_of(table, ways[i].cut), model_.layers, memory_);
      if (!of_memory) return {.bound_ps = bound_of_longer_parts(least)};
      return {.kind = some_cut_fits(least) ? Kind::kBound : Kind::kTooLarge};
    };
    const auto problem = [&](size_t i) -> std::optional<StageProblem> {
      const CertifiedTable& table = prices(ways[i].cut);
      asked_prices.emplace(table.cut, table);
      if (table.is_refused) return std::nullopt;
      return as_problem(ways[i], table, model_.layers, memory_);
    };
    const auto by = [&](auto known, bool of_memory) {
      return [&, known, of_memory](size_t i) { return answer(i, known(ways[i].cut), of_memory); };
    };
    const auto none = [](const CertifiedCut& cut) { return without_again(most_of(cut)); };
    const auto by_few = [&](size_t i) -> OuterAnswer {
      const CertifiedCut& cut = ways[i].cut;
      if (!is_more_than_few(cut)) return {};
      const CertifiedTable& few = prices(few_of(cut));
      asked_prices.emplace(few.cut, few);
      if (few.is_refused) return {};
      CertifiedTable least = least_of(alone(own_of(cut)), cut);
      raise_moved_of(least, few);
      return {.bound_ps = bound_of_longer_parts(as_problem(ways[i], least, model_.layers, memory_))};
    };
    const OuterResult found = search_outer(candidates, memory_, top,
                                           {.bounds = {by(none, false), by(most_of, false), by(most_of, true),
                                                       by(own_of, false), by(own_of, true), by_few},
                                            .problem = problem});
    Certificate out{.version = std::string(kVersion),
                    .graph = "0123456789abcdef",
                    .machine_hash = "fedcba9876543210",
                    .machine = "a machine of tests",
                    .ranks = ranks_,
                    .memory = memory_,
                    .model = model_,
                    .before = {"wte"},
                    .after = {"ln_f"},
                    .blocks = "h",
                    .top = static_cast<int64_t>(top)};
    const OuterLedger& l = found.ledger;
    out.ledger = {l.ways, l.do_not_divide, l.memory_least, l.bound, l.slower, l.memory, l.solved};
    for (const SolvedWay& way : found.best) {
      const StageProblem solved = *problem(way.candidate);
      out.best.push_back({ways[way.candidate], way.begins, way.price.total, bytes_of_stages(solved, way.begins)});
    }
    for (auto& [cut, table] : asked_alone) out.alone.push_back(table);
    for (auto& [cut, table] : asked_prices) out.prices.push_back(table);
    return out;
  }

  const CertifiedModel& model() const { return model_; }
  int64_t ranks() const { return ranks_; }
  int64_t memory() const { return memory_; }

 private:
  void fill(CertifiedPart& part, size_t from, size_t end, int64_t most) {
    for (size_t i = from; i < end; ++i) part.*kFields[i].first = number(0, 3) == 0 ? 0 : number(0, most);
  }

  static CertifiedCut own_of(CertifiedCut cut) {
    cut.dp = 1;
    cut.zero = 0;
    return cut;
  }
  static CertifiedCut most_of(CertifiedCut cut) {
    cut.rows = 8;
    return own_of(std::move(cut));
  }
  static bool is_more_than_few(const CertifiedCut& cut) { return cut.dp > 8 && cut.dp % 8 == 0; }
  static CertifiedCut few_of(CertifiedCut cut) {
    cut.dp = 8;
    return cut;
  }
  static void raise_moved_of(CertifiedTable& table, const CertifiedTable& few) {
    for (const auto part : kThreeParts) {
      for (const auto field : {&CertifiedPart::moving_forward, &CertifiedPart::moving_backward, &CertifiedPart::sync})
        (table.*part).*field = std::max((table.*part).*field, (few.*part).*field);
    }
  }
  static CertifiedCut without_again(CertifiedCut cut) {
    cut.recompute = "none";
    return cut;
  }

  // By the search's rule.
  CertifiedTable least_of(const CertifiedTable& alone, const CertifiedCut& cut) const {
    CertifiedTable out{.cut = cut};
    for (const auto part : kThreeParts) {
      const PartPrice least = least_part(as_price(alone.*part), {.rows = cut.rows,
                                                                 .rows_of_table = alone.cut.rows,
                                                                 .is_own = alone.cut == own_of(cut),
                                                                 .ranks = cut.tp * cut.cp * cut.ep * cut.dp,
                                                                 .zero = cut.zero,
                                                                 .parameter_bytes = model_.parameter_bytes,
                                                                 .state_bytes = model_.state_bytes});
      for (const auto& [to, from] : kFields) (out.*part).*to = least.*from;
    }
    return out;
  }

  // Its first figures are those of `least`, or larger.
  CertifiedTable table_above(const CertifiedCut& cut, const CertifiedTable* least, size_t first) {
    CertifiedTable out{.cut = cut, .is_refused = number(0, 19) == 0};
    if (out.is_refused) return out;
    out.crossing = number(0, 5);
    for (const auto part : kThreeParts) {
      fill(out.*part, 0, kPasses, least == nullptr ? 40 : 6);
      fill(out.*part, kPasses, std::size(kFields), least == nullptr ? 12 : 3);
      for (size_t i = 0; least != nullptr && i < first; ++i)
        (out.*part).*kFields[i].first += (least->*part).*kFields[i].first;
    }
    return out;
  }
  const CertifiedTable& add_alone(const CertifiedCut& cut, const CertifiedTable* least, size_t first) {
    const auto found = alone_.find(cut);
    if (found != alone_.end()) return found->second;
    return alone_.emplace(cut, table_above(cut, least, first)).first->second;
  }

  void add_tables(const CertifiedCut& cut) {
    const CertifiedCut most = most_of(cut), own = own_of(cut);
    const CertifiedTable& none = add_alone(without_again(most), nullptr, 0);
    const CertifiedTable& again = most == none.cut ? none : add_alone(most, none.is_refused ? nullptr : &none, kPasses);
    CertifiedTable of_rows = again.is_refused ? CertifiedTable{} : least_of(again, own);
    if (!none.is_refused) {
      const CertifiedTable of_none = least_of(none, own);
      for (const auto part : kThreeParts) {
        for (size_t i = 0; i < kPasses; ++i) {
          const auto field = kFields[i].first;
          (of_rows.*part).*field = std::max((of_rows.*part).*field, (of_none.*part).*field);
        }
      }
    }
    const CertifiedTable& alone = own == most ? again : add_alone(own, &of_rows, std::size(kFields));
    if (prices_.count(cut) != 0) return;
    CertifiedTable least = alone.is_refused ? CertifiedTable{} : least_of(alone, cut);
    if (is_more_than_few(cut)) {
      add_tables(few_of(cut));
      if (!prices(few_of(cut)).is_refused) raise_moved_of(least, prices(few_of(cut)));
    }
    prices_.emplace(cut, alone.is_refused ? CertifiedTable{.cut = cut, .is_refused = true}
                                          : table_above(cut, &least, std::size(kFields)));
  }

  // Arithmetic and bytes of parameters that hold of all ways, as large as they may be or smaller.
  void bound_model() {
    model_.arithmetic_ps = number(0, 400);
    for (const CertifiedWay& way : certified_space(model_, ranks_)) {
      if (!certified_way_divides(way) || prices(way.cut).is_refused) continue;
      int64_t bytes = int64_t{1} << 40;
      const int64_t step = least_of(way, int64_t{1} << 40, &bytes);
      if (step < 0) continue;
      while (certified_arithmetic_ps(way, model_) > step) --model_.arithmetic_ps;
      while (certified_least_bytes(way, model_, ranks_) > bytes) {
        --model_.parameter_bytes;
        --model_.state_bytes;
        model_.parameter_bytes = std::max<int64_t>(model_.parameter_bytes, 0);
        model_.state_bytes = std::max<int64_t>(model_.state_bytes, 0);
      }
    }
  }

  std::mt19937_64 random_;
  CertifiedModel model_;
  int64_t ranks_ = 1, memory_ = 0;
  std::map<CertifiedCut, CertifiedTable> alone_, prices_;
};

std::string why_not(const Certificate& certificate) {
  try {
    verify_certificate(certificate);
    return "verified";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument) << error.what();
    return error.what();
  }
}

// The verifier's own arithmetic against the search's: two programs for one price.
TEST(CertifiedPrice, agrees_with_the_search_on_steps_bytes_bounds_and_the_best_cut) {
  int fit = 0, too_large = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomModel random(seed);
    const int64_t layers = random.model().layers;
    for (const CertifiedWay& way : certified_space(random.model(), random.ranks())) {
      const CertifiedTable& table = random.prices(way.cut);
      if (!certified_way_divides(way) || table.is_refused || random.number(0, 4) > 0) continue;
      const CertifiedPrice priced(way, table, layers, random.memory());
      const StageProblem problem = as_problem(way, table, layers, random.memory());
      ASSERT_EQ(priced.least_of_cuts(), bound_of_cuts(problem));
      const auto cut = best_cut(problem);
      ASSERT_EQ(priced.fits(), cut.has_value());
      ++(cut ? fit : too_large);
      if (!cut) continue;
      const int64_t total = price_of_cut(problem, *cut).total;
      ASSERT_EQ(priced.of_cut(*cut).step_ps, total);
      ASSERT_EQ(priced.of_cut(*cut).stage_bytes, bytes_of_stages(problem, *cut));
      ASSERT_EQ(priced.least_below(total), std::nullopt);
      ASSERT_EQ(priced.least_below(total + 1), total);
      ASSERT_EQ(priced.least_below(2 * total + 10), total);
      ASSERT_LE(priced.least_of_longer_passes(), total);
      ASSERT_EQ(priced.least_of_longer_passes(), bound_of_longer_parts(problem));
    }
  }
  EXPECT_GT(fit, 1'000);
  EXPECT_GT(too_large, 200);
}

TEST(CertifiedPrice, knows_the_schedules_as_their_timetables_have_them) {
  CertifiedTable table;
  table.before.forward = 1'000'000;
  table.block.input_grad = 1'000'000'000;
  table.after.weight_grad = 1'000'000'000'000;
  table.block.kept = 1;
  table.before.waiting = 1'000;
  table.block.waiting = 3'000;
  for (const char* const schedule : {"1f1b", "zb-h1", "zb-h2"}) {
    for (int64_t pp = 1; pp <= 40; ++pp) {
      if (pp == 1 && std::string_view(schedule) != "1f1b") continue;
      const CertifiedWay way{.pp = pp, .micro_batches = 3 * pp, .schedule = schedule};
      const StageProblem problem = as_problem(way, table, 60, 1);
      std::vector<int64_t> begins;
      for (int64_t stage = 0; stage < pp; ++stage) begins.push_back(stage);
      const auto cut = CertifiedPrice(way, table, 60, 1).of_cut(begins);
      EXPECT_EQ(cut.step_ps, price_of_cut(problem, begins).total) << schedule << " " << pp;
      EXPECT_EQ(cut.stage_bytes, bytes_of_stages(problem, begins)) << schedule << " " << pp;
    }
  }
}

// Prices of all ways are known here, those that no certificate mentions included: none is below what is proven.
TEST(VerifyCertificate, what_it_proves_holds_of_all_ways_and_all_cuts) {
  int plans = 0, none_fits = 0;
  CertifiedLedger sum;
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    RandomModel random(seed);
    const Certificate found = random.certificate(static_cast<size_t>(random.number(1, 4)));
    const std::string text = to_string(found);
    ASSERT_EQ(parse_certificate(text), found);
    ASSERT_EQ(why_not(found), "verified") << seed << "\n" << text;
    std::vector<int64_t> all;
    for (const CertifiedWay& way : certified_space(random.model(), random.ranks())) {
      if (!certified_way_divides(way) || random.prices(way.cut).is_refused) continue;
      const int64_t least = random.least_of(way, random.memory());
      if (least >= 0) all.push_back(least);
    }
    std::ranges::sort(all);
    ASSERT_EQ(found.best.size(), std::min(all.size(), static_cast<size_t>(found.top))) << seed;
    for (size_t i = 0; i < found.best.size(); ++i) ASSERT_EQ(found.best[i].step_ps, all[i]) << seed;
    ++(all.empty() ? none_fits : plans);
    for (const auto count : {&CertifiedLedger::do_not_divide, &CertifiedLedger::memory_least, &CertifiedLedger::bound,
                             &CertifiedLedger::slower, &CertifiedLedger::memory, &CertifiedLedger::solved})
      sum.*count += found.ledger.*count;
  }
  EXPECT_GT(plans, 300);
  EXPECT_GT(none_fits, 50);
  for (const int64_t count : {sum.do_not_divide, sum.memory_least, sum.bound, sum.slower, sum.memory, sum.solved})
    EXPECT_GT(count, 200);
}

// A plan that is slower than another one cannot be proven, however its certificate is written.
TEST(VerifyCertificate, refuses_a_plan_that_is_not_the_best) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    RandomModel random(seed);
    Certificate found = random.certificate(2);
    if (found.best.size() < 2 || found.best[0].step_ps == found.best[1].step_ps) continue;
    found.best.erase(found.best.begin());
    found.top = 1;
    ASSERT_NE(why_not(found), "verified") << seed;
    ++refused;
  }
  EXPECT_GT(refused, 50);
}

Certificate some_certificate() {
  for (uint64_t seed = 1;; ++seed) {
    RandomModel random(seed);
    Certificate out = random.certificate(2);
    if (out.best.size() == 2 && out.best[0].way.pp > 1 && out.ledger.memory > 0 && out.ledger.slower > 0) return out;
  }
}

TEST(VerifyCertificate, says_what_does_not_follow) {
  const Certificate found = some_certificate();
  const auto changed = [&](auto change) {
    Certificate out = found;
    change(out);
    return why_not(out);
  };
  using testing::HasSubstr;
  EXPECT_THAT(changed([](Certificate& c) { c.version = "0.0.9"; }), HasSubstr("trireme 0.0.9 made it and this is"));
  EXPECT_THAT(changed([](Certificate& c) { --c.best[0].step_ps; }), HasSubstr("ps by its prices, not the"));
  EXPECT_THAT(changed([](Certificate& c) { ++c.best[0].stage_bytes[0]; }), HasSubstr("hold other bytes"));
  EXPECT_THAT(changed([](Certificate& c) { std::swap(c.best[0], c.best[1]); }), HasSubstr("order of their time"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[1] = c.best[0]; }), HasSubstr("stands in it twice"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].way.cut.dp *= 2; }), HasSubstr("is no way in its space"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].begins[1] = 0; }), HasSubstr(": none"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].begins.pop_back(); }), HasSubstr("stages, and"));
  EXPECT_THAT(changed([](Certificate& c) { c.best.pop_back(); }),
              testing::AnyOf(HasSubstr("is nowhere ruled out"), HasSubstr("is not among the 2 best")));
  EXPECT_THAT(changed([](Certificate& c) { c.top = 1; }), HasSubstr("more ways than the 1 asked for"));
  EXPECT_THAT(changed([](Certificate& c) { ++c.ledger.slower; }), HasSubstr("slower of the ledger is"));
  EXPECT_THAT(changed([](Certificate& c) { c.alone.erase(c.alone.begin()); }), HasSubstr("is nowhere ruled out"));
  EXPECT_THAT(changed([](Certificate& c) {
                c.prices.push_back(c.prices.back());
                c.prices.back().cut.rows = 9;
              }),
              HasSubstr("no way needs the prices of"));
  EXPECT_THAT(changed([](Certificate& c) { c.memory = 1; }), HasSubstr("more than the 1 of a rank"));
  EXPECT_THAT(changed([](Certificate& c) {
                for (CertifiedTable& table : c.prices) table.block.forward = table.block.again = int64_t{1} << 62;
              }),
              HasSubstr("too large to be"));
  EXPECT_THAT(changed([](Certificate& c) {
                for (CertifiedTable& table : c.alone) table.before.again += 100;
              }),
              HasSubstr("are less than the ones that they are bounded by"));
}

TEST(VerifyCertificate, a_way_that_fits_cannot_be_left_out) {
  for (uint64_t seed = 1;; ++seed) {
    RandomModel random(seed);
    Certificate found = random.certificate(1'000);
    if (found.best.size() < 2) continue;
    EXPECT_EQ(why_not(found), "verified");
    found.best.pop_back();
    EXPECT_THAT(why_not(found), testing::HasSubstr("fits, and is not among the 1000 best that were asked for"));
    return;
  }
}

TEST(VerifyCertificate, texts_that_are_no_certificates_are_refused_with_the_reason) {
  const std::string text = to_string(some_certificate());
  const auto refused = [](std::string_view of) -> std::string {
    try {
      parse_certificate(of);
      return "taken";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto resealed = [&](const std::string& from, const std::string& to) {
    std::string out = text.substr(0, text.rfind("end "));
    out.replace(out.find(from), from.size(), to);
    return refused(sealed_certificate(out));
  };
  using testing::HasSubstr;
  EXPECT_EQ(refused(text), "taken");
  EXPECT_THAT(refused("trireme plan 1\n"), HasSubstr("it is no certificate"));
  EXPECT_THAT(resealed("certificate 2", "certificate 1"), HasSubstr("it is of another version; plan again"));
  EXPECT_THAT(refused(text.substr(0, text.size() - 100)), HasSubstr("something of it is missing"));
  std::string edited = text;
  edited[edited.find("step_ps=") + 8] ^= 1;
  EXPECT_THAT(refused(edited), HasSubstr("it was changed after it was made"));
  EXPECT_THAT(resealed("ranks ", "tanks "), HasSubstr("line 5: 'tanks"));
  EXPECT_THAT(resealed("memory ", "memory -"), HasSubstr("is no whole number"));
  EXPECT_THAT(resealed("memory ", "memory 0"), HasSubstr("is no whole number"));
  EXPECT_THAT(resealed("sp=0", "sp=2"), HasSubstr("sp=2; it must be 0 to 1"));
  EXPECT_THAT(resealed("layers=", "layers=1000000"), HasSubstr("layers; it must be 1 to 10000"));
  EXPECT_THAT(resealed("before=", "before=1,"), HasSubstr("before has 14 numbers, not 13"));
  EXPECT_THAT(resealed("ledger ways", "ledger  ways"), HasSubstr("'' should be ways=..."));
}

}  // namespace
}  // namespace trireme::verify_certificate_test
