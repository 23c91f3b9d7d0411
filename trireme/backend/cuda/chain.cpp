#include "trireme/backend/cuda/chain.h"

#include "trireme/backend/cuda/element_code.h"
#include "trireme/backend/cuda/kernels.h"
#include "trireme/base/error.h"

namespace trireme::cuda {
namespace {

constexpr int kChainThreads = 256;
constexpr int64_t kIndexedBy32 = int64_t{1} << 31;

enum class Read { kOnce, kInOrder, kByCoordinates };

Read read_of(const TensorType& operand, const Shape& shape) {
  if (operand.elements() == 1) return Read::kOnce;
  return operand.elements() == shape.elements() ? Read::kInOrder : Read::kByCoordinates;
}

// "i0 * 6 + i2": the operand's element for coordinates of the shape. Its dimensions are the last of the shape's; those
// of size 1 are repeated.
std::string offset_text(const Shape& operand, const Shape& shape) {
  const auto strides = operand.strides();
  const int missing = shape.rank() - operand.rank();
  std::string out = "0";
  for (int dim = missing; dim < shape.rank(); ++dim) {
    if (operand[dim - missing] != 1)
      out += fmt::format(" + (i64)i{} * {}", dim, strides[static_cast<size_t>(dim - missing)]);
  }
  return out;
}

std::string coordinates_text(const Shape& shape) {
  std::string out = "    Index rest = at;\n";
  for (int dim = shape.rank() - 1; dim >= 0; --dim)
    out += fmt::format("    const Index i{0} = rest % {1}u; rest /= {1}u;\n", dim, std::max<int64_t>(shape[dim], 1));
  return out;
}

std::string step_text(const Chain& chain, const ChainStep& step) {
  std::string out = "    ";
  const auto type_of = [&](int value) { return chain.values[static_cast<size_t>(value)].dtype; };
  for (const int value : step.out) out += fmt::format("{} v{}; ", wide_type(type_of(value)), value);
  out += fmt::format("{{ typedef {} W;", wide_type(type_of(step.out[0])));
  for (size_t i = 0; i < step.in.size(); ++i)
    out += fmt::format(" const {} x{} = v{};", wide_type(type_of(step.in[i])), i, step.in[i]);
  for (size_t i = 0; i < step.out.size(); ++i) out += fmt::format(" {} y{};", wide_type(type_of(step.out[i])), i);
  out += fmt::format("\n      {}\n     ", step.code);
  for (size_t i = 0; i < step.out.size(); ++i)
    out += fmt::format(" v{} = load(As<{}>::of(y{}));", step.out[i], stored_type(type_of(step.out[i])), i);
  return out + " }\n";
}

std::string parameters_text(const Chain& chain) {
  std::string out = "i64 n";
  for (size_t i = 0; i < chain.operands; ++i)
    out += fmt::format(", const {}* p{}", stored_type(chain.values[i].dtype), i);
  for (size_t i = 0; i < chain.results.size(); ++i)
    out += fmt::format(", {}* q{}", stored_type(chain.values[static_cast<size_t>(chain.results[i])].dtype), i);
  return out;
}

}  // namespace

std::string source_of(const Chain& chain) {
  std::string before, in_loop, body;
  bool by_coordinates = false;
  for (size_t i = 0; i < chain.operands; ++i) {
    const TensorType& type = chain.values[i];
    const Read read = read_of(type, chain.shape);
    const std::string at = read == Read::kOnce      ? "0"
                           : read == Read::kInOrder ? "at"
                                                    : offset_text(type.shape, chain.shape);
    std::string& text = read == Read::kOnce ? before : in_loop;
    text += fmt::format("    const {} v{} = load(p{}[{}]);\n", wide_type(type.dtype), i, i, at);
    by_coordinates |= read == Read::kByCoordinates;
  }
  for (const ChainStep& step : chain.steps) {
    body += step_text(chain, step);
    by_coordinates |= step.reads_coordinates;
  }
  for (size_t i = 0; i < chain.results.size(); ++i) {
    const auto value = static_cast<size_t>(chain.results[i]);
    body += fmt::format("    q{}[at] = As<{}>::of(v{});\n", i, stored_type(chain.values[value].dtype), value);
  }
  const std::string_view index = chain.shape.elements() < kIndexedBy32 ? "unsigned" : "unsigned long long";
  return fmt::format(
      "{}{}typedef {} Index;\nextern \"C\" __global__ void chain({}) {{\n{}"
      "  for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < n; at += (i64)gridDim.x * blockDim.x) {{\n"
      "{}{}{}  }}\n}}\n",
      prelude(DType::kF32), element_functions(), index, parameters_text(chain), before,
      by_coordinates ? coordinates_text(chain.shape) : "", in_loop, body);
}

BoundChain::BoundChain(Gpu& gpu, const Chain& chain)
    : function_(gpu.function(source_of(chain), "chain")),
      elements_(chain.shape.elements()),
      most_blocks_(int64_t{16} * gpu.multiprocessors()) {}

void BoundChain::run(CudaStream& stream, std::span<const View> in, std::span<const View> out) const {
  std::vector<const std::byte*> addresses;
  for (const View& view : in) addresses.push_back(view.data);
  for (const View& view : out) addresses.push_back(view.data);
  std::vector<const void*> parameters{&elements_};
  for (const std::byte* const& each : addresses) parameters.push_back(&each);
  const int64_t blocks = (elements_ + kChainThreads - 1) / kChainThreads;
  stream.run(function_, {.blocks = std::min(blocks, most_blocks_), .threads = kChainThreads}, parameters);
}

}  // namespace trireme::cuda
