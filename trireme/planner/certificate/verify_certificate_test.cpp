#include "trireme/planner/certificate/verify_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/certificate/random_model_for_tests.h"

namespace trireme::verify_certificate_test {
namespace {

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
  int fit = 0, too_large = 0, interleaved = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomModel random(seed);
    const Runs& runs = random.runs();
    for (const CertifiedWay& way : random.space()) {
      const CertifiedTable& table = random.prices(way.cut);
      if (!certified_way_divides(way) || table.is_refused || random.number(0, 4) > 0) continue;
      const CertifiedPrice priced(way, table, runs, random.room());
      const StageProblem problem = as_problem(way, table, runs, random.room());
      const int64_t of_cuts = bound_of_cuts(problem), of_longer = bound_of_longer_parts(problem);
      ASSERT_FALSE(priced.every_cut_exceeds(of_cuts));
      ASSERT_TRUE(priced.every_cut_exceeds(of_cuts - 1));
      ASSERT_FALSE(priced.longer_passes_exceed(of_longer));
      ASSERT_TRUE(priced.longer_passes_exceed(of_longer - 1));
      const auto cut = best_cut(problem);
      ASSERT_EQ(priced.fits(), cut.has_value());
      ++(cut ? fit : too_large);
      interleaved += cut && way.virtual_stages > 1 ? 1 : 0;
      if (!cut) continue;
      const int64_t total = price_of_cut(problem, *cut).total;
      ASSERT_EQ(priced.of_cut(*cut).step_ps, total);
      ASSERT_EQ(priced.of_cut(*cut).crew_bytes, bytes_of_crews(problem, *cut));
      ASSERT_EQ(priced.least_below(total), std::nullopt);
      ASSERT_EQ(priced.least_below(total + 1), total);
      ASSERT_EQ(priced.least_below(2 * total + 10), total);
      ASSERT_LE(of_longer, total);
    }
  }
  EXPECT_GT(fit, 1'000);
  EXPECT_GT(too_large, 200);
  EXPECT_GT(interleaved, 200);
}

TEST(CertifiedPrice, knows_the_schedules_as_their_timetables_have_them) {
  CertifiedTable table{.crossing = 1'000'000};
  table.parts.resize(4);
  table.parts[0].forward = 1'000'000;
  table.parts[1].input_grad = 1'000'000'000;
  table.parts[3].weight_grad = 1'000'000'000'000;
  table.parts[1].kept = 1;
  table.parts[2].kept = 7;
  table.parts[0].waiting = 1'000;
  table.parts[1].waiting = 3'000;
  const Runs runs{{0, 20}, {1, 30}, {0, 10}};
  for (const WaySchedule schedule : kWaySchedules) {
    const bool is_interleaved = schedule == WaySchedule::kInterleaved || schedule == WaySchedule::kInterleavedDelayed;
    for (int64_t pp = 1; pp <= 40; ++pp) {
      if (pp == 1 && schedule != WaySchedule::k1F1B) continue;
      const int64_t virtual_stages = is_interleaved ? 2 + pp % 4 : 1;
      if (pp * virtual_stages > 62) continue;
      const CertifiedWay way{.pp = pp, .micro_batches = 5 * pp, .schedule = schedule, .virtual_stages = virtual_stages};
      const StageProblem problem = as_problem(way, table, runs, {.device = 1});
      std::vector<int64_t> begins;
      for (int64_t stage = 0; stage < pp; ++stage) begins.push_back(stage);
      if (is_interleaved) begins = even_cuts(62, pp * virtual_stages).back();
      const auto cut = CertifiedPrice(way, table, runs, {.device = 1}).of_cut(begins);
      EXPECT_EQ(cut.step_ps, price_of_cut(problem, begins).total) << to_string(schedule) << " " << pp;
      EXPECT_EQ(cut.crew_bytes, bytes_of_crews(problem, begins)) << to_string(schedule) << " " << pp;
    }
  }
}

// Prices of all ways are known here, those that no certificate mentions included: none is below what is proven.
TEST(VerifyCertificate, what_it_proves_holds_of_all_ways_and_all_cuts) {
  int plans = 0, none_fits = 0;
  CertifiedLedger sum;
  int64_t elsewhere = 0, updates = 0, slices = 0, kept = 0;  // of the best
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    RandomModel random(seed);
    const Certificate found = random.certificate(static_cast<size_t>(random.number(1, 4)));
    const std::string text = to_string(found);
    ASSERT_EQ(parse_certificate(text), found);
    ASSERT_EQ(why_not(found), "verified") << seed << "\n" << text;
    const std::vector<int64_t> all = random.all_steps();
    ASSERT_EQ(found.best.size(), std::min(all.size(), static_cast<size_t>(found.top))) << seed;
    for (size_t i = 0; i < found.best.size(); ++i) ASSERT_EQ(found.best[i].step_ps, all[i]) << seed;
    ++(all.empty() ? none_fits : plans);
    for (const auto count :
         {&CertifiedLedger::do_not_divide, &CertifiedLedger::memory_least, &CertifiedLedger::bound,
          &CertifiedLedger::slower, &CertifiedLedger::memory, &CertifiedLedger::needless, &CertifiedLedger::solved})
      sum.*count += found.ledger.*count;
    updates += std::ranges::count_if(
        found.best, [](const CertifiedPlan& plan) { return plan.way.cut.place.update == Tier::kHost; });
    slices += std::ranges::count_if(found.best, [](const CertifiedPlan& plan) { return plan.way.cut.kept_slices; });
    kept +=
        std::ranges::count_if(found.best, [](const CertifiedPlan& plan) { return plan.way.cut.keep != Tier::kDevice; });
    elsewhere += std::ranges::count_if(
        found.best, [](const CertifiedPlan& plan) { return plan.way.cut.place != CertifiedPlace(); });
  }
  EXPECT_GT(plans, 210);
  EXPECT_GT(none_fits, 30);
  for (const int64_t count :
       {sum.do_not_divide, sum.memory_least, sum.bound, sum.slower, sum.memory, sum.needless, sum.solved})
    EXPECT_GT(count, 200);
  EXPECT_GT(elsewhere, 0);
  EXPECT_GT(updates, 0);
  EXPECT_GT(slices, 1);
  EXPECT_GT(kept, 0);
}

// A plan that is slower than another one cannot be proven, however its certificate is written.
TEST(VerifyCertificate, refuses_a_plan_that_is_not_the_best) {
  int refused = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RandomModel random(seed);
    Certificate found = random.certificate(2);
    if (found.best.size() < 2 || found.best[0].step_ps == found.best[1].step_ps) continue;
    found.best.erase(found.best.begin());
    found.top = 1;
    ASSERT_NE(why_not(found), "verified") << seed;
    ++refused;
  }
  EXPECT_GT(refused, 35);
}

Certificate some_certificate() {
  for (uint64_t seed = 1;; ++seed) {
    RandomModel random(seed);
    Certificate out = random.certificate(2);
    if (out.best.size() != 2 || out.best[0].step_ps == out.best[1].step_ps || out.best[0].way.pp == 1) continue;
    if (out.ledger.memory > 0 && out.ledger.slower > 0) return out;
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
  EXPECT_THAT(changed([](Certificate& c) { c.version = "0.0.9"; }), HasSubstr("trireme 0.0.9 made it, and this is"));
  EXPECT_THAT(changed([](Certificate& c) { --c.best[0].step_ps; }), HasSubstr("ps by its prices, not "));
  EXPECT_THAT(changed([](Certificate& c) { ++c.best[0].crew_bytes[0]; }), HasSubstr("do not hold as many bytes"));
  EXPECT_THAT(changed([](Certificate& c) { std::swap(c.best[0], c.best[1]); }), HasSubstr("order of their time"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[1] = c.best[0]; }), HasSubstr("appears twice"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].way.cut.dp *= 2; }), HasSubstr("is not one of its ways"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].begins[1] = 0; }), HasSubstr("is empty: it begins at part"));
  EXPECT_THAT(changed([](Certificate& c) { c.best[0].begins.pop_back(); }), HasSubstr("stages, and"));
  EXPECT_THAT(
      changed([](Certificate& c) { c.best.pop_back(); }),
      testing::AnyOf(HasSubstr("nothing rules out"), HasSubstr("is not among the best ways: 2 were asked for")));
  EXPECT_THAT(changed([](Certificate& c) { c.top = 1; }), HasSubstr("more ways than the 1 asked for"));
  EXPECT_THAT(changed([](Certificate& c) { ++c.ledger.slower; }), HasSubstr("the ledger has slower = "));
  EXPECT_THAT(changed([](Certificate& c) { c.alone.erase(c.alone.begin()); }), HasSubstr("nothing rules out"));
  EXPECT_THAT(changed([](Certificate& c) {
                c.prices.push_back(c.prices.back());
                c.prices.back().cut.rows = 9;
              }),
              HasSubstr("no way needs the prices of"));
  EXPECT_THAT(changed([](Certificate& c) { c.memory = 1; }), HasSubstr("more than the 1 of a rank"));
  EXPECT_THAT(changed([](Certificate& c) {
                for (CertifiedTable& table : c.prices) {
                  for (CertifiedPart& part : table.parts) part.forward = part.again = int64_t{1} << 62;
                }
              }),
              HasSubstr("too large to be"));
  EXPECT_THAT(changed([](Certificate& c) {
                for (CertifiedTable& table : c.alone) {
                  if (!table.is_refused) table.parts.front().again += 100;
                }
              }),
              HasSubstr("are below their bounds"));
}

TEST(VerifyCertificate, a_way_that_fits_cannot_be_left_out) {
  for (uint64_t seed = 1;; ++seed) {
    RandomModel random(seed);
    Certificate found = random.certificate(1'000);
    if (found.best.size() < 2) continue;
    EXPECT_EQ(why_not(found), "verified");
    found.best.pop_back();
    EXPECT_THAT(why_not(found), testing::HasSubstr("fits, but is not among the best ways: 1000 were asked for"));
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
  EXPECT_THAT(refused("trireme plan 1\n"), HasSubstr("this is not a certificate"));
  EXPECT_THAT(resealed("certificate 16", "certificate 15"),
              HasSubstr("this is another version of the format; plan again"));
  EXPECT_THAT(refused(text.substr(0, text.size() - 100)), HasSubstr("part of it is missing"));
  std::string edited = text;
  edited[edited.find("step_ps=") + 8] ^= 1;
  EXPECT_THAT(refused(edited), HasSubstr("it was changed after it was made"));
  EXPECT_THAT(resealed("ranks ", "tanks "), HasSubstr("line 5: 'tanks"));
  EXPECT_THAT(resealed("memory ", "memory -"), HasSubstr("is no whole number"));
  EXPECT_THAT(resealed("memory ", "memory 0"), HasSubstr("is no whole number"));
  EXPECT_THAT(resealed("sp=", "sp=2"), HasSubstr("; it must be 0 to 1"));
  EXPECT_THAT(resealed("runs ", "runs 1x1,"), HasSubstr("the run '1x1' of blocks is none that may stand there"));
  EXPECT_THAT(resealed("runs ", "runs 0x9999,"), HasSubstr("of blocks is none that may stand there"));
  EXPECT_THAT(resealed("layers=", "layers=1000000"), HasSubstr("layers; it must be 1 to 10000"));
  EXPECT_THAT(resealed("before=", "before=1,"), HasSubstr("before has 31 numbers, not 30"));
  EXPECT_THAT(resealed("ledger ways", "ledger  ways"), HasSubstr("'' should be ways=..."));
}

}  // namespace
}  // namespace trireme::verify_certificate_test
