// How far a command is: on a terminal a line that is redrawn, elsewhere nothing.
#pragma once

#include <chrono>
#include <string>

namespace trireme::cli {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool shows() const { return shows_; }  // false: standard error is no terminal
  // Whether a tenth of a second has passed since it last was, for work whose steps are short.
  bool is_due();
  void show(const std::string& line);
  // The terminal's line is free again.
  void clear();

 private:
  bool shows_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace trireme::cli
