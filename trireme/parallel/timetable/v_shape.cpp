#include <algorithm>
#include <array>
#include <utility>

#include "trireme/parallel/timetable/schedules.h"

namespace trireme::schedule {
namespace {

// A crew's orders go by passes of its two stages: down the V (stage s) and up (stage 2S-1-s).
struct CrewOrder {
  int crew;
  int crews;
  int micro_batches;
  std::vector<Unit> units = {};
  std::array<int, 4> done = {};  // of F down, F up, I down, I up

  void add(Unit::Pass pass, bool up) {
    int& number = done[(pass == Unit::Pass::kForward ? 0U : 2U) + (up ? 1U : 0U)];
    if (number < micro_batches) units.push_back({pass, up ? 2 * crews - 1 - crew : crew, number++});
  }
  bool has_ended() const { return done[2] == micro_batches && done[3] == micro_batches; }
};

Timetable empty_v(const ScheduleRequest& request) {
  return {.stages = 2 * request.crews, .micro_batches = request.micro_batches};
}

// The repeating block of Qi et al. 2024: each of the passes F down, F up, I up, I down goes from crew to crew, one
// after the other, `down` slots a crew on its way to the last crew and `up` on its way back. Every six slots the next
// micro-batch begins, so no two passes of a crew may be equal modulo six. Gives, for each pass, its slot on each crew.
std::array<std::vector<int>, 4> block(int crews, int down, int up) {
  std::array<std::vector<int>, 4> slots;
  int least = 0;
  for (size_t pass = 0; pass < slots.size(); ++pass) {
    const bool goes_down = pass % 2 == 0;
    for (int begin = least; slots[pass].empty(); ++begin) {
      std::vector<int> tried;
      bool free = true;
      for (int crew = 0; crew < crews; ++crew) {
        tried.push_back(begin + (goes_down ? down * crew : up * (crews - 1 - crew)));
        for (size_t other = 0; other < pass; ++other) {
          free = free && (tried.back() - slots[other][static_cast<size_t>(crew)]) % 6 != 0;
        }
      }
      if (free) slots[pass] = std::move(tried);
    }
    least = std::max(slots[pass].front(), slots[pass].back()) + 1;
  }
  return slots;
}

Timetable from_block(const ScheduleRequest& request, int down, int up, int most_live) {
  const std::array<std::vector<int>, 4> slots = block(request.crews, down, up);
  constexpr std::array<std::pair<Unit::Pass, bool>, 4> kPasses{{{Unit::Pass::kForward, false},
                                                                {Unit::Pass::kForward, true},
                                                                {Unit::Pass::kInputGrad, true},
                                                                {Unit::Pass::kInputGrad, false}}};
  Timetable out = empty_v(request);
  for (int crew = 0; crew < request.crews; ++crew) {
    std::vector<std::pair<int, size_t>> order;  // slot, pass
    for (size_t pass = 0; pass < slots.size(); ++pass) {
      for (int i = 0; i < request.micro_batches; ++i) {
        order.emplace_back(slots[pass][static_cast<size_t>(crew)] + 6 * i, pass);
      }
    }
    std::ranges::sort(order);
    CrewOrder units{.crew = crew, .crews = request.crews, .micro_batches = request.micro_batches};
    for (const auto& [slot, pass] : order) units.add(kPasses[pass].first, kPasses[pass].second);
    out.crews.push_back(std::move(units.units));
  }
  fill_with_weight_grads(out, most_live);
  return out;
}

}  // namespace

Timetable zero_bubble_v(const ScheduleRequest& request) {
  Timetable out = empty_v(request);
  for (int crew = 0; crew < request.crews; ++crew) {
    CrewOrder order{.crew = crew, .crews = request.crews, .micro_batches = request.micro_batches};
    for (int i = 0; i < 2 * (request.crews - crew) - 1; ++i) order.add(Unit::Pass::kForward, false);
    for (int i = 0; i < crew; ++i) {
      order.add(Unit::Pass::kForward, true);
      order.add(Unit::Pass::kForward, false);
    }
    for (int i = 0; i < request.crews - crew; ++i) {
      order.add(Unit::Pass::kForward, true);
      order.add(Unit::Pass::kInputGrad, true);
    }
    while (!order.has_ended()) {
      order.add(Unit::Pass::kForward, false);
      order.add(Unit::Pass::kInputGrad, false);
      order.add(Unit::Pass::kForward, true);
      order.add(Unit::Pass::kInputGrad, true);
    }
    out.crews.push_back(std::move(order.units));
  }
  fill_with_weight_grads(out, 2 * request.crews);
  return out;
}

Timetable v_half(const ScheduleRequest& request) {
  return from_block(request, 2, 1, 2 * ((request.crews + 2) / 2));
}

Timetable v_min(const ScheduleRequest& request) {
  return from_block(request, 1, 1, 2 * ((request.crews + 4) / 3));
}

}  // namespace trireme::schedule
