// How a rank's part of a batch is divided into micro-batches, and its positions into chunks.
#pragma once

#include "trireme/ir/graph.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/propagate/asks.h"

namespace trireme {

class BatchInParts {
 public:
  // By the mesh with micro-batches; that of the ranks is the same without them. All outlive it.
  BatchInParts(const Graph& graph, const Parallel& parallel, const Mesh& all)
      : graph_(graph), parallel_(parallel), all_(all) {}

  // Divides the data inputs of which a layout is asked, which is in the ranks' axes. Where ranks share samples with
  // those of other ranks (Asks::within_micro_batches) they are read so that a micro-batch is the samples that lie side
  // by side; they are given to ranks as before. Throws kInvalidArgument where samples or positions do not divide.
  void ask(Asks& asks) const;

 private:
  void check_samples(const Input& input, const Layout& layout) const;
  void cut_in_chunks(const Input& input, const Axes& chunks, Layout& layout) const;
  std::string fewer_micro_batches(int64_t samples, int64_t count) const;

  const Graph& graph_;
  const Parallel& parallel_;
  const Mesh& all_;
};

}  // namespace trireme
