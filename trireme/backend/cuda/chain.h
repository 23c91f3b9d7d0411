// Chains: several ops on elements, one after the other, in one kernel, which is written and compiled for them. Values
// between them stay in registers, rounded as they would be in memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/backend/cuda/stream.h"
#include "trireme/tensor/shape.h"

namespace trireme::cuda {

struct ChainStep {
  std::string code;  // as element_code.h has it
  std::vector<int> in, out;
  bool reads_coordinates = false;
};

// Values are numbered: the operands, then what the steps make, all of these in the shape of the chain. Operands are of
// that shape, or broadcast to it as numpy does.
struct Chain {
  Shape shape;
  std::vector<TensorType> values;
  size_t operands = 0;
  std::vector<ChainStep> steps;
  std::vector<int> results;
};

// The kernel's source; its name is `chain`. Chains that differ only in a shape in which no element's place counts have
// the same.
std::string source_of(const Chain& chain);

class BoundChain {
 public:
  BoundChain(Gpu& gpu, const Chain& chain);
  // Addresses of the operands, then of the results. A result may be written over an operand of its shape.
  void run(CudaStream& stream, std::span<const View> in, std::span<const View> out) const;

 private:
  Handle function_;
  int64_t elements_;
  int64_t most_blocks_;
};

}  // namespace trireme::cuda
