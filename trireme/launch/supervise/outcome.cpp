#include "trireme/launch/supervise/outcome.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <deque>
#include <tuple>

namespace trireme::launch {

namespace {

constexpr size_t kMaxLines = 8;  // about other ranks

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// The end of a log file, each line indented; only its last 64 KiB are looked at.
std::string tail(const std::string& path, int lines) {
  std::FILE* file = path.empty() || lines <= 0 ? nullptr : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return "";
  std::string text(65'536, '\0');
  std::fseek(file, 0, SEEK_END);
  const long size = std::ftell(file);
  std::fseek(file, std::max(0L, size - static_cast<long>(text.size())), SEEK_SET);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  std::deque<std::string> last;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    last.push_back("    " + std::string(rest.substr(0, end)) + "\n");
    if (last.size() > static_cast<size_t>(lines)) last.pop_front();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::string out;
  for (const std::string& line : last) out += line;
  return out;
}

// The ranks among the workers of which `pick` holds, as "rank 3" or "ranks 0, 2 and 3".
template <class Pick>
std::string ranks_where(const std::vector<Worker>& workers, Pick pick) {
  std::vector<int> ranks;
  for (const Worker& worker : workers) {
    if (pick(worker)) ranks.push_back(worker.rank);
  }
  if (ranks.empty()) return "";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() > 16) return fmt::format("{} ranks", ranks.size());
  std::string out = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) out += i + 1 == ranks.size() ? " and " : ", ";
    out += std::to_string(ranks[i]);
  }
  return out;
}

bool was_first(const std::pair<const Worker*, Story>& a, const std::pair<const Worker*, Story>& b) {
  return std::tuple(a.second.may_be_consequence, a.second.at_s) <
         std::tuple(b.second.may_be_consequence, b.second.at_s);
}

// How it reads that a signal has ended the job, passed on by the launcher or sent to a rank.
void tell_interruption(const std::vector<Worker>& workers, int passed_on, LaunchResult& result) {
  int signal = passed_on;
  for (const Worker& worker : workers) signal = signal != 0 ? signal : interrupted_by(worker);
  if (signal == 0) return;
  const std::string sent =
      passed_on != 0 ? "" : ranks_where(workers, [](const Worker& w) { return w.page->page().was_sent.load(); });
  const bool killed = std::ranges::any_of(workers, failed);
  result.interrupted = true;
  result.exit_code = 128 + signal;
  result.report =
      fmt::format("interrupted by SIG{}{}; {}\n", sigabbrev_np(signal), sent.empty() ? "" : ", sent to " + sent,
                  killed ? "the ranks were ended" : "all ranks ended cleanly");
  result.cause = first_line(result.report);
}

}  // namespace

LaunchResult outcome_of(const std::vector<Worker>& workers, int interrupted, int tail_lines) {
  std::vector<std::pair<const Worker*, Story>> failures;
  // A rank that a signal of somebody else's ends takes its time for that, and may be asked to end before it has.
  const auto ended_by_us = [&](const Worker& worker) {
    const bool by_ours = worker.signal == SIGTERM || (worker.signal == SIGKILL && worker.killed);
    const bool by_none = worker.signal == 0 && worker.said.empty();
    return (worker.asked && (by_ours || by_none)) || (interrupted != 0 && worker.signal == interrupted);
  };
  for (const Worker& worker : workers) {
    if (failed(worker) && !ended_by_us(worker)) failures.emplace_back(&worker, story_of(worker));
  }
  LaunchResult result;
  result.interrupted = interrupted != 0;
  result.killed_ranks =
      static_cast<int>(std::ranges::count_if(failures, [](const auto& f) { return f.first->signal != 0; }));
  if (failures.empty()) {
    tell_interruption(workers, interrupted, result);
    return result;
  }
  std::ranges::stable_sort(failures, was_first);
  const auto& [worker, story] = failures[0];
  result.exit_code = story.exit_code;
  result.failed_rank = worker->rank;
  result.may_be_consequence = story.may_be_consequence;
  result.cause = story.text;
  result.report = story.text + "\n";
  if (const std::string lines = tail(worker->log_path, tail_lines); !lines.empty()) {
    result.report += fmt::format("  the end of {}:\n{}", worker->log_path, lines);
  }
  for (size_t i = 1; i < std::min(failures.size(), kMaxLines + 1); ++i) {
    const auto& [other, later] = failures[i];
    const std::string who = fmt::format("rank {}: ", other->rank);
    const bool same = later.text.starts_with(who) &&
                      fmt::format("rank {}: ", worker->rank) + later.text.substr(who.size()) == story.text;
    result.report += fmt::format("  then {}\n", same ? who + "the same" : first_line(later.text));
  }
  if (failures.size() > kMaxLines + 1) {
    result.report += fmt::format("  then {} more ranks failed\n", failures.size() - kMaxLines - 1);
  }
  const std::string ended = ranks_where(workers, [&](const Worker& w) { return failed(w) && ended_by_us(w); });
  if (!ended.empty()) result.report += fmt::format("  the launcher ended {}\n", ended);
  return result;
}

}  // namespace trireme::launch
