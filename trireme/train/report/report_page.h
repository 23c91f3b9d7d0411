// The fixed parts of the report: its style sheet and the script that shows values under the
// pointer.
#pragma once

#include <string_view>

namespace trireme {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace trireme
