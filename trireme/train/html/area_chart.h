// A drawing of what fills up over time: parts stacked on each other, which change in steps.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct AreaPoint {
  double at_s = 0;
  std::vector<double> bytes;  // of each part, from then on
};

struct AreaChart {
  struct Part {
    std::string name;
    std::string css_class;  // colour, as of a BarItem
  };
  std::string title;  // for those who do not see it
  std::vector<Part> parts;
  std::vector<AreaPoint> points;  // in the order of time
  double end_s = 0;
  double limit = 0;  // bytes, a line where it is near; 0: none
};

// Two drawings, for wide and for narrow screens; a line of text where there is nothing.
std::string area_chart(const AreaChart& chart);

// Of each of so many equal parts of the time the point with the most bytes.
std::vector<AreaPoint> fullest_points(const std::vector<AreaPoint>& points, double end_s, size_t parts);

}  // namespace trireme
