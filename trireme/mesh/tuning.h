// Tuning: which of several ways to do the same work is the fastest on a machine, as measured there. Plans follow it,
// and name what was chosen, because the ways differ in the last bits of their results. This is the data, as text and as
// a file; the device measures (backend/device.h).
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace trireme {

struct Tuning {
  std::string machine;  // that it was measured on: its CPU, and what kernels use of it
  // By what the times depend on, "f32:4096x768x256:nt": the way that takes the least, "blocks". Where several threads
  // of the host did the work at a time, their number stands behind it: "f32:4096x768x256:nt@2".
  std::map<std::string, std::string, std::less<>> ways;
  // Threads that compute at a time on a host, of all its ranks, in the job that goes by this. Not in the text: a file
  // has the ways for any number of them.
  int busy = 1;

  // As `busy` threads do the work; null: nobody has measured it.
  const std::string* way_of(std::string_view work) const;
};
// The work as `ways` has it.
std::string work_among(std::string_view work, int busy);

// A line with the version, one with the machine, and one for each way.
std::string to_string(const Tuning& tuning);
// Throws kInvalidArgument, with the line's number, for what to_string does not write.
Tuning parse_tuning(std::string_view text);

// Where tunings of a machine are kept, unless a file is named: in XDG_CACHE_HOME, else in ~/.cache; "" with neither.
std::string usual_tuning_file(std::string_view machine);

// What the file has for the machine; nothing where there is no file. Throws kCorrupt for one that does not hold a
// tuning, and kInvalidArgument for one of another machine.
Tuning read_tuning(const std::string& path, const std::string& machine);
// Adds ways to the file and returns all that it has then. What another process has put there in the meantime stays. A
// file that read_tuning refuses is replaced. Throws kIo.
Tuning add_to_tuning(const std::string& path, const Tuning& found);

}  // namespace trireme
