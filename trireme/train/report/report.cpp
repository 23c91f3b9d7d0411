#include "trireme/train/report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/bytes_text.h"
#include "trireme/base/file.h"
#include "trireme/train/html/chart.h"
#include "trireme/train/html/escape_html.h"
#include "trireme/train/html/html_page.h"
#include "trireme/train/html/lanes_chart.h"

namespace trireme {

namespace {

constexpr size_t kMostCompute = 5;  // computing rows; the rest is summed up

std::string facts(const ReportData& data) {
  return data.facts.empty() ? "" : html_section("The run", "", html_list(data.facts));
}

std::string loss(const ReportData& data) {
  return html_section(
      "Loss", "by step; the bold line is a running mean",
      line_chart({.y_name = "loss",
                  .lines = {{"training", 1, data.train_loss, true}, {"validation", 2, data.validation_loss, false}}}));
}

std::string rates(const ReportData& data) {
  std::string out;
  if (!data.throughput.empty()) {
    out += html_section("Throughput", data.unit + " per second",
                        line_chart({.y_name = "throughput",
                                    .lines = {{data.unit + "/s", 3, data.throughput, true}},
                                    .width = 500,
                                    .height = 220,
                                    .from_zero = true}));
  }
  if (!data.learning_rate.empty()) {
    out += html_section("Learning rate", "by step",
                        line_chart({.y_name = "learning rate",
                                    .lines = {{"learning rate", 4, data.learning_rate, false}},
                                    .width = 500,
                                    .height = 220,
                                    .from_zero = true}));
  }
  return out.empty() ? "" : "<div class=\"pair\">\n" + out + "</div>\n";
}

std::string memory(const ReportData& data) {
  if (data.memory.empty()) return "";
  std::vector<BarItem> items;
  double sum = 0;
  for (const ReportData::Memory& part : data.memory) {
    const auto bytes = static_cast<double>(part.bytes);
    sum += std::max(bytes, 0.0);
    items.push_back({part.kind, bytes, bytes_text(bytes), fmt::format("c{}", items.size() % 7 + 1)});
  }
  std::string aside = bytes_text(sum);
  if (data.memory_limit > 0) {
    const auto limit = static_cast<double>(data.memory_limit);
    aside += " of " + bytes_text(limit);
    items.push_back({"free", limit - sum, bytes_text(limit - sum), "c0"});
  }
  return html_section("Memory", aside + ", on the rank with the most", stacked_bar(items));
}

std::string memory_over_time(const ReportData& data) {
  std::string body;
  for (const auto& [tier, chart] : data.memory_over_time) {
    HtmlPairs colors;
    for (const AreaChart::Part& part : chart.parts) colors.emplace_back(part.css_class, part.name);
    body += fmt::format("<h3>{}</h3>\n", escape_html(tier)) + html_legend(colors) + area_chart(chart);
  }
  return body.empty() ? "" : html_section("Memory over time", "of the modelled step, in each tier", body);
}

// The largest computing parts one by one, the smaller ones together, then the other groups as they
// are.
std::vector<ReportData::Time> grouped(std::vector<ReportData::Time> all) {
  const auto rest =
      std::ranges::stable_partition(all, [](const ReportData::Time& t) { return t.group == TimeGroup::kCompute; });
  std::vector<ReportData::Time> out(all.begin(), rest.begin());
  std::ranges::stable_sort(out, std::ranges::greater(), &ReportData::Time::ms);
  if (out.size() > kMostCompute) {
    ReportData::Time others{.name = fmt::format("{} other operators", out.size() - kMostCompute + 1)};
    for (size_t i = kMostCompute - 1; i < out.size(); ++i) others.ms += out[i].ms;
    out.resize(kMostCompute - 1);
    out.push_back(std::move(others));
  }
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

std::string time(const ReportData& data) {
  if (data.time.empty()) return "";
  std::vector<BarItem> items;
  double sum = 0;
  size_t shade = 0;
  for (const ReportData::Time& part : grouped(data.time)) {
    std::string color;
    switch (part.group) {
      case TimeGroup::kCompute:
        color = shade == 0 ? "c1" : fmt::format("c1 s{}", std::min<size_t>(shade, 4));
        ++shade;
        break;
      case TimeGroup::kCommunication:
        color = "c2";
        break;
      case TimeGroup::kData:
        color = "c4";
        break;
      case TimeGroup::kOther:
        color = "c7";
        break;
    }
    sum += std::isfinite(part.ms) ? std::max(part.ms, 0.0) : 0;
    items.push_back({part.name, part.ms, fmt::format("{:.1f} ms", part.ms), std::move(color)});
  }
  std::string body = stacked_bar(items);
  if (data.hidden_comm_ms > 0) {
    body += html_note(
        fmt::format("Another {:.1f} ms of communication ran beside computing and cost no time.", data.hidden_comm_ms));
  }
  return html_section("Time of a step", fmt::format("{:.1f} ms on average", sum), body);
}

std::string seconds_text(double seconds) {
  if (seconds < 0.1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  return seconds < 6000 ? fmt::format("{:.1f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

std::string run_time(const ReportData& data) {
  if (data.run_time.empty()) return "";
  std::vector<BarItem> items;
  double sum = 0;
  for (const auto& [name, seconds] : data.run_time) {
    sum += std::isfinite(seconds) ? std::max(seconds, 0.0) : 0;
    items.push_back({name, seconds, seconds_text(seconds), fmt::format("c{}", items.size() % 7 + 1)});
  }
  return html_section("Time of the run", seconds_text(sum) + " from the first step on", stacked_bar(items));
}

std::string samples(const ReportData& data) {
  if (data.samples.empty()) return "";
  std::string out;
  for (const ReportData::Sample& sample : data.samples) {
    // A line break right after <pre> is not shown, so one is spent to keep the text's own.
    out += fmt::format("<pre>\n<b>{}</b>{}</pre>\n", escape_html(sample.prompt), escape_html(sample.text));
  }
  return html_section("Samples", "the prompt, and what the model wrote on", out);
}

}  // namespace

std::string render_report(const ReportData& data) {
  std::string out = html_tiles(data.headline) + loss(data) + rates(data);
  const std::string beside = run_time(data) + memory(data);
  const std::string bars = time(data) + (beside.empty() ? "" : "<div>\n" + beside + "</div>\n");
  if (!bars.empty()) out += "<div class=\"pair\">\n" + bars + "</div>\n";
  out += memory_over_time(data);
  if (!data.timeline.empty())
    out += html_section("Timetable", "of a step, by the first rank of each crew", data.timeline);
  out += facts(data) + samples(data);
  return html_page({.title = data.title,
                    .summary = data.summary,
                    .body = std::move(out),
                    .footer = "Written by Trireme at the end of the run."});
}

void write_report(const std::string& path, const ReportData& data) {
  atomic_write(path, render_report(data));
}

}  // namespace trireme
