// The progress of a run for whoever watches it: on a terminal one line that is redrawn, elsewhere (a log file) a new
// line from time to time. Only rank 0 shows it.
#pragma once

#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>

namespace trireme {

struct ProgressState {
  int64_t step = 0;   // done so far, counted from the start of the run, also when it was resumed
  int64_t total = 0;  // 0: not known
  // NaN: not known, and not shown.
  double loss = std::numeric_limits<double>::quiet_NaN();
  double val_loss = std::numeric_limits<double>::quiet_NaN();
  double units_per_s = std::numeric_limits<double>::quiet_NaN();
  double ms_per_step = std::numeric_limits<double>::quiet_NaN();
  double eta_s = std::numeric_limits<double>::quiet_NaN();
  std::string_view unit = "tokens";
};

struct ProgressStyle {
  bool unicode = false;  // block characters in eighths instead of '='
  bool color = false;
};

// The line without its end, at most `width` columns: what matters least is left out first when room is
// short.
std::string render(const ProgressState& state, int width, const ProgressStyle& style = {});
// The line for a log file, whole.
std::string render_plain(const ProgressState& state);
// Whether a log file gets a line now: at the first and last step, every 5 percent, and after 10
// seconds.
bool plain_line_due(const ProgressState& last, const ProgressState& now, double seconds_since_last);

// "12.3k", "1.25M": at most four characters before the unit letter.
std::string compact_number(double value);

class Progress {
 public:
  struct Options {
    bool shown = true;  // false on ranks other than 0 and with --quiet
    int fd = 2;         // standard error
  };
  explicit Progress(const Options& options);
  ~Progress();  // ends the line, so that what follows begins on a new one
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Cheap when nothing is to be drawn: a terminal gets ten updates a second.
  void update(const ProgressState& state);
  // Draws the last state, whatever the time, and ends the line.
  void finish();

 private:
  void draw();  // with mutex_ held
  void write_out(std::string_view text) const;

  std::mutex mutex_;  // log lines come from any thread, and draw too
  bool shown_;
  int fd_;
  bool terminal_;
  ProgressStyle style_;
  ProgressState state_;
  ProgressState drawn_;
  double drawn_at_s_ = 0;
  bool any_drawn_ = false;
  bool line_open_ = false;  // the terminal's cursor stands after the bar
};

}  // namespace trireme
