// Executor: runs an execution plan on one rank. Everything is looked up and bound when it is made; a step
// allocates nothing, looks nothing up and decides nothing.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/exec/run/communication_time.h"
#include "trireme/layout/box.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {

class Device;  // backend/device.h
class Executor;

struct ExecutorOptions {
  comm::World* world = nullptr;  // null: one rank
  ThreadPool* pool = nullptr;    // null: computes on the calling thread
  Device* device = nullptr;      // that the plan was made for; null: cpu. Outlives the executor.
  // Bytes to run in; none: the executor takes its own, as those of all other ranks do. At least the arena's of the
  // plan, and not shared by two executors that run at the same time. (A validation plan runs in the step's transient
  // part, which is free between steps.)
  std::optional<std::span<std::byte>> arena = {};
  std::optional<std::span<std::byte>> host_arena = {};  // the same of the tier 'host'
  std::string disk;  // directory of the file that is the tier 'disk'; "": the system's for temporary files
  // Gives the memory of a parameter or state by its name, for plans with external_parameters. What is the host's is
  // copied, once, for a device that works elsewhere.
  std::function<View(std::string_view)> external = {};
  // Whose parameters they are, where some lie on the disk: their file is read. Outlives the executor.
  const Executor* beside = nullptr;
};

// Where the time of the steps went, summed since the last reset.
struct ActionTime {
  std::string_view op;
  std::string_view scope;
  Lane lane = Lane::kCompute;
  double seconds = 0;  // compute: of the kernel; communication: of the calling thread, starting and waiting
};

// When an action of a step ran: one of compute from its begin to its end, one in the background from its start to its
// end. Or when the calling thread waited for an action in the background.
struct ActionTrace {
  int action = 0;
  bool is_wait = false;
  std::chrono::steady_clock::time_point begin, end;
};

// A local piece as the host reads it: the executor's bytes themselves, until the next step, where the host can touch
// them, otherwise a copy.
struct HostPiece {
  View view;
  HostTensor copy = {};

  template <class T>
  std::span<const T> as() const {
    return view.as<T>();
  }
};

class Executor {
 public:
  // Collective over the mesh's ranks when the plan has communication. The plan must outlive the executor.
  Executor(const ExecutionPlan& plan, const ExecutorOptions& options);
  ~Executor();

  // How its collectives were bound to their groups. What actions of one call share is looked up once.
  struct Binding {
    int64_t collectives = 0;
    int64_t lookups = 0;  // of groups
    double seconds = 0;   // of all actions
  };
  const Binding& binding() const;

  // One step. Data and schedule inputs must be filled before each: their bytes are reused after their last reader.
  // Errors carry the op and its scope. Ops on the host that nobody waits for may go on after it, under the next step
  // (step_border.h); whoever reads or writes an input or output that they use waits for them.
  void run();
  void settle() const;  // waits for all that the last step has left under way

  const ExecutionPlan& plan() const;
  std::span<std::byte> arena(Tier tier = Tier::kDevice) const;  // not the disk's
  std::string disk() const;  // what lies on the disk, where and how it is reached, in words; "": nothing does
  // Of a crew's plan: a crew has the inputs that its stages read.
  bool has_input(std::string_view name) const;
  // Between the host and the local pieces, between steps. Pieces are dense and row-major, of the plan's types; throw
  // kInvalidArgument for others.
  void write_input(std::string_view name, const View& from);
  HostPiece read_input(std::string_view name) const;
  HostPiece read_output(std::string_view name) const;
  // As read_input, for one after the other: what the host must copy is copied to where the step works, which nobody
  // does between steps, if it has room. The piece stays until the next one is borrowed, filled or a step runs.
  HostPiece borrow_input(std::string_view name) const;
  // Lets `fill` write all bytes of these inputs, given in their order: in place where the host can touch them,
  // otherwise in memory of the host that is copied when `fill` returns.
  void fill_inputs(std::span<const std::string> names, const std::function<void(std::span<const View>)>& fill);
  // Of one number each.
  template <class T>
  void write_number(std::string_view input, T value) {
    write_input(input, {reinterpret_cast<std::byte*>(&value), {dtype_of<T>, {}}});
  }
  template <class T>
  T read_number(std::string_view output) const {
    return read_output(output).as<T>()[0];
  }

  // Where the local piece of an input or output is, and which box of the whole tensor it has.
  View input(std::string_view name) const;
  View output(std::string_view name) const;
  Box input_box(std::string_view name) const;
  Box output_box(std::string_view name) const;

  // Of the last step; zero on a rank that sends nothing. Always measured: five clock reads an operation.
  CommunicationTime communication() const;

  // Times each action from now on (two clock reads an action). With `worked`, how long the calling thread works: what
  // else the machine does counts less then.
  void set_timing(bool on, bool worked = false);
  std::vector<ActionTime> times() const;

  // Notes from now on when each action of a step runs. Room for a step is made here, so that a step makes none.
  void set_tracing(bool on);
  std::span<const ActionTrace> trace() const;  // of the last step, in the order of their ends on the calling thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
