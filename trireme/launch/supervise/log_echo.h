// Passes on what workers write to their logs, as they write it: whole lines, each prefixed with its rank.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "trireme/launch/supervise/launch_options.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {

class LogEcho {
 public:
  // Of the workers whose ranks are in `options.tail` and that write to a file.
  LogEcho(const LaunchOptions& options, const std::vector<Worker>& workers);
  ~LogEcho();  // passes on what is left
  LogEcho(const LogEcho&) = delete;
  LogEcho& operator=(const LogEcho&) = delete;
  void turn();

 private:
  struct Source {
    int rank = 0;
    std::FILE* file = nullptr;
    std::string line;  // begun
  };
  void pass(const Source& source, std::string_view line) const;

  std::function<void(std::string_view)> echo_;
  std::vector<Source> sources_;
};

}  // namespace trireme::launch
