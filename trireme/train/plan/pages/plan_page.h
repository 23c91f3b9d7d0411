// A plan as one page of HTML that needs no other file: what the step takes and where its time goes, what each stage
// does when, memory over time, how the axes lie in the machine, how each layer is cut, and what was not chosen. Its
// figures are those of the plan's text, with the same digits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/train/html/area_chart.h"
#include "trireme/train/html/chart.h"
#include "trireme/train/html/html_page.h"
#include "trireme/train/html/lanes_chart.h"
#include "trireme/train/plan/axis_levels.h"
#include "trireme/train/plan/exact/exact_compiled.h"
#include "trireme/train/plan/pages/layer_cuts.h"
#include "trireme/train/plan/plan_job.h"
#include "trireme/train/plan/questions/what_if.h"

namespace trireme {

struct PlanPage {
  std::string title, summary;
  HtmlPairs headline;

  std::vector<BarItem> step;  // adds up to it
  std::string step_aside;     // of the sum
  std::string step_note;
  std::vector<std::vector<std::string>> transfers;  // kind, how many, ms that they take, hidden, exposed

  HtmlPairs timeline_legend;  // colour, name
  std::vector<LanesChart> timelines;
  std::string timeline_aside;

  struct Memory {
    std::string of;  // "stage 0"; "stages 1 to 6", of which the first is drawn; "every rank"
    int64_t bytes = 0;
    std::vector<std::pair<std::string, int64_t>> kinds;  // at the fullest moment
    AreaChart over_time;
  };
  std::vector<Memory> memory;
  int64_t memory_limit = 0;

  Machine machine;
  int64_t ranks = 1;
  std::vector<AxisLevel> axes;

  std::vector<LayerCut> stages, weights, ops;

  std::vector<std::vector<std::string>> ways;  // that were found: the way, step, beside the best, memory
  HtmlPairs ledger;
  std::string bound;                                    // a sentence
  std::string why_not;                                  // as text; "": not asked
  std::vector<std::vector<std::string>> sensitivities;  // what, step, beside the plan's, way
};

std::string render_plan_page(const PlanPage& page);

// What a plan's step does in units of what it trains on.
struct PlannedTokens {
  int64_t per_step = 0;
  std::string unit = "tokens";
};

// Of the best way; throws kInvalidArgument where none fits. It is compiled once more, for what is drawn.
PlanPage page_of(const JobPlan& plan, const PlanRequest& request, const PlannedTokens& tokens);
// By the tables of its parts: nothing of the job's size is compiled.
PlanPage page_of(const ExactPlan& plan, const PlanRequest& request, const PlannedTokens& tokens);
// The same of the way to train by, and of those after it; as a compiled plan, if no table knows that way.
PlanPage page_of(const ExactPlan& plan, const CompiledPlan& compiled, const PlanRequest& request,
                 const PlannedTokens& tokens);
// What lies on the host and the disk, of so much that a rank has there, in the headline.
void add_beside(const BesideBytes& room, int64_t host, int64_t disk, PlanPage& page);
void add_sensitivities(const std::optional<ComparedWay>& now, const std::vector<Sensitivity>& all, PlanPage& page);

// Of so many stages those that are drawn: all of few, else the first and the last ones.
std::vector<size_t> drawn_stages(size_t stages);
// "crew 1", or "crews 1 to 6", that follow each other; of all ranks where there is but one.
std::string stages_name(std::string_view kind, size_t first, size_t end, size_t stages);

}  // namespace trireme
