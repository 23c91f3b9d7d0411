// Bytes of each tier of a rank's memory over the modelled step, by what they hold: as a drawing, and as lines of text.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/train/html/area_chart.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

// `spans`: of the plan's actions, in a step that takes `end_s`.
AreaChart memory_chart(const ExecutionPlan& plan, std::span<const ActionSpan> spans, double end_s,
                       Tier tier = Tier::kDevice);

// Of a rank of the crew with the largest arena on the device: each tier in which it has an arena, by name.
std::vector<std::pair<std::string, AreaChart>> memory_charts(const Compiled& compiled);

// The fullest moment of each of so many equal parts of the step: a line with its time in ms, the bytes, those of each
// kind, and a bar.
std::string memory_lines(const AreaChart& chart, size_t parts = 16);

}  // namespace trireme
