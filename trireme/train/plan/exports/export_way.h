// Exports: a planned way as flags or configuration of other systems, as far as they can express it. Each system has a
// file, export_<system>.cpp, and a line in the list of export_way.cpp. What a system cannot express is refused by name:
// a configuration that trains differently from the plan is not an export of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "trireme/train/plan/ways/ways.h"

namespace trireme {

struct ExportedWay {
  const JobConfig& job;  // without cuts
  Way way;               // not a searched one
  int64_t ranks = 1;
  int64_t copies = 1;                   // of the model: ranks that share neither stages, weights nor positions
  int64_t micro_batch = 1;              // samples of one copy
  int64_t positions = 1;                // of a sample
  int64_t heads_of_cp = 1;              // ranks of cp that share the heads in attention; the others form rings
  std::map<std::string, double> sizes;  // the keys of [model] that are numbers or switches: "layers"
  bool has_unlike_stages = false;       // some stages have more layers than others
};

struct ExportSystem {
  std::string_view name;  // of --export
  std::string (*write)(const ExportedWay&);
  bool has_offload = false;  // of the optimizer's state
  bool has_kept_slices = false;
};
std::span<const ExportSystem> export_systems();

// Throws kInvalidArgument for an unknown system, and kUnsupported for what it cannot express. `layers_of_stages`: given
// if the plan says how many layers each stage has; otherwise the stages are equal.
std::string export_way(std::string_view system, const JobConfig& job, const Way& way, int64_t ranks,
                       const std::vector<int64_t>& layers_of_stages = {});

// Throws kUnsupported "export to SYSTEM: WHAT; CURE" unless `can`.
void require_sayable(bool can, std::string_view system, std::string_view what, std::string_view cure);

}  // namespace trireme
