#include "trireme/train/html/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string_view>

#include "trireme/train/html/escape_html.h"

namespace trireme {

namespace {

constexpr double kLeft = 62;
constexpr double kRight = 20;
constexpr double kTop = 10;
constexpr double kBottom = 30;
constexpr size_t kBuckets = 500;
constexpr size_t kSmoothFrom = 30;  // fewer points need no mean
constexpr double kSpike = 4;        // times the range of 995 in 1,000 points: what is higher is cut off
constexpr size_t kSpikeFrom = 200;  // fewer points are all shown
constexpr int kNarrow = 380;        // width of a drawing for narrow screens, where it is not scaled down
constexpr size_t kMarkUpTo = 40;    // points that are each marked

bool finite(const ChartPoint& p) {
  return std::isfinite(p.x) && std::isfinite(p.y);
}

struct Scale {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  double span() const { return high - low; }
  // A range of one value gets some room around it.
  void widen() {
    if (span() > 0) return;
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
};

// From data to the drawing.
struct Frame {
  Scale x;
  Scale y;
  double width = 0;
  double height = 0;
  double at_x(double v) const { return kLeft + (v - x.low) / x.span() * width; }
  double at_y(double v) const { return kTop + (y.high - v) / y.span() * height; }
};

// The range of the drawn values. A spike far above all else is cut off rather than flattening the rest; where a line
// begins is always in it.
Scale y_range(const Chart& chart) {
  Scale range;
  for (const ChartLine& line : chart.lines) {
    std::vector<double> values;
    for (const ChartPoint& p : line.points) {
      if (finite(p)) values.push_back(p.y);
    }
    if (values.empty()) continue;
    range.include(values.front());
    std::ranges::sort(values);
    const double low = values.front();
    const double usual = values[(values.size() - 1) * 995 / 1000];
    range.include(low);
    const bool is_spike = line.smooth && values.size() >= kSpikeFrom && values.back() - low > kSpike * (usual - low);
    range.include(is_spike && usual > low ? usual : values.back());
  }
  if (range.empty()) return range;
  if (chart.from_zero) range.include(0);
  range.widen();
  const double room = 0.05 * range.span();
  range.high += room;
  if (!chart.from_zero || range.low < 0) range.low -= room;
  return range;
}

Frame frame_of(const Chart& chart) {
  Frame frame;
  frame.y = y_range(chart);
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& p : line.points) {
      if (finite(p)) frame.x.include(p.x);
    }
  }
  if (!frame.x.empty()) frame.x.widen();
  frame.width = chart.width - kLeft - kRight;
  frame.height = chart.height - kTop - kBottom;
  return frame;
}

std::string path_of(const Frame& frame, const std::vector<ChartPoint>& points) {
  std::string d;
  bool pen_down = false;
  for (const ChartPoint& p : points) {
    if (!finite(p)) {
      pen_down = false;
      continue;
    }
    d += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', frame.at_x(p.x), frame.at_y(p.y));
    pen_down = true;
  }
  return d;
}

// Whole steps: the first one, which is seldom round, and round ones.
std::vector<double> step_ticks(const Scale& x, int about) {
  const double first = std::ceil(x.low);
  const std::vector<double> round = nice_ticks(x.low, x.high, about);
  std::vector<double> out{first};
  const double apart = round.size() > 1 ? (round[1] - round[0]) / 2 : 0;
  for (const double tick : round) {
    if (tick == std::floor(tick) && tick > first + apart) out.push_back(tick);
  }
  return out;
}

std::string axes(const Chart& chart, const Frame& frame) {
  std::string out;
  const double right = chart.width - kRight;
  const double bottom = chart.height - kBottom;
  const std::vector<double> ys = nice_ticks(frame.y.low, frame.y.high, chart.height / 45);
  const std::vector<std::string> y_texts = tick_texts(ys);
  for (size_t i = 0; i < ys.size(); ++i) {
    const double y = frame.at_y(ys[i]);
    out += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft, right, y, y);
    out += fmt::format(R"(<text x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 8, y + 4, y_texts[i]);
  }
  const std::vector<double> xs = step_ticks(frame.x, chart.width / 110);
  const std::vector<std::string> x_texts = tick_texts(xs);
  for (size_t i = 0; i < xs.size(); ++i) {
    const double x = frame.at_x(xs[i]);
    out += fmt::format(R"(<line class="axis" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>)", x, x, bottom, bottom + 4);
    out += fmt::format(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", x, bottom + 19, x_texts[i]);
  }
  out += fmt::format(R"(<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>)", kLeft, right, bottom, bottom);
  return out;
}

std::string draw(const Frame& frame, const ChartLine& line) {
  const std::vector<ChartPoint> points = thinned(line.points, kBuckets);
  const size_t count = static_cast<size_t>(std::ranges::count_if(line.points, finite));
  const bool both = line.smooth && count >= kSmoothFrom;
  std::string out =
      fmt::format(R"(<path class="line c{}{}" d="{}"/>)", line.color, both ? " raw" : "", path_of(frame, points));
  if (both) {
    out += fmt::format(R"(<path class="line c{}" d="{}"/>)", line.color,
                       path_of(frame, thinned(running_mean(line.points), kBuckets / 2)));
  }
  if (count <= kMarkUpTo) {
    for (const ChartPoint& p : line.points) {
      if (!finite(p)) continue;
      out += fmt::format(R"(<circle class="c{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", line.color, frame.at_x(p.x),
                         frame.at_y(p.y));
    }
  }
  return out;
}

// What the page's script needs to show values under the pointer: plain JSON, escaped as an
// attribute.
std::string hover_data(const Frame& frame, const Chart& chart) {
  std::string json =
      fmt::format(R"({{"left":{},"top":{},"width":{},"height":{},"x":[{},{}],"y":[{},{}],"lines":[)", kLeft, kTop,
                  frame.width, frame.height, frame.x.low, frame.x.high, frame.y.low, frame.y.high);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const ChartLine& line = chart.lines[i];
    json += fmt::format(R"({}{{"color":{},"points":[)", i > 0 ? "," : "", line.color);
    bool first = true;
    for (const ChartPoint& p : thinned(line.points, kBuckets)) {
      if (!finite(p)) continue;
      json += fmt::format("{}[{:.6g},{:.5g}]", first ? "" : ",", p.x, p.y);
      first = false;
    }
    json += "]}";
  }
  return escape_html(json + "]}");
}

}  // namespace

namespace {

std::string drawing(const Chart& chart, std::string_view css_class) {
  const Frame frame = frame_of(chart);
  std::string clip = fmt::format("plot-{}-{}", chart.y_name, css_class);  // an id of its own on the page
  std::ranges::replace_if(
      clip, [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  std::string out = fmt::format(
      "<svg class=\"chart {}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{} by step\" data-chart=\"{}\">",
      css_class, chart.width, chart.height, escape_html(chart.y_name), hover_data(frame, chart));
  out += fmt::format("<clipPath id=\"{}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>", clip,
                     kLeft - 4, kTop - 4, frame.width + kRight + 4, frame.height + 8);
  out += axes(chart, frame);
  out += fmt::format("<g clip-path=\"url('#{}')\">", clip);
  for (const ChartLine& line : chart.lines) out += draw(frame, line);
  return out + "</g></svg>\n";
}

}  // namespace

std::string line_chart(const Chart& chart) {
  const Frame frame = frame_of(chart);
  if (frame.x.empty() || frame.y.empty()) {
    return fmt::format("<p class=\"none\">No {} was recorded.</p>\n", escape_html(chart.y_name));
  }
  std::string out = "<figure>\n<div class=\"legend\">";
  for (const ChartLine& line : chart.lines) {
    if (std::ranges::none_of(line.points, finite)) continue;
    out += fmt::format(R"(<span><i class="c{}"></i>{}</span>)", line.color, escape_html(line.name));
  }
  Chart narrow = chart;
  narrow.width = kNarrow;
  narrow.height = std::min(chart.height, 240);
  return out + "</div>\n" + drawing(chart, "roomy") + drawing(narrow, "narrow") + "</figure>\n";
}

std::string stacked_bar(const std::vector<BarItem>& items) {
  double sum = 0;
  for (const BarItem& item : items) sum += std::max(item.amount, 0.0);
  if (!(sum > 0) || !std::isfinite(sum)) return "<p class=\"none\">Nothing was recorded.</p>\n";
  std::string bar = "<div class=\"bar\">";
  std::string table = "<table class=\"parts\">";
  for (const BarItem& item : items) {
    if (!(item.amount > 0)) continue;
    const std::string name = escape_html(item.name);
    const std::string amount = escape_html(item.amount_text);
    const double percent = 100 * item.amount / sum;
    // The bar is about 480 pixels wide, a letter 7, and the space beside the name 16.
    const bool fits = percent * 4.8 >= 7 * static_cast<double>(item.name.size()) + 16;
    bar += fmt::format(R"(<div class="{}" style="width:{:.3f}%" title="{}: {}">{}</div>)", item.css_class, percent,
                       name, amount, fits ? fmt::format("<span>{}</span>", name) : "");
    table += fmt::format(R"(<tr><td><i class="{}"></i>{}</td><td>{}</td><td>{:.1f} %</td></tr>)", item.css_class, name,
                         amount, percent);
  }
  return bar + "</div>\n" + table + "</table>\n";
}

std::vector<double> nice_ticks(double low, double high, int about) {
  if (!(high > low) || !std::isfinite(high - low)) return {};
  // Of 1, 2, 5 and 10 times a power of ten the step nearest to the wished one, by ratio.
  const double rough = (high - low) / std::max(about, 2);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double lead = rough / power;
  const double step = power * (lead < std::sqrt(2) ? 1 : lead < std::sqrt(10) ? 2 : lead < std::sqrt(50) ? 5 : 10);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (double i = first; i * step <= high + 1e-9 * step && ticks.size() < 100; ++i) {
    ticks.push_back(i == 0 ? 0 : i * step);
  }
  return ticks;
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

std::vector<std::string> tick_texts(const std::vector<double>& ticks) {
  std::vector<std::string> out;
  for (const double tick : ticks) out.push_back(tick_text(tick));
  for (int digits = 5; digits <= 12 && std::ranges::adjacent_find(out) != out.end(); ++digits) {
    for (size_t i = 0; i < ticks.size(); ++i) out[i] = fmt::format("{:.{}g}", ticks[i], digits);
  }
  return out;
}

std::vector<ChartPoint> running_mean(const std::vector<ChartPoint>& points) {
  const size_t n = points.size();
  const size_t reach = n / 80;  // to each side
  std::vector<ChartPoint> out = points;
  // Twice, so that a single spike leaves a hill and not a box.
  for (int round = 0; round < 2; ++round) {
    std::vector<double> sum(n + 1);
    std::vector<double> count(n + 1);
    for (size_t i = 0; i < n; ++i) {
      sum[i + 1] = sum[i] + (finite(out[i]) ? out[i].y : 0);
      count[i + 1] = count[i] + (finite(out[i]) ? 1 : 0);
    }
    for (size_t i = 0; i < n; ++i) {
      if (!finite(out[i])) continue;
      const size_t half = std::min({reach, i, n - 1 - i});  // even at the ends as wide on both sides
      out[i].y = (sum[i + half + 1] - sum[i - half]) / (count[i + half + 1] - count[i - half]);
    }
  }
  return out;
}

std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, size_t buckets) {
  if (points.size() <= 2 * buckets) return points;
  std::vector<ChartPoint> out;
  for (size_t b = 0; b < buckets; ++b) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * b / buckets);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (b + 1) / buckets);
    const auto gap = std::find_if_not(begin, end, finite);
    if (gap != end) {
      out.push_back(*gap);
      continue;
    }
    const auto by_y = [](const ChartPoint& p, const ChartPoint& q) { return p.y < q.y; };
    const auto [low, high] = std::minmax_element(begin, end, by_y);
    if (b == 0 && std::min(low, high) != begin) out.push_back(*begin);
    out.push_back(*std::min(low, high));
    if (low != high) out.push_back(*std::max(low, high));
    if (b + 1 == buckets && std::max(low, high) + 1 != end) out.push_back(*(end - 1));
  }
  return out;
}

}  // namespace trireme
