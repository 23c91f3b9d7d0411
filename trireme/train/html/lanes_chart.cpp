#include "trireme/train/html/lanes_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/append_text.h"
#include "trireme/train/html/chart.h"
#include "trireme/train/html/escape_html.h"

namespace trireme {
namespace {

constexpr double kRowGap = 2, kGroupGap = 4, kTitleHeight = 22, kTicksHeight = 20, kBetweenCharts = 12;
constexpr double kLetter = 7.5;        // room for a letter of a label
constexpr double kJoinedUpTo = 0.001;  // of the scale

// One drawing of the charts for wide screens, and one for those on which it would be too small to read.
struct LanesFrame {
  const char* css_class;
  double width;
  double names;  // of it
  int ticks;     // about so many
  double x_of(double seconds, double end_s) const {
    return names + (end_s > 0 ? (width - names) * seconds / end_s : 0);
  }
};
constexpr LanesFrame kLanesFrames[] = {{"roomy", 1000, 92, 8}, {"narrow", 380, 76, 4}};

double height_of(const LanesChart& chart) {
  double out = kTitleHeight + kTicksHeight;
  for (const LaneRow& row : chart.rows) out += chart.row_height + (row.begins_group ? kGroupGap : kRowGap);
  return out;
}

void draw_span(const LaneSpan& span, double y, const LanesChart& chart, const LanesFrame& frame, std::string& out) {
  const double x = frame.x_of(span.begin_s, chart.end_s), width = frame.x_of(span.end_s, chart.end_s) - x;
  const bool has_label = !span.label.empty() && width > kLetter * static_cast<double>(span.label.size());
  const std::string rect =
      fmt::format("x=\"{:.2f}\" y=\"{:.0f}\" width=\"{:.2f}\" height=\"{:.0f}\"", x, y, width, chart.row_height);
  if (span.title.empty() && !has_label) {
    append_text(out, "<rect class=\"{}\" {}/>\n", span.css_class, rect);
    return;
  }
  append_text(out, "<g class=\"{}\">", span.css_class);
  if (!span.title.empty()) append_text(out, "<title>{}</title>", escape_html(span.title));
  append_text(out, "<rect {}/>", rect);
  if (has_label)
    append_text(out, "<text x=\"{:.2f}\" y=\"{:.0f}\">{}</text>", x + width / 2, y + chart.row_height - 7,
                escape_html(span.label));
  out += "</g>\n";
}

void draw_ticks(const LanesChart& chart, double y, const LanesFrame& frame, std::string& out) {
  const std::vector<double> ticks = nice_ticks(0, chart.end_s * 1e3, frame.ticks);
  const std::vector<std::string> texts = tick_texts(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    const double x = frame.x_of(ticks[i] * 1e-3, chart.end_s);
    const bool at_end = x > frame.width - 30;
    append_text(out, "<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"{}\">{}{}</text>\n", x, y + kTicksHeight - 5,
                at_end ? "end" : "middle", texts[i], i == 0 ? " ms" : "");
  }
}

// From `top` down.
void draw_chart(const LanesChart& chart, double top, const LanesFrame& frame, std::string& out) {
  append_text(out, "<text x=\"0\" y=\"{:.0f}\">{}</text>\n", top + kTitleHeight - 8, escape_html(chart.title));
  double y = top + kTitleHeight;
  for (const LaneRow& row : chart.rows) {
    y += row.begins_group ? kGroupGap : kRowGap;
    append_text(out,
                "<text x=\"0\" y=\"{:.0f}\">{}</text>\n<rect class=\"c0\" x=\"{:.0f}\" y=\"{:.0f}\" "
                "width=\"{:.0f}\" height=\"{:.0f}\"/>\n",
                y + chart.row_height / 2 + 4, escape_html(row.name), frame.names, y, frame.width - frame.names,
                chart.row_height);
    for (const LaneSpan& span : row.spans) draw_span(span, y, chart, frame, out);
    y += chart.row_height;
  }
  draw_ticks(chart, y, frame, out);
}

}  // namespace

std::string html_legend(const std::vector<std::pair<std::string, std::string>>& colors_and_names) {
  std::string out = "<div class=\"legend\">";
  for (const auto& [color, name] : colors_and_names)
    out += fmt::format("<span class=\"{}\"><i></i>{}</span>", color, escape_html(name));
  return out + "</div>\n";
}

std::string lanes_drawing(const std::vector<LanesChart>& charts, std::string_view what) {
  std::string out;
  for (const LanesFrame& frame : kLanesFrames) {
    double height = 0;
    std::string drawn;
    for (const LanesChart& chart : charts) {
      if (height > 0) height += kBetweenCharts;
      draw_chart(chart, height, frame, drawn);
      height += height_of(chart);
    }
    out += fmt::format(
        "<div class=\"wide\"><svg class=\"timeline {}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "aria-label=\"{}\">\n{}</svg></div>\n",
        frame.css_class, frame.width, height, escape_html(what), drawn);
  }
  return out;
}

std::vector<LaneSpan> joined_spans(std::vector<LaneSpan> spans, double end_s) {
  std::vector<LaneSpan> out;
  for (LaneSpan& span : spans) {
    if (!out.empty() && out.back().css_class == span.css_class && out.back().label == span.label &&
        span.begin_s - out.back().end_s < kJoinedUpTo * end_s) {
      out.back().end_s = std::max(out.back().end_s, span.end_s);
    } else {
      out.push_back(std::move(span));
    }
  }
  return out;
}

}  // namespace trireme
