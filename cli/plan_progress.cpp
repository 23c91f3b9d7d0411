#include "cli/plan_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace trireme::cli {

PlanProgress::PlanProgress() : shows_(::isatty(STDERR_FILENO) == 1) {}

void PlanProgress::watch(PlanRequest& request) {
  if (!shows_) return;
  request.on_way = [this](size_t number, size_t of) { show(fmt::format("compiling way {} of {}", number, of)); };
  request.on_exact = [this](const ExactProgress& progress) {
    if (is_due()) show(progress_text(progress));
  };
}

void PlanProgress::clear() {
  if (is_drawn_) std::fprintf(stderr, "\r\033[K");
  is_drawn_ = false;
}

void PlanProgress::show(const std::string& line) {
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  is_drawn_ = true;
}

// Ten times a second: most questions take microseconds.
bool PlanProgress::is_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + std::chrono::milliseconds(100);
  return true;
}

std::string progress_text(const ExactProgress& progress) {
  return fmt::format("{} of {} ways are left, {} jobs of a block compiled, no way takes less than {:.3f} ms",
                     progress.open, progress.ways, progress.jobs_compiled,
                     static_cast<double>(progress.bound_ps) * 1e-9);
}

}  // namespace trireme::cli
