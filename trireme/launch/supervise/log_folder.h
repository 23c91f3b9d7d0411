// The folder of the ranks' logs; a temporary one is removed unless it is kept.
#pragma once

#include <string>

namespace trireme::launch {

class LogFolder {
 public:
  // `wanted` is made with its parents; empty: a temporary one.
  explicit LogFolder(const std::string& wanted);
  ~LogFolder();
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  void keep() { temporary_ = false; }
  // worker_<rank>.log in it; with a number after it when the job was started before, so that what was written stays.
  std::string file(int rank, int attempt = 0) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool temporary_;
};

}  // namespace trireme::launch
