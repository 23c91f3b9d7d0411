#include "trireme/launch/rank/process_state.h"

#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"

namespace trireme::launch {
namespace {

// State and CPU time from the text of a stat file, whose second word is a name in brackets.
bool parse_stat(const std::string& text, char& state, double& cpu_s) {
  const size_t name_end = text.rfind(')');
  unsigned long user = 0;
  unsigned long kernel = 0;
  if (name_end == std::string::npos ||
      std::sscanf(text.c_str() + name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &state, &user,
                  &kernel) != 3) {
    return false;
  }
  cpu_s = static_cast<double>(user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return true;
}

std::vector<std::string> thread_names(int pid) {
  std::vector<std::string> out;
  DIR* const folder = opendir(fmt::format("/proc/{}/task", pid).c_str());
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  }
  closedir(folder);
  return out;
}

}  // namespace

std::string proc_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string out;
  std::array<char, 4096> part{};  // by `read`, which does not throw where the process ends meanwhile
  while (file.read(part.data(), part.size()) || file.gcount() > 0)
    out.append(part.data(), static_cast<size_t>(file.gcount()));
  return out;
}

ProcessState state_of(int pid) {
  ProcessState out;
  bool any_ready = false;
  bool any_on_disk = false;
  for (const std::string& thread : thread_names(pid)) {
    const std::string text = proc_text(fmt::format("/proc/{}/task/{}/stat", pid, thread));
    if (text.find(fmt::format("({})", comm::kProgressThread)) != std::string::npos) continue;
    char state = '?';
    double cpu_s = 0;
    if (!parse_stat(text, state, cpu_s)) continue;
    out.known = true;
    out.cpu_s += cpu_s;
    any_ready = any_ready || state == 'R';
    any_on_disk = any_on_disk || state == 'D';
    if (thread == std::to_string(pid)) out.state = state;
  }
  if (any_on_disk) out.state = 'D';
  if (any_ready) out.state = 'R';
  return out;
}

}  // namespace trireme::launch
