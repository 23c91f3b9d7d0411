// A drawing of what is done when: rows, one below the other, of spans on one scale of time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

struct LaneSpan {
  double begin_s = 0, end_s = 0;
  std::string css_class;   // colour, as of a BarItem
  std::string title = {};  // shown under the pointer; "": nothing is
  std::string label = {};  // drawn on it where there is room
};

struct LaneRow {
  std::string name;
  std::vector<LaneSpan> spans;  // in the order of time
  bool begins_group = true;     // stands a little apart from the row above
};

struct LanesChart {
  std::string title;  // above the rows
  std::vector<LaneRow> rows;
  double end_s = 0;  // of the scale
  double row_height = 24;
};

// What colours mean, "c1": "forward".
std::string html_legend(const std::vector<std::pair<std::string, std::string>>& colors_and_names);
// The charts below each other, each on a scale of its own. `what` is for those who do not see it.
std::string lanes_drawing(const std::vector<LanesChart>& charts, std::string_view what);

// Spans that follow each other in one colour and with one label, closer than a thousandth of the scale, are one: the
// drawing looks the same.
std::vector<LaneSpan> joined_spans(std::vector<LaneSpan> spans, double end_s);

}  // namespace trireme
