#include "trireme/train/step/session/initialise.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/base/rng.h"
#include "trireme/layout/layout.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {
namespace {

// Calls fn(local offset, global offset, count) for each run of elements that is contiguous in both.
template <class Fn>
void for_each_run(const Box& box, const Shape& whole, Fn&& fn) {
  const int rank = whole.rank();
  if (box.elements() == 0) return;
  if (rank == 0) return fn(0, 0, 1);
  const auto strides = whole.strides();
  const int64_t run = box.size[rank - 1];
  std::array<int64_t, Shape::kMaxRank> index{};
  for (int64_t local = 0; local < box.elements(); local += run) {
    int64_t global = 0;
    for (int dim = 0; dim < rank; ++dim) {
      const auto d = static_cast<size_t>(dim);
      global += (box.start[dim] + index[d]) * strides[d];
    }
    fn(local, global, run);
    for (int dim = rank - 2; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      if (++index[d] < box.size[dim]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

namespace {

void fill(const View& out, const Box& box, const Shape& whole, const Init& init, uint64_t seed, std::string_view name) {
  if (init.kind == Init::Kind::kConstant && init.a == 0) {
    std::fill(out.raw().begin(), out.raw().end(), std::byte{0});
    return;
  }
  require(out.type.dtype == DType::kF32, "parameter '{}' is {}; starting values are made in f32", name,
          to_string(out.type));
  const auto values = out.as<float>();
  const Stream stream{seed, hash64(name)};
  const auto a = static_cast<float>(init.a);
  const auto b = static_cast<float>(init.b);
  for_each_run(box, whole, [&](int64_t local, int64_t global, int64_t count) {
    const auto piece = values.subspan(static_cast<size_t>(local), static_cast<size_t>(count));
    switch (init.kind) {
      case Init::Kind::kConstant:
        std::fill(piece.begin(), piece.end(), a);
        break;
      case Init::Kind::kNormal:
        fill_normal(stream, static_cast<uint64_t>(global), 0, piece);
        for (float& x : piece) x = a + b * x;
        break;
      case Init::Kind::kUniform:
        fill_uniform01(stream, static_cast<uint64_t>(global), 0, piece);
        for (float& x : piece) x = a + (b - a) * x;
        break;
    }
  });
}

}  // namespace

void initialise(const View& out, const Box& box, const Shape& whole, const Init& init, uint64_t seed,
                std::string_view name) {
  const Box inside = held(box, whole);
  if (inside == box) return fill(out, box, whole, init, seed, name);
  const HostTensor part({out.type.dtype, inside.size});
  fill(part.view(), inside, whole, init, seed, name);
  std::fill(out.raw().begin(), out.raw().end(), std::byte{0});
  copy_region(part.view(), inside, out, box, inside);
}

}  // namespace trireme
