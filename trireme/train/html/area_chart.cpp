#include "trireme/train/html/area_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "trireme/base/append_text.h"
#include "trireme/train/html/chart.h"
#include "trireme/train/html/escape_html.h"

namespace trireme {
namespace {

constexpr double kAreaLeft = 52, kAreaRight = 16, kAreaTop = 12, kAreaBottom = 28;
constexpr double kLimitShownFrom = 0.4;  // of the limit: it would flatten what takes less
constexpr size_t kMostMoments = 400;
constexpr int kRoomyWidth = 1000, kNarrowWidth = 380, kAreaHeight = 190;

double sum_of(const AreaPoint& point) {
  return std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0);
}

struct AreaFrame {
  double width = 0, height = 0, end_s = 0, top = 0;  // `top`: bytes
  double x(double at_s) const { return kAreaLeft + at_s / end_s * width; }
  double y(double bytes) const { return kAreaTop + (1 - bytes / top) * height; }
};

// The part between two heights, each in steps.
std::string area_path(const AreaFrame& frame, std::span<const AreaPoint> points, const std::vector<double>& below,
                      size_t part) {
  std::string forth, back;
  for (size_t i = 0; i < points.size(); ++i) {
    const double from = frame.x(points[i].at_s);
    const double to = frame.x(i + 1 < points.size() ? points[i + 1].at_s : frame.end_s);
    const double high = frame.y(below[i] + points[i].bytes[part]), low = frame.y(below[i]);
    append_text(forth, "{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", from, high, to);
    back = fmt::format("L{:.1f} {:.1f}H{:.1f}", to, low, from) + back;
  }
  return forth + back + "Z";
}

std::string area_axes(const AreaFrame& frame, bool is_narrow) {
  std::string out;
  double unit = 1;
  const char* name = "B";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (frame.top / unit < 1024) break;
    unit *= 1024;
    name = next;
  }
  const double right = kAreaLeft + frame.width, bottom = kAreaTop + frame.height;
  const std::vector<double> ys = nice_ticks(0, frame.top / unit, 4);
  const std::vector<std::string> texts = tick_texts(ys);
  for (size_t i = 0; i < ys.size(); ++i) {
    const double y = frame.y(ys[i] * unit);
    out += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kAreaLeft, right, y, y);
    out += fmt::format(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}{}</text>)", kAreaLeft - 6, y + 4, texts[i],
                       i + 1 == ys.size() ? fmt::format(" {}", name) : "");
  }
  const std::vector<double> xs = nice_ticks(0, frame.end_s * 1e3, is_narrow ? 4 : 8);
  const std::vector<std::string> times = tick_texts(xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    const double x = frame.x(xs[i] * 1e-3);
    out += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="{}">{}{}</text>)", x, bottom + 18,
                       x > right - 20 ? "end" : "middle", times[i], i == 0 ? " ms" : "");
  }
  return out;
}

std::string area_drawing(const AreaChart& chart, const std::vector<AreaPoint>& points, bool is_narrow) {
  const int width = is_narrow ? kNarrowWidth : kRoomyWidth;
  AreaFrame frame{width - kAreaLeft - kAreaRight, kAreaHeight - kAreaTop - kAreaBottom, chart.end_s, 0};
  for (const AreaPoint& point : points) frame.top = std::max(frame.top, sum_of(point));
  const bool shows_limit = chart.limit > 0 && frame.top >= kLimitShownFrom * chart.limit;
  if (shows_limit) frame.top = std::max(frame.top, chart.limit);
  frame.top *= 1.06;
  std::string out = fmt::format("<svg class=\"area {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                                is_narrow ? "narrow" : "roomy", width, kAreaHeight, escape_html(chart.title));
  out += area_axes(frame, is_narrow);
  std::vector<double> below(points.size(), 0);
  for (size_t part = 0; part < chart.parts.size(); ++part) {
    out += fmt::format("<path class=\"{}\" d=\"{}\"><title>{}</title></path>", chart.parts[part].css_class,
                       area_path(frame, points, below, part), escape_html(chart.parts[part].name));
    for (size_t i = 0; i < points.size(); ++i) below[i] += points[i].bytes[part];
  }
  if (shows_limit)
    out += fmt::format(R"(<line class="limit" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kAreaLeft,
                       kAreaLeft + frame.width, frame.y(chart.limit), frame.y(chart.limit));
  return out + "</svg>\n";
}

}  // namespace

std::vector<AreaPoint> fullest_points(const std::vector<AreaPoint>& points, double end_s, size_t parts) {
  if (points.size() <= parts || !(end_s > 0)) return points;
  std::vector<AreaPoint> out;
  size_t next = 0;
  for (size_t part = 0; part < parts && next < points.size(); ++part) {
    const double end = end_s * static_cast<double>(part + 1) / static_cast<double>(parts);
    const AreaPoint* fullest = nullptr;
    for (; next < points.size() && (points[next].at_s < end || part + 1 == parts); ++next) {
      if (fullest == nullptr || sum_of(points[next]) > sum_of(*fullest)) fullest = &points[next];
    }
    if (fullest == nullptr) continue;
    out.push_back(*fullest);
  }
  out.front().at_s = std::min(out.front().at_s, points.front().at_s);
  return out;
}

std::string area_chart(const AreaChart& chart) {
  const std::vector<AreaPoint> points = fullest_points(chart.points, chart.end_s, kMostMoments);
  const bool is_any = std::ranges::any_of(points, [](const AreaPoint& point) { return sum_of(point) > 0; });
  if (!is_any || !(chart.end_s > 0)) return "<p class=\"none\">Nothing is kept.</p>\n";
  return area_drawing(chart, points, false) + area_drawing(chart, points, true);
}

}  // namespace trireme
