#include "trireme/launch/supervise/log_echo.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::launch {

LogEcho::LogEcho(const LaunchOptions& options, const std::vector<Worker>& workers) : echo_(options.echo) {
  for (const Worker& worker : workers) {
    const bool wanted = std::ranges::find(options.tail, worker.rank) != options.tail.end();
    if (!wanted || !echo_ || worker.log_path.empty()) continue;
    if (std::FILE* file = std::fopen(worker.log_path.c_str(), "re")) sources_.push_back({worker.rank, file, {}});
  }
}

LogEcho::~LogEcho() {
  turn();
  for (Source& source : sources_) {
    if (!source.line.empty()) pass(source, source.line);
    std::fclose(source.file);
  }
}

void LogEcho::turn() {
  char bytes[4096];
  for (Source& source : sources_) {
    std::clearerr(source.file);
    while (const size_t got = std::fread(bytes, 1, sizeof bytes, source.file)) {
      source.line.append(bytes, got);
      for (size_t end; (end = source.line.find('\n')) != std::string::npos;) {
        pass(source, std::string_view(source.line).substr(0, end));
        source.line.erase(0, end + 1);
      }
    }
  }
}

void LogEcho::pass(const Source& source, std::string_view line) const {
  echo_(fmt::format("[{}] {}\n", source.rank, line));
}

}  // namespace trireme::launch
