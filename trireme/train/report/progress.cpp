#include "trireme/train/report/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"

namespace trireme {

namespace {

constexpr double kRedrawS = 0.1;
constexpr double kPlainS = 10;
constexpr int kMinBar = 8;
constexpr int kMaxBar = 40;
constexpr int kBarWorth = 5;  // compared with the parts' below

bool known(double value) {
  return !std::isnan(value);
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return loss > 0 ? "inf" : "-inf";
  return std::abs(loss) < 1e5 ? fmt::format("{:.4f}", loss) : fmt::format("{:.3e}", loss);
}

double fraction(const ProgressState& s) {
  if (s.total <= 0) return 0;
  return std::clamp(static_cast<double>(s.step) / static_cast<double>(s.total), 0.0, 1.0);
}

// Never 100 before the last step.
int percent(const ProgressState& s) {
  return static_cast<int>(std::floor(100 * fraction(s) + 1e-9));
}

std::string bar(const ProgressState& s, int width, const ProgressStyle& style) {
  if (!style.unicode) {
    const int full = static_cast<int>(fraction(s) * width);
    std::string out(static_cast<size_t>(full), '=');
    if (full < width) out += '>';
    out.resize(static_cast<size_t>(width), ' ');
    return "[" + out + "]";
  }
  static constexpr std::string_view kEighths[] = {"",       "\u258f", "\u258e", "\u258d",
                                                  "\u258c", "\u258b", "\u258a", "\u2589"};
  const int eighths = static_cast<int>(fraction(s) * width * 8);
  std::string out;
  for (int i = 0; i < eighths / 8; ++i) out += "\u2588";
  out += kEighths[eighths % 8];
  for (int i = (eighths + 7) / 8; i < width; ++i) out += ' ';
  if (style.color) out = "\x1b[36m" + out + "\x1b[0m";
  return "\u2502" + out + "\u2502";
}

struct Part {
  std::string text;
  int worth;  // higher stays longer
};

std::vector<Part> parts_of(const ProgressState& s) {
  std::vector<Part> parts;
  parts.push_back({s.total > 0 ? fmt::format("{}/{}", s.step, s.total) : fmt::format("step {}", s.step), 9});
  if (known(s.loss)) parts.push_back({"loss " + loss_text(s.loss), 8});
  if (known(s.val_loss)) parts.push_back({"val " + loss_text(s.val_loss), 6});
  if (known(s.units_per_s)) {
    parts.push_back({fmt::format("{} {}/s", compact_number(s.units_per_s), s.unit), 5});
  }
  if (known(s.ms_per_step)) parts.push_back({fmt::format("{:.1f} ms/step", s.ms_per_step), 4});
  if (known(s.eta_s)) {
    const bool over = s.total > 0 && s.step >= s.total;
    parts.push_back({over ? "done" : "ETA " + duration_text(s.eta_s), 7});
  }
  return parts;
}

std::string joined(const std::vector<Part>& parts) {
  std::string out;
  for (const Part& part : parts) out += (out.empty() ? "" : "  ") + part.text;
  return out;
}

bool speaks_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (const auto text = flag_text(name)) {
      return text->find("UTF-8") != std::string::npos || text->find("utf8") != std::string::npos;
    }
  }
  return false;
}

int terminal_width(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string compact_number(double value) {
  if (!std::isfinite(value)) return "?";
  static constexpr std::string_view kUnits[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const double size = std::abs(value);
  const int digits = unit == 0 && size == std::floor(size) ? 0 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", value, digits, kUnits[unit]);
}

std::string render(const ProgressState& state, int width, const ProgressStyle& style) {
  std::vector<Part> parts = parts_of(state);
  std::string head = state.total > 0 ? fmt::format("{:3}%", percent(state)) : "";
  const auto room = [&] { return width - static_cast<int>(joined(parts).size()); };
  // The bar takes what is left: a space on each side, its two ends and the percentage.
  const int frame = static_cast<int>(head.size()) + 5;
  if (!head.empty() && room() < frame + kMinBar) {
    std::erase_if(parts, [](const Part& part) { return part.worth < kBarWorth; });
  }
  while (parts.size() > 1 && room() < 0) {
    parts.erase(std::ranges::min_element(parts, {}, &Part::worth));
  }
  std::string line = joined(parts);
  if (!head.empty() && room() >= frame + kMinBar) {
    line = head + " " + bar(state, std::min(room() - frame, kMaxBar), style) + "  " + line;
  } else if (!head.empty() && room() >= 6) {
    line = head + "  " + line;
  }
  // What remains too long is the step count alone.
  if (static_cast<int>(joined(parts).size()) > width) line.resize(static_cast<size_t>(std::max(width, 0)));
  return line;
}

std::string render_plain(const ProgressState& state) {
  std::vector<Part> parts = parts_of(state);
  if (state.total > 0) {
    parts[0].text = fmt::format("step {}  {}%", parts[0].text, percent(state));
  }
  return joined(parts);
}

bool plain_line_due(const ProgressState& last, const ProgressState& now, double seconds_since_last) {
  if (now.step == last.step) return false;
  if (now.total > 0 && (now.step >= now.total || percent(now) / 5 != percent(last) / 5)) return true;
  return seconds_since_last >= kPlainS;
}

Progress::Progress(const Options& options)
    : shown_(options.shown), fd_(options.fd), terminal_(options.shown && isatty(options.fd) == 1) {
  if (flag_text("TERM").value_or("") == "dumb") terminal_ = false;
  style_ = {.unicode = speaks_utf8(), .color = !flag_text("NO_COLOR")};
  if (!terminal_) return;
  // Lines of the log go above the bar, which is then drawn again.
  set_log_sink([this](std::string_view line) {
    const std::lock_guard lock(mutex_);
    write_out(fmt::format("{}{}\n", line_open_ ? "\r\x1b[K" : "", line));
    if (line_open_) draw();
  });
}

Progress::~Progress() {
  if (terminal_) set_log_sink({});
  if (line_open_) write_out("\n");
}

void Progress::update(const ProgressState& state) {
  if (!shown_) return;
  const std::lock_guard lock(mutex_);
  state_ = state;
  const double now = now_s();
  const double since = now - drawn_at_s_;
  const bool due = !any_drawn_ || (terminal_ ? since >= kRedrawS : plain_line_due(drawn_, state, since));
  if (due) draw();
}

void Progress::finish() {
  const std::lock_guard lock(mutex_);
  if (!shown_ || !any_drawn_) return;
  if (terminal_ || drawn_.step != state_.step) draw();
  if (line_open_) write_out("\n");
  line_open_ = false;
}

void Progress::draw() {
  if (terminal_) {
    // One column less: a character in the last one makes some terminals wrap.
    write_out("\r" + render(state_, terminal_width(fd_) - 1, style_) + "\x1b[K");
    line_open_ = true;
  } else {
    write_out(render_plain(state_) + "\n");
  }
  drawn_ = state_;
  drawn_at_s_ = now_s();
  any_drawn_ = true;
}

void Progress::write_out(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = write(fd_, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody watches any more, which must not end the run
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace trireme
