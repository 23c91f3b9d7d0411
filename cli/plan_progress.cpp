#include "cli/plan_progress.h"

#include <fmt/format.h>

namespace trireme::cli {

void PlanProgress::watch(PlanRequest& request) {
  if (!line_.shows()) return;
  request.on_way = on_way();
  request.on_exact = on_exact();
}

void PlanProgress::watch(AutoRequest& request) {
  if (!line_.shows()) return;
  request.on_way = on_way();
  request.on_exact = on_exact();
}

std::function<void(size_t number, size_t of)> PlanProgress::on_way() {
  return [this](size_t number, size_t of) { line_.show(fmt::format("compiling way {} of {}", number, of)); };
}

std::function<void(const ExactProgress&)> PlanProgress::on_exact() {
  return [this](const ExactProgress& progress) {
    if (line_.is_due()) line_.show(progress_text(progress));
  };
}

std::string progress_text(const ExactProgress& progress) {
  if (progress.is_nearest)
    return fmt::format("nothing fits; {} ways are left to find what would, {} jobs compiled", progress.open,
                       progress.jobs_compiled);
  return fmt::format("{} of {} ways are left, {} jobs of a block compiled, no way takes less than {:.3f} ms",
                     progress.open, progress.ways, progress.jobs_compiled,
                     static_cast<double>(progress.bound_ps) * 1e-9);
}

}  // namespace trireme::cli
