// GroupBase: what the groups of every transport share: the checks of the arguments, the order of
// collectives, the names for errors, the count of traffic. How bytes move is in the classes derived
// from it.
#pragma once

#include "trireme/comm/engine/engine.h"

namespace trireme::comm {

class GroupBase : public Group {
 public:
  struct Members {
    std::string name;
    std::vector<int> world_ranks;
    int rank = 0;     // of this rank in the group
    int channel = 0;  // that World::group was asked for
  };
  GroupBase(Engine& engine, Members members) : engine_(engine), members_(std::move(members)) {}

  int rank() const override { return members_.rank; }
  int size() const override { return static_cast<int>(members_.world_ranks.size()); }
  const std::string& name() const override { return members_.name; }
  const std::vector<int>& world_ranks() const override { return members_.world_ranks; }

  Work all_reduce(View inout, Reduce op) override;
  Work all_gather(View in, View out) override;
  Work reduce_scatter(View in, View out, Reduce op) override;
  Work all_to_all(View in, View out) override;
  Work ring_shift(View in, View out, int by) override;
  Work broadcast(View inout, int root) override;
  Work send(View from, int peer, int tag) override;
  Work recv(View to, int peer, int tag) override;
  Work barrier() override;

  // Frees what the transport holds for it; nothing is started on it any more.
  virtual void close() = 0;

 protected:
  virtual Task run_all_reduce(Operation& operation, View inout, Reduce op) = 0;
  virtual Task run_all_gather(Operation& operation, View in, View out) = 0;
  virtual Task run_reduce_scatter(Operation& operation, View in, View out, Reduce op) = 0;
  virtual Task run_all_to_all(Operation& operation, View in, View out) = 0;
  // `by` is in 1 .. size() - 1.
  virtual Task run_ring_shift(Operation& operation, View in, View out, int by) = 0;
  virtual Task run_broadcast(Operation& operation, View inout, int root) = 0;
  virtual Task run_barrier(Operation& operation) = 0;
  virtual Task run_message(Operation& operation, View view, bool is_send) = 0;

  Engine& engine() const { return engine_; }
  int world_rank(int member) const { return members_.world_ranks[static_cast<size_t>(member)]; }

 private:
  std::shared_ptr<Operation> operation(std::string_view kind, const View* view);
  Work message(std::string_view kind, View view, int peer, int tag);
  void check_whole_and_piece(std::string_view kind, const View& whole, const View& piece, std::string_view whole_name,
                             std::string_view piece_name) const;
  void check_reducible(std::string_view kind, DType dtype) const;

  Engine& engine_;
  Members members_;
  Turns turns_;
};

// Where the i-th of `size` nearly equal slices of `count` elements begins; it ends where the next
// one, up to i = size, begins.
int64_t slice_begin(int64_t count, int size, int i);

}  // namespace trireme::comm
