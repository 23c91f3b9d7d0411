// trireme timetable: the order in which the crews of a pipeline work, of a schedule or of a file, and what it costs.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"

namespace trireme::cli {
namespace {

struct TimetableArgs {
  std::string schedule;
  ScheduleRequest request{.crews = 4, .stages_per_crew = 0, .micro_batches = 8, .seq_chunks = 0};
  std::vector<double> costs{1, 1, 1};
  double transfer = 0;
  bool units = false;
  int width = 0;
  std::vector<std::string> of_schedule, of_picture;  // the flags given that make a schedule, and that draw one
};

constexpr int kColumns = 60;  // of the picture, where the time has more slots than fit a page

void list_schedules() {
  std::printf("Schedules:\n\n");
  for (const PipelineSchedule& schedule : schedules()) {
    std::printf("  %-20s %s\n", std::string(schedule.name).c_str(), std::string(schedule.meaning).c_str());
  }
  std::printf("\n`trireme timetable SCHEDULE --pp 4 --micro-batches 8` shows one.\n");
}

Timetable timetable_of(const TimetableArgs& args) {
  const auto all = schedules();
  const bool named = std::ranges::find(all, args.schedule, &PipelineSchedule::name) != all.end();
  const bool is_path = args.schedule.find('/') != std::string::npos || is_directory(args.schedule);
  if (!named && is_path)
    require_file(args.schedule, "timetable",
                 "name a schedule, or a file as `trireme timetable SCHEDULE --units` prints");
  if (named || !is_file(args.schedule)) return make_timetable(args.schedule, args.request);
  require(args.of_schedule.empty(),
          "timetable: {} is for a schedule that is named, and '{}' is a file with a whole timetable; leave it out",
          args.of_schedule.empty() ? "" : args.of_schedule.front(), args.schedule);
  const Timetable timetable = parse_timetable(read_file(args.schedule));
  check(timetable);
  return timetable;
}

std::string stages_text(const std::vector<int>& crew_of, size_t crew) {
  std::string out;
  for (size_t stage = 0; stage < crew_of.size(); ++stage) {
    if (crew_of[stage] == static_cast<int>(crew)) out += fmt::format("{}{}", out.empty() ? "" : ",", stage);
  }
  return out;
}

int show(const TimetableArgs& args) {
  require(!args.units || args.of_picture.empty(),
          "timetable: {} changes the picture, and --units prints none; leave one out",
          args.of_picture.empty() ? "" : args.of_picture.front());
  if (args.schedule.empty()) {
    require(args.of_schedule.empty() && args.of_picture.empty() && !args.units,
            "timetable: no schedule is named; name one of those that `trireme timetable` lists, or a file");
    list_schedules();
    return 0;
  }
  require(args.costs.size() == 3,
          "timetable: --costs has {} numbers; give three: forward,input-gradient,weight-gradient", args.costs.size());
  const Timetable timetable = timetable_of(args);
  if (args.units) {
    std::fputs(to_string(timetable).c_str(), stdout);
    return 0;
  }
  const UnitCosts costs{
      .forward = args.costs[0], .input_grad = args.costs[1], .weight_grad = args.costs[2], .transfer = args.transfer};
  const TimetableTime time = time_of(timetable, costs);
  require(time.makespan > 0,
          "timetable: --costs {},{},{}: all are 0, so there is nothing to show; give one that is not", args.costs[0],
          args.costs[1], args.costs[2]);
  const auto slots = static_cast<int>(std::min<double>(kColumns, time.makespan));
  std::printf("%s: %s, %s, %s%s\n\n", timetable.name.c_str(),
              counted(static_cast<int64_t>(timetable.crews.size()), "crew").c_str(),
              counted(timetable.stages, "stage").c_str(), counted(timetable.micro_batches, "micro-batch").c_str(),
              timetable.seq_chunks > 1 ? fmt::format(" in {} chunks of positions", timetable.seq_chunks).c_str() : "");
  std::fputs(picture_of(timetable, time, args.width > 0 ? args.width : std::max(1, slots)).c_str(), stdout);
  std::printf("\ncrew  stages       busy      idle   activations kept\n");
  const std::vector<int> crew_of = crews_of_stages(timetable);
  for (size_t crew = 0; crew < time.crews.size(); ++crew) {
    const TimetableTime::Crew& own = time.crews[crew];
    std::printf("%4zu  %-8s %8.4g  %8.4g   %d\n", crew, stages_text(crew_of, crew).c_str(), own.busy, own.bubble(),
                own.live);
  }
  const auto longest = std::ranges::max_element(time.crews, {}, [](const auto& crew) { return crew.end - crew.begin; });
  const double span = longest->end - longest->begin;
  std::printf(
      "\nTakes %.4g; the crew that takes longest idles %.1f %% of the time from its first unit to its last. One "
      "forward pass takes %.4g, input "
      "gradients %.4g, weight gradients %.4g, a transfer %.4g.\n",
      time.makespan, 100 * longest->bubble() / span, costs.forward, costs.input_grad, costs.weight_grad,
      costs.transfer);
  return 0;
}

}  // namespace

void add_timetable(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<TimetableArgs>();
  CLI::App* command =
      app.add_subcommand("timetable", "Show the order of work, bubble and memory of a pipeline's schedule");
  command->add_option("schedule", args->schedule,
                      "A schedule's name, or a file with a timetable; without it the schedules are listed");
  command->add_option("--pp", args->request.crews, "Crews: groups of ranks, each with its own stages")
      ->capture_default_str();
  command->add_option("--virtual-stages", args->request.stages_per_crew,
                      "Stages of each crew; by default the fewest that the schedule takes");
  command->add_option("--micro-batches", args->request.micro_batches, "Micro-batches of a step")->capture_default_str();
  command->add_option("--seq-chunks", args->request.seq_chunks,
                      "Chunks of a micro-batch's positions, for seq-1f1b; by default 2");
  command->add_option("--costs", args->costs, "Times of a stage's forward pass, input gradients and weight gradients")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--transfer", args->transfer, "Time of a message between crews")->capture_default_str();
  command->add_flag("--units", args->units, "Print only the order, in the form of a timetable file");
  command->add_option("--columns", args->width, "Columns of the picture; by default one per slot, up to 60");
  command->footer("Example:\n  trireme timetable zb-h1 --pp 4 --micro-batches 8");
  command->callback([=, &chosen] {
    for (const char* flag : {"--pp", "--virtual-stages", "--micro-batches", "--seq-chunks"}) {
      if (command->count(flag) > 0) args->of_schedule.emplace_back(flag);
    }
    for (const char* flag : {"--costs", "--transfer", "--columns"}) {
      if (command->count(flag) > 0) args->of_picture.emplace_back(flag);
    }
    chosen = [=] { return show(*args); };
  });
}

}  // namespace trireme::cli
