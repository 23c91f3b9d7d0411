// Products of matrices, by cuBLAS. f32 is computed as f32, not as TF32.
#include "trireme/backend/cuda/products.h"

#include "trireme/backend/cuda/kernels.h"
#include "trireme/base/error.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cuda {
namespace {

// c[batch][m,n] = a b, row-major; `transpose`: the operand is stored the other way round.
struct BlasProduct {
  int64_t batches = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool b_of_each = true;  // whether each batch has one of its own
};

int64_t columns_of(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}
int64_t rows_before(const Shape& shape, int last) {
  int64_t out = 1;
  for (int dim = 0; dim < shape.rank() - last; ++dim) out *= shape[dim];
  return out;
}

BlasProduct of_matmul(const TypeArgs& args) {
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const Shape &a = args.in[0].shape, &b = args.in[1].shape, &y = args.out[0].shape;
  BlasProduct p{.m = y[y.rank() - 2],
                .n = y[y.rank() - 1],
                .k = attrs.transpose_a ? a[a.rank() - 2] : a[a.rank() - 1],
                .transpose_a = attrs.transpose_a,
                .transpose_b = attrs.transpose_b};
  p.batches = rows_before(a, 2);
  if (b.rank() == 2 && !attrs.transpose_a) {  // the rows of all batches are those of one matrix
    p.m *= p.batches;
    p.batches = 1;
  }
  p.b_of_each = b.rank() > 2;
  return p;
}

BlasProduct of_weight_grad(const TypeArgs& args) {
  const Shape& x = args.in[0].shape;
  return {.m = columns_of(x),
          .n = args.out[0].elements() / std::max<int64_t>(columns_of(x), 1),
          .k = rows_before(x, 1),
          .transpose_a = true};
}

BlasProduct of_multi_linear(const TypeArgs& args) {
  const Shape &x = args.in[0].shape, &w = args.in[1].shape;
  return {.m = rows_before(x, 1), .n = w[1] * w[2], .k = w[0]};
}

BlasProduct of_multi_linear_input_grad(const TypeArgs& args) {
  const Shape &y = args.in[0].shape, &w = args.in[1].shape;
  return {.m = rows_before(y, 2), .n = w[0], .k = w[1] * w[2], .transpose_b = true};
}

void run_product(const KernelArgs& args, const BlasProduct& p, double beta) {
  const DType in = args.in[0].type.dtype;
  multiply(CudaStream::of(args), args.scratch, {.m = p.m, .n = p.n, .k = p.k, .batches = p.batches, .beta = beta},
           {args.in[0].data, in, p.transpose_a ? p.m : p.k, p.m * p.k, p.transpose_a},
           {args.in[1].data, in, p.transpose_b ? p.k : p.n, p.b_of_each ? p.k * p.n : 0, p.transpose_b},
           {args.out[0].data, args.out[0].type.dtype, p.n, p.m * p.n});
}

using ProductOf = BlasProduct (*)(const TypeArgs& args);

TypeArgs types_of(const KernelArgs& args, std::vector<TensorType>& room) {
  for (const View& view : args.in) room.push_back(view.type);
  for (const View& view : args.out) room.push_back(view.type);
  const std::span<const TensorType> all(room);
  return {all.first(args.in.size()), all.subspan(args.in.size()), args.attrs};
}

template <ProductOf kProduct>
void run(const KernelArgs& args) {
  std::vector<TensorType> room;
  run_product(args, kProduct(types_of(args, room)), 0);
}

// cuBLAS adds to what is there.
void run_onto(const KernelArgs& args) {
  std::vector<TensorType> room;
  CudaStream::of(args).move(address(args.out[0].data), address(args.in[2].data), args.out[0].bytes());
  run_product(args, of_weight_grad(types_of(args, room)), 1);
}

template <ProductOf kProduct>
std::string why_no_product(const TypeArgs& args) {
  if (std::string why = no_float(args); !why.empty()) return why;
  const BlasProduct p = kProduct(args);
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batches == 0) return "it is empty";
  if (std::max({p.m, p.n, p.k, p.batches}) > kMost) return "cuBLAS counts in 32 bits";
  return "";
}

// A small one needs little.
template <ProductOf kProduct>
int64_t product_scratch(const TypeArgs& args) {
  const BlasProduct p = kProduct(args);
  constexpr double kLarge = 1 << 27;
  const double work = static_cast<double>(p.m * p.n) * static_cast<double>(p.k * p.batches);
  return work < kLarge ? int64_t{1} << 20 : kLargeWorkspace;
}

template <ProductOf kProduct>
CudaKernel product_kernel(std::string_view op, KernelFn* run_it = run<kProduct>) {
  return {op, "cublas", run_it, why_no_product<kProduct>, product_scratch<kProduct>};
}

}  // namespace

namespace {

int type_for_blas(DType dtype) {
  return dtype == DType::kF64 ? kF64 : dtype == DType::kBF16 ? kBF16 : kF32;
}

constexpr int kDefaultAlgorithm = -1;

// What cuBLAS takes for a number of the type it sums in.
struct Factor {
  double wide;
  float narrow;
  bool is_wide;
  Factor(double value, DType dtype) : wide(value), narrow(static_cast<float>(value)), is_wide(dtype == DType::kF64) {}
  const void* at() const { return is_wide ? static_cast<const void*>(&wide) : &narrow; }
};

int in_32_bits(int64_t x) {
  return static_cast<int>(x);
}

}  // namespace

// In cuBLAS matrices lie column by column, so what it sees of a row-major one is its transpose: c' = b' a'.
void multiply(CudaStream& stream, std::span<std::byte> workspace, const Multiply& how, const Matrix& a, const Matrix& b,
              const Matrix& c) {
  const Factor alpha(how.alpha, a.dtype), beta(how.beta, a.dtype);
  check_blas(blas().product(stream.blas(workspace), b.is_transposed, a.is_transposed, in_32_bits(how.n),
                            in_32_bits(how.m), in_32_bits(how.k), alpha.at(), b.data, type_for_blas(b.dtype),
                            in_32_bits(b.row), b.batch, a.data, type_for_blas(a.dtype), in_32_bits(a.row), a.batch,
                            beta.at(), c.data, type_for_blas(c.dtype), in_32_bits(c.row), c.batch,
                            in_32_bits(how.batches), alpha.is_wide ? kSumF64 : kSumF32, kDefaultAlgorithm),
             "a product");
}

void multiply_each(CudaStream& stream, std::span<std::byte> workspace, const Multiply& how, const Matrix& a,
                   const Matrix& b, const Matrix& c) {
  const Factor alpha(how.alpha, a.dtype), beta(how.beta, a.dtype);
  const auto addresses = [](const Matrix& matrix) { return reinterpret_cast<const void* const*>(matrix.data); };
  check_blas(blas().products(stream.blas(workspace), b.is_transposed, a.is_transposed, in_32_bits(how.n),
                             in_32_bits(how.m), in_32_bits(how.k), alpha.at(), addresses(b), type_for_blas(b.dtype),
                             in_32_bits(b.row), addresses(a), type_for_blas(a.dtype), in_32_bits(a.row), beta.at(),
                             reinterpret_cast<void* const*>(c.data), type_for_blas(c.dtype), in_32_bits(c.row),
                             in_32_bits(how.batches), alpha.is_wide ? kSumF64 : kSumF32, kDefaultAlgorithm),
             "products");
}

std::span<const CudaKernel> products_kernels() {
  static const CudaKernel kernels[] = {
      product_kernel<of_matmul>("matmul"),
      product_kernel<of_weight_grad>("linear_weight_grad"),
      product_kernel<of_weight_grad>("linear_weight_grad_onto", run_onto),
      product_kernel<of_multi_linear>("multi_linear"),
      product_kernel<of_multi_linear_input_grad>("multi_linear_input_grad"),
      product_kernel<of_weight_grad>("multi_linear_weight_grad"),
  };
  return kernels;
}

}  // namespace trireme::cuda
