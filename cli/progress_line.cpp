#include "cli/progress_line.h"

#include <unistd.h>

#include <cstdio>

namespace trireme::cli {

ProgressLine::ProgressLine() : shows_(::isatty(STDERR_FILENO) == 1) {}

bool ProgressLine::is_due() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return false;
  next_ = now + std::chrono::milliseconds(100);
  return true;
}

void ProgressLine::show(const std::string& line) {
  if (!shows_) return;
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  is_drawn_ = true;
}

void ProgressLine::clear() {
  if (is_drawn_) std::fprintf(stderr, "\r\033[K");
  is_drawn_ = false;
}

}  // namespace trireme::cli
