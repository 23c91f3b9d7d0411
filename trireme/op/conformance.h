// What must be true of every op, as checks that walk its examples. Each check returns what is wrong, one line per
// finding, and nothing for a sound op. Inputs are a function of the seed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/op/op_def.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::conformance {

// `infer` gives types that the kernel writes, and turns any wrong arity, rank or element type down
// with an error of the caller's, or accepts it with a rule and a cost.
std::vector<std::string> check_shapes(const OpDef& op, uint64_t seed);
// The gradient against central differences in f64 of a random linear functional of the results.
std::vector<std::string> check_gradient(const OpDef& op, uint64_t seed);
// For every cut of one factor or two by 2 and 3, and every linear set partial over 2 ranks: the
// reference kernel on the pieces, put together, gives what it gives on the whole.
std::vector<std::string> check_sharding(const OpDef& op, uint64_t seed);
// Never negative; bytes of all tensors; the pieces of a cut do no more work than the whole.
std::vector<std::string> check_cost(const OpDef& op, uint64_t seed);
// A node and its attributes print, parse and compare equal.
std::vector<std::string> check_text(const OpDef& op, uint64_t seed);
// The kernel writes every byte of its results and no other, and may overwrite what it says it may.
std::vector<std::string> check_memory(const OpDef& op, uint64_t seed);
// What ranks do together: the pieces that a call sends and joins make the result, and what each rank of an exchange
// sends is what the other awaits.
std::vector<std::string> check_collective(const OpDef& op, uint64_t seed);

struct Property {
  std::string_view name;
  std::vector<std::string> (*check)(const OpDef& op, uint64_t seed);
};
std::span<const Property> all_properties();

// A kernel of a backend against the reference on one example: equal within tolerance(), the same
// bits when run again with its state kept, nothing written outside its results.
std::vector<std::string> check_kernel(const OpDef& op, const Example& example, KernelFn* kernel, uint64_t seed);

// How far two ways of computing one element may lie apart: `reduction_length` terms of at most
// `magnitude` are accumulated in f32 (f64 for f64) and rounded to `dtype` a few times. Zero for
// integers.
double tolerance(DType dtype, int64_t reduction_length, double magnitude);

// -- the parts, for checks elsewhere
// --------------------------------------------------------------------------

HostTensor filled(const TensorType& type, const Fill& fill, uint64_t seed);
std::vector<HostTensor> operands_of(const Example& example, uint64_t seed);
std::vector<TensorType> results_of(const OpDef& op, const Example& example);
// "matmul(f32[4,6], f32[6,8]) {transpose_a=false, ...}"
std::string describe(const OpDef& op, const Example& example);
// Element `i` of a tensor of any type.
double element(const HostTensor& tensor, int64_t i);
// Largest |element| of floating tensors, 0 when there is none.
double magnitude(std::span<const HostTensor> tensors);
// Where the tensors differ by more than `allowed`, or in type: "" when they agree.
std::string difference(const HostTensor& got, const HostTensor& want, double allowed);

}  // namespace trireme::conformance
