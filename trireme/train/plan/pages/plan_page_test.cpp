#include "trireme/train/plan/pages/plan_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme::plan_page_test {
namespace {

using testing::HasSubstr;
using testing::Not;

JobConfig page_job() {
  JobConfig job;
  set_published_model(job, "gpt2");
  set_keys(job, {"model.layers=2", "model.width=32", "model.heads=4", "model.vocabulary=256", "data.seq=32",
                 "train.batch=16", "data.validation=0"});
  return job;
}

PlanRequest page_request(std::string_view rule, int64_t ranks = 4) {
  PlanRequest out{.job = page_job(), .ranks = ranks, .memory_bytes = int64_t{1} << 28};
  out.is_asked = [parsed = parse_way_rule(rule, ways_of(out.job, ranks))](const Way& way) {
    return parsed.is_kept_by(way);
  };
  return out;
}

constexpr const char* kPiped = "pp=2 zero=1 schedule=1f1b recompute=none";

struct Page {
  JobPlan plan;
  PlanPage page;
};

Page piped() {
  const PlanRequest request = page_request(kPiped);
  Page out{.plan = plan_job(request), .page = {}};
  out.page = page_of(out.plan, request, {16 * 32, "tokens"});
  return out;
}

// Every element is closed, in the order in which it was opened; every attribute is quoted. "" where it is so.
std::string why_not_well_formed(const std::string& html) {
  static const std::set<std::string> kVoid{"meta", "!doctype", "wbr"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    size_t end = at + 1;
    for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end)
      if (html[end] == '"') quoted = !quoted;
    if (end == html.size()) return "a tag has no end: " + html.substr(at, 40);
    const std::string tag = html.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /\n", 1));
    at = end;
    if (tag.starts_with("/")) {
      if (open.empty() || open.back() != tag.substr(1)) return "closed but not open: " + tag;
      open.pop_back();
    } else if (!tag.ends_with("/") && !kVoid.contains(name)) {
      open.push_back(name);
      if (name == "style" || name == "script") at = html.find("</" + name, end);
    }
  }
  return open.empty() ? "" : "open to the end: " + open.back();
}

TEST(PlanPage, is_well_formed_and_needs_nothing_from_outside) {
  const std::string html = render_plan_page(piped().page);
  EXPECT_EQ(why_not_well_formed(html), "");
  EXPECT_EQ(why_not_well_formed("<p><b></p></b>"), "closed but not open: /p");
  EXPECT_EQ(printable(html), html);
  for (const char* outside : {"src=", "href=", "@import", "http:", "https:"}) {
    EXPECT_THAT(html.substr(0, html.find("<script>")), Not(HasSubstr(outside)));
  }
  EXPECT_THAT(html, HasSubstr("<svg class=\"timeline roomy\""));
  EXPECT_THAT(html, HasSubstr("<svg class=\"timeline narrow\"")) << "where the other is too small to read";
  EXPECT_THAT(html, HasSubstr("<td>ln_f.<wbr>weight</td>")) << "names of weights may be broken after their dots";
  EXPECT_THAT(html, Not(HasSubstr(">nan")));
  EXPECT_THAT(html, Not(HasSubstr("\"nan")));
  for (const char* title : {"Time of a step", "Communication", "Timeline of a step", "Memory over time", "Machine",
                            "How layers are cut", "Ways that were found"}) {
    EXPECT_THAT(html, HasSubstr(std::string("<h2>") + title + "<"));
  }
}

// All words of text that are numbers with a fraction, as "12.345".
std::vector<std::string> numbers_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find_first_of(" \n,;:()", at);
    std::string word = text.substr(at, end == std::string::npos ? end : end - at);
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos)
      out.push_back(word);
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return out;
}

TEST(PlanPage, has_the_numbers_of_the_text) {
  const Page piped = plan_page_test::piped();
  const std::string html = render_plan_page(piped.page);
  const std::string text = plan_text(piped.plan, 4, 16 * 32, "tokens");
  // The text has the memory's kinds in MiB, the page as bytes_text says them.
  const std::string itemised = text.substr(0, text.find("memory of crew"));
  const std::vector<std::string> numbers = numbers_of(itemised);
  ASSERT_GE(numbers.size(), 9U);
  for (const std::string& number : numbers) EXPECT_THAT(html, HasSubstr(number)) << text;
  for (const WayCost::Memory& memory : piped.plan.best.front().cost.memory)
    EXPECT_THAT(html, HasSubstr(fmt::format("{} bytes", memory.arena)));
  for (const PlannedWay& way : piped.plan.best)
    EXPECT_THAT(html, HasSubstr(fmt::format("{:.3f}", way.cost.step_s * 1e3)));
}

double sum_of_column(const std::vector<std::vector<std::string>>& rows, size_t column) {
  return std::accumulate(rows.begin(), rows.end(), 0.0,
                         [&](double sum, const auto& row) { return sum + std::stod(row[column]); });
}

TEST(PlanPage, items_of_communication_add_up_to_what_moves_and_what_is_exposed) {
  for (const char* rule : {kPiped, "tp=2 sp=true pp=1 zero=2 recompute=none", "tp=1 pp=1 cp=1 zero=3 recompute=none"}) {
    const PlanRequest request = page_request(rule);
    const JobPlan plan = plan_job(request);
    ASSERT_FALSE(plan.best.empty()) << rule;
    const PlanPage page = page_of(plan, request, {16 * 32, "tokens"});
    const WayCost& cost = plan.best.front().cost;
    ASSERT_GE(page.transfers.size(), 1U) << rule;
    const double rounding = 0.0005 * static_cast<double>(page.transfers.size()) + 1e-9;
    EXPECT_NEAR(sum_of_column(page.transfers, 2), cost.moving_s * 1e3, rounding) << rule;
    EXPECT_NEAR(sum_of_column(page.transfers, 4), cost.exposed_s * 1e3, rounding) << rule;
    double step_s = 0;
    for (const BarItem& item : page.step) step_s += item.amount;
    EXPECT_NEAR(step_s, cost.step_s, 1e-6) << rule;
  }
}

double most_of(const AreaChart& chart) {
  double out = 0;
  for (const AreaPoint& point : chart.points)
    out = std::max(out, std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0));
  return out;
}

TEST(PlanPage, memory_over_time_is_fullest_where_the_plan_says) {
  const Page piped = plan_page_test::piped();
  ASSERT_EQ(piped.page.memory.size(), 2U);
  for (const PlanPage::Memory& memory : piped.page.memory) {
    double kinds = 0;
    for (const auto& [name, bytes] : memory.kinds) kinds += name == "gaps" ? 0 : static_cast<double>(bytes);
    EXPECT_EQ(most_of(memory.over_time), kinds);
    EXPECT_LE(kinds, static_cast<double>(memory.bytes));
    EXPECT_GT(memory.over_time.points.size(), 10U);
  }
}

TEST(PlanPage, draws_each_lane_of_each_crew_within_the_step) {
  const Page piped = plan_page_test::piped();
  const LanesChart& chart = piped.page.timelines.at(0);
  std::set<std::string> names;
  for (const LaneRow& row : chart.rows) {
    names.insert(row.name);
    for (size_t i = 0; i < row.spans.size(); ++i) {
      EXPECT_LT(row.spans[i].begin_s, row.spans[i].end_s) << row.name;
      EXPECT_LE(row.spans[i].end_s, chart.end_s * (1 + 1e-9)) << row.name;
      if (i > 0) {
        EXPECT_GE(row.spans[i].begin_s, row.spans[i - 1].end_s - 1e-12) << row.name;
      }
    }
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"crew 0", "crew 1", "  comm", "  message"}));
}

TEST(PlanPage, escapes_what_users_write) {
  const std::string evil = "<script>alert('x')</script>\"&\x01";
  PlanRequest request = page_request("pp=1 tp=2 sp=false recompute=none", 2);
  request.job.name = evil;
  Machine machine = Machine::this_host();
  machine.name = evil;
  machine.levels = {{evil, machine.devices(), 1e-6, 1e9}};
  request.job.parallel.machine = testing::TempDir() + "/plan_page_machine.toml";
  write_machine(machine, request.job.parallel.machine);
  const JobPlan plan = plan_job(request);
  PlanPage page = page_of(plan, request, {16, evil});
  page.why_not = evil;
  page.sensitivities = {{evil, evil, evil, evil}};
  page.weights.push_back({.name = evil, .cut = evil, .type = evil, .state = evil});
  page.memory.front().of = evil;
  page.timelines.front().rows.front().name = evil;
  const std::string html = render_plan_page(page);
  EXPECT_EQ(why_not_well_formed(html), "");
  EXPECT_EQ(html.find("<script>"), html.rfind("<script>"));  // the page's own
  EXPECT_THAT(html, Not(HasSubstr("alert('x')")));
  EXPECT_EQ(html.find('\x01'), std::string::npos);
}

TEST(PlanPage, of_a_plan_that_fits_nowhere_is_refused) {
  PlanRequest request = page_request(kPiped);
  request.memory_bytes = 1000;
  const JobPlan plan = plan_job(request);
  try {
    page_of(plan, request, {1, "tokens"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.text().c_str(), "plan: nothing fits, so there is no plan to draw");
  }
}

TEST(PlanPage, shows_sensitivities_in_the_digits_of_the_text) {
  Page piped = plan_page_test::piped();
  const std::optional<ComparedWay> now = best_of(piped.plan);
  const std::vector<Sensitivity> all{{"all links half as fast", now}, {"half the memory", std::nullopt}};
  add_sensitivities(now, all, piped.page);
  EXPECT_EQ(piped.page.sensitivities[0][1], fmt::format("{:.3f}", piped.plan.best.front().cost.step_s * 1e3));
  EXPECT_EQ(piped.page.sensitivities[0][2], "+0.00 %");
  EXPECT_EQ(piped.page.sensitivities[1][1], "nothing fits");
}

TEST(PlanPageOfAnExactPlan, has_the_numbers_of_its_text_and_memory_as_its_tables_have_it) {
  JobConfig job = page_job();
  set_keys(job, {"model.layers=6"});
  for (const int64_t ranks : {1, 4}) {
    // So little memory that several ranks make a pipeline or slices of it.
    const PlanRequest request{.job = job, .ranks = ranks, .memory_bytes = int64_t{1} << 30, .top = 4};
    const ExactPlan plan = plan_exact(request);
    ASSERT_FALSE(plan.best.empty());
    for (size_t chosen = 0; chosen < plan.best.size(); ++chosen) {
      ExactPlan other = plan;
      std::swap(other.best.front(), other.best[chosen]);
      const PlanPage page = page_of(other, request, {16 * 32, "tokens"});
      const std::string html = render_plan_page(page);
      EXPECT_EQ(why_not_well_formed(html), "");
      const std::string text = exact_text(other, ranks, 16 * 32, "tokens");
      for (const auto& [name, ps] : step_items(other.best.front()))
        if (ps > 0) EXPECT_THAT(html, HasSubstr(fmt::format("{:.3f} ms", static_cast<double>(ps) * 1e-9))) << name;
      const std::string step = fmt::format("{:.3f} ms", static_cast<double>(other.best.front().price.total) * 1e-9);
      EXPECT_THAT(text, HasSubstr(step));
      EXPECT_THAT(html, HasSubstr("<b>" + step + "</b>"));
      const std::set<int64_t> bytes(other.best.front().crew_bytes.begin(), other.best.front().crew_bytes.end());
      EXPECT_GE(page.memory.size(), bytes.size());
      for (const PlanPage::Memory& memory : page.memory) {
        EXPECT_TRUE(bytes.contains(memory.bytes));
        EXPECT_EQ(most_of(memory.over_time), static_cast<double>(memory.bytes));
      }
      // One block's weights stand for those of all six.
      EXPECT_TRUE(std::ranges::any_of(
          page.weights, [](const LayerCut& cut) { return cut.name == "h.0..5.attn.c_attn.weight" && cut.count == 6; }));
    }
  }
}

}  // namespace
}  // namespace trireme::plan_page_test
