// The metrics of a run as JSON lines, one object per logged step, for later reading by people and
// programs:
//   {"step":120,"loss":2.3141,"lr":0.0003,"grad_norm":1.02,"tokens_per_s":12345,"ms":81.2}
// A run of several ranks adds "comm_busy_ms" and "comm_exposed_ms", of rank 0 (exec/run/communication_time.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

struct RunRecord {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;  // NaN and infinities are written as null
};

struct RunLogOptions {
  // Keeps the lines of an earlier run up to and including this step, which the run resumes from,
  // and removes later ones: their steps will be done again. Negative: begins an empty file.
  int64_t resume_step = -1;
  double flush_s = 1;  // lines reach the file at the latest with the first one this long after the last flush
};

class RunLog {
 public:
  explicit RunLog(std::string path, const RunLogOptions& options = {});
  ~RunLog();  // flushes; an error here is logged
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void write(const RunRecord& record);
  void flush();  // kIo when the disk is full

 private:
  std::string path_;
  int file_ = -1;
  double flush_s_;
  double flushed_at_s_;
  std::string buffer_;
};

std::string json_line(const RunRecord& record);
// All whole lines of a log; null values are NaN. kCorrupt names the line that is no such object; a
// last line without an end, as a crash leaves it, is passed over.
std::vector<RunRecord> read_run_log(const std::string& path);

}  // namespace trireme
