#include "trireme/train/plan/pages/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/base/bytes_text.h"
#include "trireme/train/html/escape_html.h"

namespace trireme {
namespace {

constexpr size_t kMostDrawn = 12;      // stages, of which as many from both ends
constexpr int64_t kDrawnDevices = 16;  // of the smallest level of links

std::string step_section(const PlanPage& page) {
  std::string body = stacked_bar(page.step);
  if (!page.step_note.empty()) body += html_note(page.step_note);
  return html_section("Time of a step", page.step_aside, body);
}

std::string transfers_section(const PlanPage& page) {
  if (page.transfers.empty()) return "";
  return html_section("Communication", "ms of a step, average of ranks",
                      html_table({"what", "times", "takes", "hidden", "exposed"}, page.transfers));
}

std::string timeline_section(const PlanPage& page) {
  return html_section("Timeline of a step", page.timeline_aside,
                      html_legend(page.timeline_legend) + lanes_drawing(page.timelines, "what each stage does when"));
}

std::string memory_bar(const PlanPage::Memory& memory, int64_t limit) {
  std::vector<BarItem> items;
  for (const auto& [kind, bytes] : memory.kinds)
    items.push_back({kind, static_cast<double>(bytes), bytes_text(static_cast<double>(bytes)),
                     fmt::format("c{}", items.size() % 7 + 1)});
  const int64_t free = limit - memory.bytes;
  if (free > 0) items.push_back({"free", static_cast<double>(free), bytes_text(static_cast<double>(free)), "c0"});
  return stacked_bar(items);
}

std::string memory_section(const PlanPage& page) {
  std::string body;
  bool has_legend = false;
  for (const PlanPage::Memory& each : page.memory) {
    if (!has_legend) {
      HtmlPairs colors;
      for (const AreaChart::Part& part : each.over_time.parts) colors.emplace_back(part.css_class, part.name);
      body += html_legend(colors);
      has_legend = true;
    }
    body += fmt::format("<h3>{}<small>{} bytes, {}</small></h3>\n", escape_html(each.of), each.bytes,
                        bytes_text(static_cast<double>(each.bytes)));
    body += area_chart(each.over_time) + "<details><summary>at its fullest</summary>\n" +
            memory_bar(each, page.memory_limit) + "</details>\n";
  }
  return html_section("Memory over time",
                      fmt::format("of a rank, which has {}", bytes_text(static_cast<double>(page.memory_limit))), body);
}

std::string devices_of(const PlanPage& page) {
  const int64_t all = page.machine.levels.front().devices;
  std::string out = "<div class=\"devices\">";
  for (int64_t device = 0; device < std::min(all, kDrawnDevices); ++device)
    out += device < page.ranks ? "<i></i>" : "<i class=\"free\"></i>";
  out += "</div>";
  if (all > kDrawnDevices) out += fmt::format("<small>and {} devices more</small>", all - kDrawnDevices);
  return out;
}

std::string rate_text(double bytes_per_s) {
  return bytes_per_s >= 1e9 ? fmt::format("{:.4g} GB/s", bytes_per_s / 1e9)
                            : fmt::format("{:.4g} MB/s", bytes_per_s / 1e6);
}

// A box in a box for each level of links, from the largest that the ranks need to the smallest.
std::string machine_section(const PlanPage& page) {
  if (page.machine.levels.empty()) return "";
  size_t top = 0;
  while (top + 1 < page.machine.levels.size() && page.machine.levels[top].devices < page.ranks) ++top;
  std::string body, ends;
  for (size_t level = top + 1; level-- > 0;) {
    const LinkLevel& links = page.machine.levels[level];
    body += fmt::format("<div class=\"level\"><b>{}</b><small>{} devices, {} each way and device, {:.3g} us</small>",
                        escape_html(links.name), links.devices, rate_text(links.bytes_per_s), links.latency_s * 1e6);
    std::string chips;
    for (const AxisLevel& axis : page.axes) {
      if (axis.level == level)
        chips += fmt::format("<span class=\"chip\">{} over {} ranks</span>", escape_html(axis.axis), axis.ranks);
    }
    body += chips.empty() ? "" : fmt::format("<div>{}</div>", chips);
    if (level > 0) {
      const int64_t inner = std::max<int64_t>(1, page.machine.levels[level - 1].devices);
      const int64_t needed = (std::min(page.ranks, links.devices) + inner - 1) / inner;
      if (needed > 1) body += fmt::format("<div><small>{} of these:</small></div>", needed);
    }
    ends += "</div>\n";
  }
  return html_section("Machine",
                      fmt::format("{}; {} of its {} devices; axes by the links they need", page.machine.name,
                                  page.ranks, page.machine.devices()),
                      body + devices_of(page) + ends);
}

std::string named_times(const LayerCut& cut) {
  return cut.count > 1 ? fmt::format("{} ({} times)", cut.name, cut.count) : cut.name;
}

// By stage, what stands on it.
HtmlPairs modules_of_stages(const std::vector<LayerCut>& stages) {
  std::map<int, std::string> modules;
  for (const LayerCut& each : stages) {
    std::string& text = modules[std::stoi(each.cut)];
    text += (text.empty() ? "" : ", ") + each.name;
  }
  HtmlPairs out;
  for (const auto& [stage, text] : modules) out.emplace_back(fmt::format("stage {}", stage), text);
  return out;
}

std::string layers_section(const PlanPage& page) {
  std::string body;
  if (!page.stages.empty()) body += html_list(modules_of_stages(page.stages));
  std::vector<std::vector<std::string>> rows;
  for (const LayerCut& cut : page.weights)
    rows.push_back({named_times(cut), cut.type, cut.cut, cut.state.empty() ? "-" : cut.state});
  if (!rows.empty())
    body += "<details open><summary>Weights</summary>\n" +
            html_table({"weight", "whole", "cut", "its state"}, rows, 4) + "</details>\n";
  rows.clear();
  for (const LayerCut& cut : page.ops) rows.push_back({named_times(cut), cut.cut});
  body += rows.empty() ? html_note("No op is cut.")
                       : "<details><summary>Ops</summary>\n" +
                             html_table({"op", "factors of its rule, by the axes that cut them"}, rows, 2) +
                             html_note(
                                 "Ops that are not named compute whole tensors. Gradients are cut as their "
                                 "forward ops.") +
                             "</details>\n";
  return html_section("How layers are cut", "[-, tp]: the second dimension over the axis tp; - is whole", body);
}

std::string ways_section(const PlanPage& page) {
  std::string body = html_table({"way", "step, ms", "beside the best", "memory, MiB"}, page.ways);
  body += html_note(page.bound);
  body += "<details><summary>What became of all ways</summary>\n" + html_list(page.ledger) + "</details>\n";
  if (!page.why_not.empty())
    body +=
        "<details open><summary>Why not another</summary>\n<pre>\n" + escape_html(page.why_not) + "</pre></details>\n";
  std::string out = html_section("Ways that were found", "by the time of their step", body);
  if (!page.sensitivities.empty())
    out += html_section("If the machine were different", "planned again",
                        html_table({"machine", "step, ms", "beside this one", "best way"}, page.sensitivities));
  return out;
}

}  // namespace

std::string render_plan_page(const PlanPage& page) {
  return html_page({.title = page.title,
                    .summary = page.summary,
                    .body = html_tiles(page.headline) + "<div class=\"pair\">\n" + step_section(page) + "<div>\n" +
                            transfers_section(page) + machine_section(page) + "</div>\n</div>\n" +
                            timeline_section(page) + memory_section(page) + layers_section(page) + ways_section(page),
                    .footer = "Written by trireme plan. Times are modelled; no rank was started."});
}

void add_sensitivities(const std::optional<ComparedWay>& now, const std::vector<Sensitivity>& all, PlanPage& page) {
  for (const Sensitivity& each : all) {
    if (!each.best) {
      page.sensitivities.push_back({each.what, "nothing fits", "-", "-"});
      continue;
    }
    page.sensitivities.push_back({each.what, fmt::format("{:.3f}", each.best->step_s * 1e3),
                                  now ? fmt::format("{:+.2f} %", 100 * (each.best->step_s / now->step_s - 1)) : "-",
                                  each.best->text});
  }
}

std::string stages_name(std::string_view kind, size_t first, size_t end, size_t stages) {
  if (stages == 1) return "every rank";
  return end - first == 1 ? fmt::format("{} {}", kind, first)
                          : fmt::format("{}s {} to {}; {} {} is drawn", kind, first, end - 1, kind, first);
}

void add_beside(const BesideBytes& room, int64_t host, int64_t disk, PlanPage& page) {
  for (const auto& [tier, taken, of] :
       {std::tuple(Tier::kHost, host, room.host), std::tuple(Tier::kDisk, disk, room.disk)}) {
    if (taken == 0) continue;
    const std::string has = of > 0 ? fmt::format(", of {:.1f} MiB", static_cast<double>(of) / 1048576.0) : "";
    page.headline.emplace_back(fmt::format("on the {}{}", to_string(tier), has),
                               fmt::format("{:.1f} MiB", static_cast<double>(taken) / 1048576.0));
  }
}

std::vector<size_t> drawn_stages(size_t stages) {
  std::vector<size_t> out;
  for (size_t stage = 0; stage < stages; ++stage) {
    if (stages <= kMostDrawn || stage < kMostDrawn / 2 || stage >= stages - kMostDrawn / 2) out.push_back(stage);
  }
  return out;
}

}  // namespace trireme
