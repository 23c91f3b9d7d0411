// What a way to run a job chooses by name, beside its numbers: the schedule of a pipeline, and what is computed again.
// The names are values of the keys parallel.schedule and train.recompute; certificates have them too.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "trireme/parallel/timetable/schedules.h"

namespace trireme {

// Both in the order of their names: that of the tables of a certificate.
enum class WaySchedule : uint8_t { k1F1B, kInterleaved, kInterleavedDelayed, kZbH1, kZbH2 };
inline constexpr std::array kWaySchedules{WaySchedule::k1F1B, WaySchedule::kInterleaved,
                                          WaySchedule::kInterleavedDelayed, WaySchedule::kZbH1, WaySchedule::kZbH2};
const PipelineSchedule& schedule_of(WaySchedule schedule);
std::string_view to_string(WaySchedule schedule);

// All modules; nothing; activation functions and norms.
enum class WayRecompute : uint8_t { kFull, kNone, kSelective };
// Each computes more again than the one before.
inline constexpr std::array kWayRecompute{WayRecompute::kNone, WayRecompute::kSelective, WayRecompute::kFull};
std::string_view to_string(WayRecompute again);

}  // namespace trireme
