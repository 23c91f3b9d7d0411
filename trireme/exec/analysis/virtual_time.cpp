#include "trireme/exec/analysis/virtual_time.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/cost/crew_links.h"
#include "trireme/exec/analysis/events.h"
#include "trireme/exec/memory/memory_plan.h"
#include "trireme/exec/plan/step_border.h"
#include "trireme/op/call_kinds.h"
#include "trireme/op/message.h"
#include "trireme/op/rank_groups.h"

namespace trireme {
namespace {

// Ranks of a mesh in groups, one group after the other.
struct Members {
  std::vector<int> ranks;
  size_t size = 1;
};

// An operation, a move or an op on the host that has been started and not yet waited for by all. By rank of the mesh.
struct Flight {
  std::vector<double> end;    // of a message that has not been sent: when its receiver asked for it
  std::vector<double> moved;  // of a message: when the last byte had come; of a collective that is its end
  double seconds = 0;
  int sides = 0;     // of two, that have started it
  int watchers = 0;  // crews that have not waited for it
};

// A collective or a message that is under way on a rank, beside computing.
struct UnderWay {
  double begin_s = 0, end_s = 0;
  size_t action = 0;
  Lane lane = Lane::kComm;
};

// What steps leave under way, for how long after their end: by crew, place in StepBorder::left, and rank of the mesh.
using LeftOver = std::vector<std::vector<std::vector<double>>>;

constexpr int kStepsBefore = 2;  // after so many, what a step leaves to the next is nearly always the same

// What all ranks of one crew have come to.
struct CrewClock {
  const ExecutionPlan* plan = nullptr;
  const StepBorder* border = nullptr;
  std::vector<int> before;                       // operations that the step before has left; -1: no longer under way
  size_t next = 0;                               // action
  std::vector<int> operation;                    // by action; -1: none, or no longer under way
  std::vector<double> now;                       // of compute, by rank of the mesh
  std::array<std::vector<double>, kLanes> free;  // from when on the lane does nothing
  double compute_s = 0;                          // so far, at full speed
  std::vector<std::vector<UnderWay>> under_way;  // by rank of the mesh, in order of begin; kept where it slows down
};

class Simulation {
 public:
  // `left`: by the step before; empty: this is the first.
  Simulation(std::span<const ExecutionPlan* const> crews, const VirtualTimeOptions& options,
             std::span<const StepBorder> borders, const LeftOver& left)
      : options_(options), calls_(calls_of_crews(crews)), graph_(calls_) {
    require(!crews.empty() && options.seconds.size() == crews.size(), "virtual_time: {} plans and durations of {}",
            crews.size(), options.seconds.size());
    devices_ = static_cast<size_t>(crews[0]->mesh.devices());
    flights_.resize(static_cast<size_t>(graph_.operations()));
    const size_t ranks = devices_ * crews.size();
    out_.ranks.resize(ranks);
    for (const auto* per_rank : {&options.slowness, &options.late_s}) {
      require(per_rank->empty() || per_rank->size() == ranks, "virtual_time: {} figures for {} ranks", per_rank->size(),
              ranks);
    }
    for (size_t crew = 0; crew < crews.size(); ++crew) {
      add_crew(*crews[crew], crew);
      crews_.back().border = &borders[crew];
      if (!left.empty()) add_left(crew, left[crew]);
    }
    left_.resize(crews.size());
  }

  VirtualTime run() {
    size_t starts = 0;
    for (const auto& of_crew : calls_) starts += of_crew.size();
    require(graph_.order().size() == starts,
            "virtual_time: the plans wait for each other in a circle, so the step would never end");
    for (const EventGraph::Start& start : graph_.order()) {
      const auto crew = static_cast<size_t>(start.who);
      advance(crew, static_cast<size_t>(calls_[crew][static_cast<size_t>(start.call)].action) + 1);
    }
    for (size_t crew = 0; crew < crews_.size(); ++crew) finish(crew);
    return std::move(out_);
  }
  LeftOver take_left() { return std::move(left_); }

 private:
  void add_left(size_t crew, const std::vector<std::vector<double>>& left) {
    CrewClock& clock = crews_[crew];
    std::vector<double>& free = clock.free[static_cast<size_t>(Lane::kHost)];
    for (size_t k = 0; k < left.size(); ++k) {
      const auto action = static_cast<size_t>(clock.border->left[k]);
      Flight flight{.end = left[k], .moved = {}, .seconds = options_.seconds[crew][action], .sides = 2, .watchers = 1};
      for (size_t r = 0; r < devices_; ++r) {
        flight.end[r] += clock.now[r];
        free[r] = std::max(free[r], flight.end[r]);
      }
      clock.before.push_back(static_cast<int>(flights_.size()));
      flights_.push_back(std::move(flight));
    }
  }

  void add_crew(const ExecutionPlan& plan, size_t crew) {
    require(plan.crew == static_cast<int>(crew) && static_cast<size_t>(plan.mesh.devices()) == devices_ &&
                options_.seconds[crew].size() == plan.actions.size(),
            "virtual_time: plan {} of {} ranks is for crew {}, with {} actions and {} durations", crew,
            plan.mesh.devices(), plan.crew, plan.actions.size(), options_.seconds[crew].size());
    CrewClock clock{.plan = &plan};
    clock.operation.assign(plan.actions.size(), -1);
    for (size_t call = 0; call < calls_[crew].size(); ++call) {
      const int operation = graph_.operation_of({static_cast<int>(crew), static_cast<int>(call)});
      clock.operation[static_cast<size_t>(calls_[crew][call].action)] = operation;
      ++flights_[static_cast<size_t>(operation)].watchers;
    }
    for (size_t i = 0; i < plan.actions.size(); ++i) {
      if (!is_of_rank(plan.actions[i])) continue;
      clock.operation[i] = static_cast<int>(flights_.size());
      flights_.push_back({.end = {}, .moved = {}, .seconds = options_.seconds[crew][i], .sides = 2, .watchers = 1});
    }
    clock.now.assign(devices_, 0);
    for (size_t r = 0; r < devices_; ++r) {
      clock.now[r] = rank(crew, r).late_s = options_.late_s.empty() ? 0 : options_.late_s[crew * devices_ + r];
    }
    clock.free.fill(clock.now);
    clock.under_way.resize(devices_);
    crews_.push_back(std::move(clock));
    out_.spans.emplace_back(plan.actions.size());
  }

  // In the background, and with no other rank: a move, or an op on the host.
  static bool is_of_rank(const Action& action) { return is_move(*action.op) || action.lane == Lane::kHost; }

  RankTime& rank(size_t crew, size_t r) { return out_.ranks[crew * devices_ + r]; }

  // Runs the crew's actions before `end`.
  void advance(size_t crew, size_t end) {
    CrewClock& clock = crews_[crew];
    for (; clock.next < end; ++clock.next) {
      const Action& action = clock.plan->actions[clock.next];
      const double seconds = options_.seconds[crew][clock.next];
      if (!clock.before.empty()) {
        for (const int k : clock.border->ends[clock.next]) {
          const auto left = static_cast<size_t>(clock.border->left[static_cast<size_t>(k)]);
          wait_for(crew, left, clock.before[static_cast<size_t>(k)]);
        }
      }
      for (const int wait : action.waits) wait_for(crew, static_cast<size_t>(wait));
      out_.spans[crew][clock.next].begin_s = clock.now[0];
      if (!in_background(action.lane)) {
        compute(crew, seconds);
      } else if (clock.operation[clock.next] >= 0) {
        Flight& flight = flights_[static_cast<size_t>(clock.operation[clock.next])];
        if (is_of_rank(action)) {
          start_own(crew, action, flight);
        } else if (is_message(*action.op)) {
          start_message(crew, action, seconds, flight);
        } else {
          start_collective(crew, action, seconds, flight);
        }
      }
      if (!in_background(action.lane)) out_.spans[crew][clock.next].end_s = clock.now[0];
    }
  }

  void compute(size_t crew, double seconds) {
    CrewClock& clock = crews_[crew];
    clock.compute_s += seconds;
    if (options_.overlap_slowdown > 0) {
      for (size_t r = 0; r < devices_; ++r)
        compute_beside(crew, r, options_.slowness.empty() ? seconds : seconds * options_.slowness[crew * devices_ + r]);
      return;
    }
    if (options_.slowness.empty()) {
      for (double& now : clock.now) now += seconds;
      return;
    }
    const double* slowness = options_.slowness.data() + crew * devices_;
    for (size_t r = 0; r < devices_; ++r) clock.now[r] += seconds * slowness[r];
  }

  // While something is under way, computing goes on at the share of its speed that is left.
  void compute_beside(size_t crew, size_t r, double seconds) {
    CrewClock& clock = crews_[crew];
    const double left = 1 - options_.overlap_slowdown;
    double at = clock.now[r];
    std::vector<UnderWay>& under_way = clock.under_way[r];
    std::erase_if(under_way, [at](const UnderWay& each) { return each.end_s <= at; });
    for (const UnderWay& each : under_way) {
      const double before = std::max(0.0, each.begin_s - at);
      if (seconds <= before) break;
      seconds -= before;
      at += before;
      double beside = std::max(0.0, each.end_s - at);
      if (beside * left > seconds) beside = seconds / left;
      const double lost = beside * options_.overlap_slowdown;
      seconds = std::max(0.0, seconds - beside * left);
      at += beside;
      rank(crew, r).lanes[static_cast<size_t>(each.lane)].exposed_s += lost;
      if (r == 0) out_.spans[crew][each.action].exposed_s += lost;
    }
    clock.now[r] = at + seconds;
  }

  void note_under_way(size_t crew, size_t r, double end_s, double seconds, Lane lane) {
    if (options_.overlap_slowdown <= 0 || seconds <= 0) return;
    CrewClock& clock = crews_[crew];
    std::vector<UnderWay>& under_way = clock.under_way[r];
    const UnderWay added{.begin_s = end_s - seconds, .end_s = end_s, .action = clock.next, .lane = lane};
    under_way.insert(std::ranges::upper_bound(under_way, added.begin_s, {}, &UnderWay::begin_s), added);
  }

  const Members& members_of(const Action& action, const ExecutionPlan& plan) {
    const RankGroups groups = groups_of(*action.op, action.attrs);
    const auto [found, is_new] = members_.try_emplace({plan.crew, groups.axes, groups.ranks});
    if (!is_new) return found->second;
    Members& out = found->second;
    out.size = static_cast<size_t>(groups.size);
    if (!groups.ranks.empty()) {
      out.ranks.assign(groups.ranks.begin(), groups.ranks.end());
      return out;
    }
    const std::vector<int> axes(groups.axes.begin(), groups.axes.end());
    for (const std::vector<int64_t>& group : plan.mesh.groups(axes)) {
      out.ranks.insert(out.ranks.end(), group.begin(), group.end());
    }
    return out;
  }

  void start_collective(size_t crew, const Action& action, double seconds, Flight& flight) {
    CrewClock& clock = crews_[crew];
    const Members& members = members_of(action, *clock.plan);
    std::vector<double>& free = clock.free[static_cast<size_t>(action.lane)];
    flight.seconds = seconds;
    flight.end = clock.now;  // of a rank that takes no part
    for (size_t first = 0; first + members.size <= members.ranks.size(); first += members.size) {
      const std::span<const int> group(members.ranks.data() + first, members.size);
      double end = 0;
      for (const int r : group) {
        end = std::max({end, clock.now[static_cast<size_t>(r)], free[static_cast<size_t>(r)]});
      }
      end += seconds;
      for (const int r : group) {
        flight.end[static_cast<size_t>(r)] = free[static_cast<size_t>(r)] = end;
        rank(crew, static_cast<size_t>(r)).lanes[static_cast<size_t>(action.lane)].busy_s += seconds;
        note_under_way(crew, static_cast<size_t>(r), end, seconds, action.lane);
      }
    }
    flight.sides = 2;
    out_.spans[crew][clock.next].end_s = flight.end[0];
  }

  // Each rank by itself, one after the other in its lane.
  void start_own(size_t crew, const Action& action, Flight& flight) {
    CrewClock& clock = crews_[crew];
    std::vector<double>& free = clock.free[static_cast<size_t>(action.lane)];
    flight.end.resize(devices_);
    for (size_t r = 0; r < devices_; ++r) {
      flight.end[r] = free[r] = std::max(clock.now[r], free[r]) + flight.seconds;
      rank(crew, r).lanes[static_cast<size_t>(action.lane)].busy_s += flight.seconds;
    }
    out_.spans[crew][clock.next].end_s = flight.end[0];
  }

  void start_message(size_t crew, const Action& action, double seconds, Flight& flight) {
    CrewClock& clock = crews_[crew];
    if (message_of(*action.op, action.attrs).sends) {
      flight.seconds = seconds;
      std::vector<double>& free = clock.free[static_cast<size_t>(action.lane)];
      flight.moved.resize(devices_);
      for (size_t r = 0; r < devices_; ++r) {
        flight.moved[r] = free[r] = std::max(clock.now[r], free[r]) + seconds;
        rank(crew, r).lanes[static_cast<size_t>(action.lane)].busy_s += seconds;
        note_under_way(crew, r, flight.moved[r], seconds, action.lane);
      }
    } else {
      flight.end = clock.now;
    }
    if (++flight.sides < 2) return;
    for (size_t r = 0; r < devices_; ++r) flight.end[r] = std::max(flight.end[r], flight.moved[r]);
  }

  // Where a rank waits, something moves for it, or it waits for others to start.
  void wait_for(size_t crew, size_t action) { wait_for(crew, action, crews_[crew].operation[action]); }

  void wait_for(size_t crew, size_t action, int& of_action) {
    CrewClock& clock = crews_[crew];
    const int operation = std::exchange(of_action, -1);
    if (operation < 0) return;
    Flight& flight = flights_[static_cast<size_t>(operation)];
    invariant(flight.sides == 2, "virtual_time: action {} of crew {} has no other side", action, crew);
    const std::vector<double>& moved = flight.moved.empty() ? flight.end : flight.moved;
    const auto lane = static_cast<size_t>(clock.plan->actions[action].lane);
    out_.spans[crew][action].end_s = flight.end[0];
    for (size_t r = 0; r < devices_; ++r) {
      const double from = clock.now[r], to = flight.end[r];
      if (to <= from) continue;
      const double exposed = std::max(0.0, moved[r] - std::max(from, moved[r] - flight.seconds));
      rank(crew, r).lanes[lane].exposed_s += exposed;
      if (r == 0) out_.spans[crew][action].exposed_s += exposed;
      rank(crew, r).waiting_s += (to - from) - exposed;
      clock.now[r] = to;
    }
    if (--flight.watchers == 0) flight = {};  // its room is large where ranks are many
  }

  void finish(size_t crew) {
    CrewClock& clock = crews_[crew];
    advance(crew, clock.plan->actions.size());
    std::vector<int> left;  // operations
    for (const int action : clock.border->left)
      left.push_back(std::exchange(clock.operation[static_cast<size_t>(action)], -1));
    for (size_t i = 0; i < clock.operation.size(); ++i) wait_for(crew, i);
    for (size_t k = 0; k < left.size(); ++k) {
      std::vector<double>& end = flights_[static_cast<size_t>(left[k])].end;
      ActionSpan& span = out_.spans[crew][static_cast<size_t>(clock.border->left[k])];
      span.end_s = std::max(span.begin_s, std::min(end[0], clock.now[0]));  // what is left of it is under the next step
      for (size_t r = 0; r < devices_; ++r) end[r] = std::max(0.0, end[r] - clock.now[r]);
      left_[crew].push_back(std::move(end));
    }
    for (size_t r = 0; r < devices_; ++r) {
      RankTime& time = rank(crew, r);
      const double slowness = options_.slowness.empty() ? 1 : options_.slowness[crew * devices_ + r];
      time.lanes[static_cast<size_t>(Lane::kCompute)].busy_s = clock.compute_s * slowness;
      time.end_s = clock.now[r];
      out_.makespan_s = std::max(out_.makespan_s, time.end_s);
    }
  }

  const VirtualTimeOptions& options_;
  Calls calls_;
  EventGraph graph_;
  size_t devices_ = 1;  // of each crew
  std::vector<CrewClock> crews_;
  std::vector<Flight> flights_;                                                             // by operation
  std::map<std::tuple<int, std::vector<int64_t>, std::vector<int64_t>>, Members> members_;  // by crew, axes, ranks
  LeftOver left_;
  VirtualTime out_;
};

}  // namespace

namespace {

double seconds_of(const ExecutionPlan& plan, Lane lane, const CallKind& call, const Rates& rates,
                  const Machine& machine) {
  const TypeArgs types = call.types();
  if (is_move(*call.op)) return move_seconds(move_of(call.attrs), types.out[0].bytes(), machine);
  if (lane == Lane::kCompute) return compute_seconds(*call.op, types, machine);
  if (lane == Lane::kHost) return compute_seconds_on_host(*call.op, types, machine);
  if (lane == Lane::kComm) {
    return collective_seconds(*call.op, types, plan.mesh, rates.links) + packing_seconds(*call.op, types, machine);
  }
  const LinkCost link =
      link_between_crews(message_of(*call.op, call.attrs).crew - plan.crew, plan.mesh.devices(), rates);
  int64_t bytes = 0;
  for (const TensorType& type : types.in) bytes += type.bytes();
  return seconds({.rounds = 1, .bytes = static_cast<double>(bytes)}, link, rates.links);
}

}  // namespace

std::vector<double> action_seconds(const ExecutionPlan& plan, const Rates& rates) {
  const Machine machine = rates.machine ? *rates.machine : Machine::this_host();
  CallKinds kinds;
  OfKind<double> on_device, on_host;
  std::vector<double> out;
  for (const Action& action : plan.actions) {
    const int kind = kinds.of(*action.op, action.attrs, action.in, action.out,
                              [&](int id) -> const TensorType& { return plan.values[static_cast<size_t>(id)].type; });
    OfKind<double>& seconds = action.lane == Lane::kHost ? on_host : on_device;
    out.push_back(seconds.get(kind, [&] { return seconds_of(plan, action.lane, kinds[kind], rates, machine); }));
  }
  return out;
}

double VirtualTime::idle_share() const {
  double computed_s = 0;
  for (const RankTime& rank : ranks) computed_s += rank.lane(Lane::kCompute).busy_s;
  const double all_s = makespan_s * static_cast<double>(ranks.size());
  return all_s > 0 ? 1 - computed_s / all_s : 0;
}

VirtualTime virtual_time(std::span<const ExecutionPlan* const> crews, const VirtualTimeOptions& options) {
  std::vector<StepBorder> borders;
  for (const ExecutionPlan* plan : crews) borders.push_back(step_border(*plan));
  const bool leaves = std::ranges::any_of(borders, [](const StepBorder& border) { return !border.left.empty(); });
  LeftOver left;
  for (int step = 0; leaves && step < kStepsBefore; ++step) {
    Simulation before(crews, options, borders, left);
    before.run();
    left = before.take_left();
  }
  return Simulation(crews, options, borders, left).run();
}

std::vector<LiveBytes> live_bytes(const ExecutionPlan& plan, std::span<const ActionSpan> spans, Tier tier) {
  const size_t actions = plan.actions.size();
  require(spans.size() == actions, "live_bytes: times of {} actions for a plan of {}", spans.size(), actions);
  // From the step's begin (0) and from action i (i + 1) on, by Holding.
  std::vector<std::array<int64_t, kHoldings>> change(actions + 2);
  const auto at = [&](int64_t action) {
    return static_cast<size_t>(std::clamp<int64_t>(action + 1, 0, static_cast<int64_t>(actions) + 1));
  };
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.offset < 0 || buffer.tier != tier) continue;
    const auto kind = static_cast<size_t>(buffer.holding);
    const int64_t bytes = align_buffer(buffer.bytes, plan.alignment_of(tier));
    change[at(buffer.first)][kind] += bytes;
    change[at(int64_t{buffer.last} + 1)][kind] -= bytes;
  }
  std::vector<LiveBytes> out;
  LiveBytes live;
  for (size_t i = 0; i <= actions; ++i) {
    live.at_s = i == 0 ? 0 : spans[i - 1].begin_s;
    for (size_t kind = 0; kind < kHoldings; ++kind) {
      live.kinds[kind] += change[i][kind];
      live.bytes += change[i][kind];
    }
    out.push_back(live);
  }
  return out;
}

}  // namespace trireme
