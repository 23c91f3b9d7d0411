// Runs the real program `trireme` as a child process, with a time limit, and says how it ended.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace trireme::cli {

struct Outcome {
  int code = -1;  // exit code, or 128 and the signal
  bool out_of_time = false;
  std::string out;
  std::string err;
};

// A folder of its own, gone with the test; commands run in it.
class CliTest : public testing::Test {
 protected:
  CliTest();
  ~CliTest() override;

  using Words = std::vector<std::string>;
  Outcome run(const Words& words, const Words& environment = {});
  // A shell's script, in which TRIREME_PROGRAM is to be given by its path.
  Outcome run_shell(const std::string& script, const Words& environment = {});
  // In two halves, for what happens in between.
  void start(const Words& words, const Words& environment = {});
  void start_program(const Words& command, const Words& environment = {});
  int pid() const { return pid_; }
  Outcome wait();
  // Waits until `holds`, or until the program has ended or its time is over: then false.
  bool wait_until(const std::function<bool()>& holds);
  // Waits until `holds`, for a minute at most.
  static bool soon(const std::function<bool()>& holds);
  // Several at once: a name for each.
  struct Program {
    std::string name;
    int pid = -1;
  };
  // `enter` is called by the new process before the program begins there; false ends it.
  using Enter = std::function<bool()>;
  Program begin(const std::string& name, const Words& words, const Words& environment = {},
                const Enter& enter = {}) const;
  Outcome finish(Program& program) const;
  std::string out_of(const Program& program) const { return read(io_ + "/" + program.name + ".out"); }
  std::string err_of(const Program& program) const { return read(io_ + "/" + program.name + ".err"); }
  static bool is_running(const Program& program);

  std::string out_so_far() const { return read(io_ + "/out"); }
  std::string err_so_far() const { return read(io_ + "/err"); }

  std::string path(const std::string& name) const { return dir_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const;
  static std::string read(const std::string& path);
  // Processes that the commands of this test started and that are still there.
  std::vector<int> left_over() const;
  // The child processes of the running program.
  std::vector<int> workers() const;

  // A GPT of a few thousand parameters, and the text it reads.
  void write_gpt(const std::string& extra_train = "") const;
  void write_mlp() const;

  std::string dir_;

 private:
  int spawn(Words command, const Words& environment, const std::string& out, const std::string& err,
            const Enter& enter = {}) const;
  Outcome reap(int pid, const std::string& out, const std::string& err) const;

  std::string io_;
  std::string temporary_;
  int pid_ = -1;
};

// Of the job of write_gpt.
class GptTest : public CliTest {
 protected:
  // Without a sample of text at its end.
  Outcome train(const std::string& out, const Words& more = {});
  void expect_trains(const std::string& out, const Words& more = {});
};

// The one line that says what is wrong, or what there is instead of one.
std::string error_line(const Outcome& outcome);
// The number after "key": in a line of JSON; fails the test when there is none.
double number_in(const std::string& json, const std::string& key);

}  // namespace trireme::cli
