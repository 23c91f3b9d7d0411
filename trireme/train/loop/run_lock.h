// One job at a time writes to a run's folder: its rank 0 holds a lock there (flock(2) on the file job.lock), which the
// kernel releases when the process ends, however it ends. On a disk that several hosts mount, the
// file system decides which of them see the lock: NFS shows it to all its clients, and releases that of a dead host
// some time later; a file system without locks causes a warning.
#pragma once

#include <string>

namespace trireme {

class RunLock {
 public:
  // Makes the folder, and locks it. kInvalidArgument, naming the other job, when one has it. `command`: for who comes
  // second.
  RunLock(const std::string& folder, const std::string& command);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;

  // Refuses as the constructor does, and leaves the folder as it is: for who starts what will lock it.
  static void check(const std::string& folder);
  // What who has the lock wrote there, as this process sees the folder; "": nothing.
  static std::string text_in(const std::string& folder);

 private:
  int file_ = -1;
};

}  // namespace trireme
