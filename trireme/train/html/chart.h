// Two of the drawings on pages: line charts as SVG with axes and legend, and stacked bars with their table.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct ChartPoint {
  double x = 0;  // the step
  double y = 0;  // NaN and infinities leave a gap
};

struct ChartLine {
  std::string name;
  int color = 1;  // of the page's palette, 1 to 7
  std::vector<ChartPoint> points;
  bool smooth = false;  // draws a running mean boldly over the faint points
};

struct Chart {
  std::string y_name;
  std::vector<ChartLine> lines;
  int width = 1000;
  int height = 320;
  bool from_zero = false;  // the y axis begins at zero
};

// Legend and drawing; a line of text when no point is finite.
std::string line_chart(const Chart& chart);

struct BarItem {
  std::string name;
  double amount = 0;
  std::string amount_text;
  std::string css_class;  // colour: "c1" to "c7", "c1 s1" to "c1 s4" fainter ones, "c0" the ground
};

std::string stacked_bar(const std::vector<BarItem>& items);

// The pieces, for the other drawings and for tests.
std::vector<double> nice_ticks(double low, double high, int about);
std::string tick_text(double value);
std::vector<std::string> tick_texts(const std::vector<double>& ticks);  // as short as tells them apart
std::vector<ChartPoint> running_mean(const std::vector<ChartPoint>& points);
// At most 2 * `buckets` + 2 points that keep the first, the last and every bucket's extremes, and a gap where a value
// is not finite.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, size_t buckets);

}  // namespace trireme
