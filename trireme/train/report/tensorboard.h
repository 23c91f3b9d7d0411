// Scalars in TensorBoard's event file format: a TFRecord file (lengths and masked CRC32C around
// each record) of protobuf Event messages, encoded by hand because three fields do not need a
// library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

class TensorboardWriter {
 public:
  // Makes the directory and in it a new file "events.out.tfevents.<seconds>.<host>.<pid>", which
  // TensorBoard reads together with those of earlier runs there.
  // A reader drops what earlier files have of `first_step` and later ones: a run that goes on does these steps again.
  explicit TensorboardWriter(const std::string& directory, int64_t first_step = 0);
  ~TensorboardWriter();  // flushes; an error here is logged
  TensorboardWriter(const TensorboardWriter&) = delete;
  TensorboardWriter& operator=(const TensorboardWriter&) = delete;

  void scalar(std::string_view tag, double value, int64_t step);
  void flush();  // also happens by itself every two seconds of writing
  const std::string& path() const { return path_; }

 private:
  void record(std::string_view bytes);

  std::string path_;
  int file_ = -1;
  std::string buffer_;
  double flushed_at_s_ = 0;
};

// The encoding, for its tests.
std::string event_bytes(double wall_time_s, int64_t step, std::string_view tag, float value);
std::string version_event_bytes(double wall_time_s);
std::string session_start_event_bytes(double wall_time_s, int64_t first_step);
std::string tfrecord(std::string_view data);

}  // namespace trireme
