#include "trireme/mesh/tuning.h"

#include <unistd.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/hash.h"

namespace trireme {
namespace {

constexpr std::string_view kHeader = "trireme tuning 1";
constexpr size_t kMostBytes = 4 << 20, kMostLine = 512;

bool is_tuning_word(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("_:+.-@").find(c) != std::string_view::npos;
  });
}

// Of a machine: printable, and nothing around it that could get lost.
bool is_machine_name(std::string_view text) {
  return !text.empty() && text.front() != ' ' && text.back() != ' ' &&
         std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

class TuningReader {
 public:
  explicit TuningReader(std::string_view text) : rest_(text) {
    require(text.size() <= kMostBytes, "a tuning of {} bytes; it has at most {}", text.size(), kMostBytes);
  }

  Tuning read() {
    next();
    require(line_ == kHeader, "line 1 of a tuning is '{}'; it must be '{}'", shown(), kHeader);
    next();
    require(line_.starts_with("machine "), "line 2 of a tuning is '{}'; it must be 'machine NAME'", shown());
    Tuning out{.machine = std::string(line_.substr(8)), .ways = {}};
    require(is_machine_name(out.machine), "line 2 of a tuning names the machine '{}'; a name is printable", shown());
    while (next()) add_way(out);
    return out;
  }

 private:
  bool next() {
    line_ = "";
    if (rest_.empty()) return false;
    ++number_;
    const size_t end = rest_.find('\n');
    require(end != std::string_view::npos && end <= kMostLine,
            "line {} of a tuning does not end within {} bytes; the file may have been cut off", number_, kMostLine);
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }

  void add_way(Tuning& out) const {
    const size_t space = std::min(line_.find(' ', 4), line_.size());
    const std::string_view work = line_.substr(std::min<size_t>(4, line_.size()), space - std::min<size_t>(4, space));
    const std::string_view way = line_.substr(std::min(space + 1, line_.size()));
    require(line_.starts_with("way ") && is_tuning_word(work) && is_tuning_word(way),
            "line {} of a tuning is '{}'; it must be 'way WORK NAME'", number_, shown());
    require(out.ways.empty() || out.ways.rbegin()->first < work,
            "line {} of a tuning is for '{}', which does not come after '{}'; each work stands once, in order", number_,
            work, out.ways.empty() ? "" : out.ways.rbegin()->first);
    out.ways.emplace(work, way);
  }

  std::string_view shown() const { return line_.substr(0, 80); }

  std::string_view rest_, line_;
  int number_ = 0;
};

}  // namespace

std::string work_among(std::string_view work, int busy) {
  return busy > 1 ? fmt::format("{}@{}", work, busy) : std::string(work);
}

const std::string* Tuning::way_of(std::string_view work) const {
  const auto found = busy > 1 ? ways.find(work_among(work, busy)) : ways.find(work);
  return found == ways.end() ? nullptr : &found->second;
}

std::string to_string(const Tuning& tuning) {
  std::string out = fmt::format("{}\nmachine {}\n", kHeader, tuning.machine);
  for (const auto& [work, way] : tuning.ways) out += fmt::format("way {} {}\n", work, way);
  return out;
}

Tuning parse_tuning(std::string_view text) {
  return TuningReader(text).read();
}

std::string usual_tuning_file(std::string_view machine) {
  const auto cache = flag_text("XDG_CACHE_HOME");
  const auto home = flag_text("HOME");
  if (!cache && !home) return "";
  const std::string folder = join_path(cache ? *cache : join_path(*home, ".cache"), "trireme");
  return join_path(folder, fmt::format("tuning_{:016x}", hash64(machine)));
}

Tuning read_tuning(const std::string& path, const std::string& machine) {
  if (!is_file(path)) return {machine, {}};
  const std::string text = read_file(path);
  Tuning out;
  try {
    out = parse_tuning(text);
  } catch (const Error& e) {
    fail(ErrorKind::kCorrupt, "{}: {}; remove it, and it is measured again", path, e.text());
  }
  require(out.machine == machine, "{} is the tuning of '{}', and this is '{}'; name another file", path, out.machine,
          machine);
  return out;
}

Tuning add_to_tuning(const std::string& path, const Tuning& found) {
  Tuning all{found.machine, {}};
  try {
    all = read_tuning(path, found.machine);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::kIo) throw;
  }
  all.ways.insert(found.ways.begin(), found.ways.end());
  disk().make_directory(parent_path(path));
  // Under a name of this process's own first, since several may write at a time.
  const std::string own = fmt::format("{}.{}", path, ::getpid());
  atomic_write(own, to_string(all));
  disk().rename(own, path);
  return all;
}

}  // namespace trireme
