#include "trireme/layout/interpret_reshard.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/tensor/with_element.h"

namespace trireme {
namespace {

using Kind = ReshardStep::Kind;
using Pieces = std::vector<HostTensor>;

template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, BFloat16>;

// Floats compute in their own type or, for bf16, in f32; whole numbers wrap.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (kIsFloat<T>) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
}

template <class T>
bool less(T a, T b) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<float>(a) < static_cast<float>(b);
  } else {
    return a < b;
  }
}

template <class T>
T small(int value) {
  if constexpr (kIsFloat<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// a + b for a small b of either sign, kept within the type.
template <class T>
T moved(T a, int b) {
  if constexpr (kIsFloat<T>) {
    return add(a, small<T>(b));
  } else if constexpr (std::is_same_v<T, bool>) {
    return b < 0 ? false : (b > 0 ? true : a);
  } else {
    const T lowest = std::numeric_limits<T>::lowest();
    const T highest = std::numeric_limits<T>::max();
    if (b < 0) return a < static_cast<T>(lowest - b) ? lowest : static_cast<T>(a + b);
    return a > static_cast<T>(highest - b) ? highest : static_cast<T>(a + b);
  }
}

// The terms of one element: `owner` takes what the others leave.
template <class T>
void split_element(T whole, Reduction reduction, size_t owner, std::span<const int> draws, std::span<T> terms) {
  T rest = whole;
  for (size_t k = 0; k < terms.size(); ++k) {
    if (k == owner) continue;
    switch (reduction) {
      case Reduction::kSum:
        if constexpr (!std::is_same_v<T, bool>) {
          terms[k] = small<T>(draws[k] - 4);
          rest = add(rest, small<T>(4 - draws[k]));
        }
        break;
      case Reduction::kMax:
        terms[k] = moved(whole, -draws[k]);
        break;
      case Reduction::kMin:
        terms[k] = moved(whole, draws[k]);
        break;
    }
  }
  terms[owner] = rest;
}

// Full-size terms that reduce to the whole.
Pieces split(const HostTensor& whole, int64_t count, Reduction reduction, uint64_t seed) {
  Pieces out;
  for (int64_t k = 0; k < count; ++k) out.emplace_back(whole.type());
  const auto n = static_cast<size_t>(count);
  std::vector<int> draws(n);
  with_element("simulate", whole.type().dtype, [&]<class T>(T) {
    const auto from = whole.as<T>();
    const auto terms = std::make_unique<T[]>(n);
    for (size_t i = 0; i < from.size(); ++i) {
      const uint32_t owner = random_bits({seed, 0}, i, 0) % static_cast<uint32_t>(n);
      for (size_t k = 0; k < n; ++k) {
        draws[k] = static_cast<int>(random_bits({seed, 0}, i, k + 1) % 9);
      }
      split_element<T>(from[i], reduction, owner, draws, {terms.get(), n});
      for (size_t k = 0; k < n; ++k) out[k].as<T>()[i] = terms[k];
    }
  });
  return out;
}

HostTensor part_of(const HostTensor& from, const Box& from_box, const Box& box) {
  HostTensor out(TensorType{from.type().dtype, box.size});
  copy_region(from.view(), from_box, out.view(), box, box);
  return out;
}

// Part k of p along a dimension.
HostTensor slice(const HostTensor& from, int dim, int64_t p, int64_t k) {
  Box box = Box::whole(from.shape());
  box.size[dim] /= p;
  box.start[dim] = k * box.size[dim];
  return part_of(from, Box::whole(from.shape()), box);
}

HostTensor join(const Pieces& parts, int dim) {
  TensorType type = parts.at(0).type();
  const int64_t size = type.shape[dim];
  type.shape[dim] *= static_cast<int64_t>(parts.size());
  HostTensor out(type);
  for (size_t k = 0; k < parts.size(); ++k) {
    Box box = Box::whole(parts[k].shape());
    box.start[dim] = static_cast<int64_t>(k) * size;
    copy_region(parts[k].view(), box, out.view(), Box::whole(type.shape), box);
  }
  return out;
}

HostTensor reduced(const Pieces& pieces, const std::vector<int64_t>& group, Reduction reduction) {
  HostTensor out = pieces[static_cast<size_t>(group[0])].clone();
  for (size_t k = 1; k < group.size(); ++k) {
    reduce_into(out.view(), pieces[static_cast<size_t>(group[k])].view(), reduction);
  }
  return out;
}

void check_pieces(const Pieces& pieces, const Layout& layout, const Mesh& mesh, const TensorType& whole) {
  check(layout, whole.shape, mesh, "the simulated tensor", Parts::kUneven);
  require(static_cast<int64_t>(pieces.size()) == mesh.devices(),
          "{} pieces for mesh '{}' of {} devices; give one per rank", pieces.size(), to_string(mesh), mesh.devices());
  const TensorType local{whole.dtype, local_shape(whole.shape, layout, mesh)};
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    require(pieces[rank].type() == local, "rank {} holds {}, but its piece of {} under layout {} is {}", rank,
            to_string(pieces[rank].type()), to_string(whole), to_string(layout, mesh), to_string(local));
  }
}

std::string print_element(const HostTensor& tensor, size_t i) {
  std::string out;
  if (tensor.type().dtype == DType::kF16) {
    uint16_t bits = 0;
    std::memcpy(&bits, tensor.view().data + 2 * i, 2);
    return fmt::format("{:#06x}", bits);
  }
  with_element("simulate", tensor.type().dtype, [&]<class T>(T) {
    const T value = tensor.as<T>()[i];
    if constexpr (std::is_same_v<T, BFloat16>) {
      out = fmt::format("{}", static_cast<float>(value));
    } else {
      out = fmt::format("{}", value);
    }
  });
  return out;
}

void check_replicas(const HostTensor& a, const HostTensor& b, int64_t rank_a, int64_t rank_b, const Box& box) {
  const auto bytes = static_cast<size_t>(a.type().bytes());
  if (bytes == 0 || std::memcmp(a.view().data, b.view().data, bytes) == 0) return;
  size_t at = 0;
  while (a.view().data[at] == b.view().data[at]) ++at;
  const size_t element = at / static_cast<size_t>(size_of(a.type().dtype));
  fail(ErrorKind::kCorrupt, "ranks {} and {} hold replicas of {} that differ first at element {}: {} against {}",
       rank_a, rank_b, to_string(box), element, print_element(a, element), print_element(b, element));
}

}  // namespace

void reduce_into(const View& accumulator, const View& term, Reduction reduction) {
  invariant(accumulator.type == term.type, "{} reduced into {}", to_string(term.type), to_string(accumulator.type));
  if (reduction == Reduction::kSum && term.type.dtype == DType::kBool) {
    fail(ErrorKind::kUnsupported, "simulate: no sum of bool; take the maximum, which is 'or'");
  }
  with_element("simulate", term.type.dtype, [&]<class T>(T) {
    const auto to = accumulator.as<T>();
    const auto from = term.as<T>();
    for (size_t i = 0; i < to.size(); ++i) {
      switch (reduction) {
        case Reduction::kSum:
          to[i] = add(to[i], from[i]);
          break;
        case Reduction::kMax:
          if (less(to[i], from[i])) to[i] = from[i];
          break;
        case Reduction::kMin:
          if (less(from[i], to[i])) to[i] = from[i];
          break;
      }
    }
  });
}

Pieces cut(const HostTensor& whole, const Layout& layout, const Mesh& mesh, uint64_t seed) {
  check(layout, whole.shape(), mesh, "the simulated tensor", Parts::kUneven);
  const Axes axes = layout.partial_axes();
  Pieces terms;
  if (axes.empty()) {
    terms.push_back(whole.clone());
  } else {
    const Reduction reduction = layout.partial[0].reduction;
    if (reduction == Reduction::kSum && whole.type().dtype == DType::kBool) {
      fail(ErrorKind::kUnsupported, "simulate: no sum of bool; take the maximum, which is 'or'");
    }
    terms = split(whole, mesh.size_of(axes), reduction, seed);
  }
  Pieces out;
  for (int64_t rank = 0; rank < mesh.devices(); ++rank) {
    const Box box = local_box(whole.shape(), layout, mesh, rank);
    const HostTensor& term = terms[static_cast<size_t>(mesh.index_along(rank, axes))];
    out.emplace_back(TensorType{whole.type().dtype, box.size});
    std::ranges::fill(out.back().view().raw(), std::byte{0});
    copy_region(term.view(), Box::whole(whole.shape()), out.back().view(), box, held(box, whole.shape()));
  }
  return out;
}

HostTensor gather(const Pieces& pieces, const Layout& layout, const Mesh& mesh, const TensorType& whole) {
  check_pieces(pieces, layout, mesh, whole);
  const Axes replicas = layout.replica_axes(mesh);
  const Axes terms = layout.partial_axes();
  const Reduction reduction = terms.empty() ? Reduction::kSum : layout.partial[0].reduction;
  HostTensor out(whole);
  for (int64_t rank = 0; rank < mesh.devices(); ++rank) {
    const Box piece = local_box(whole.shape, layout, mesh, rank);
    const Box box = held(piece, whole.shape);
    const int64_t first = mesh.group_of(rank, replicas)[0];
    if (first != rank) {
      check_replicas(pieces[static_cast<size_t>(first)], pieces[static_cast<size_t>(rank)], first, rank, box);
    } else if (mesh.index_along(rank, terms) == 0) {
      const HostTensor value = reduced(pieces, mesh.group_of(rank, terms), reduction);
      copy_region(value.view(), piece, out.view(), Box::whole(whole.shape), box);
    }
  }
  return out;
}

Pieces apply(const ReshardStep& step, const Pieces& pieces, const Layout& before, const TensorType& whole,
             const Mesh& mesh) {
  check_pieces(pieces, before, mesh, whole);
  const Layout after = layout_after(step, before);
  invariant(after == step.after, "{} of layout {} says it leads to {}", to_string(step, mesh), to_string(before, mesh),
            to_string(step.after, mesh));
  check(after, whole.shape, mesh, "the simulated tensor");
  const int64_t p = mesh.size_of(step.axes);
  Pieces out;
  for (int64_t rank = 0; rank < mesh.devices(); ++rank) {
    const std::vector<int64_t> group = mesh.group_of(rank, step.axes);
    const int64_t k = mesh.index_along(rank, step.axes);
    Pieces parts;
    switch (step.kind) {
      case Kind::kSlice:
        out.push_back(slice(pieces[static_cast<size_t>(rank)], step.dim, p, k));
        break;
      case Kind::kAllGather:
        for (int64_t from : group) parts.push_back(pieces[static_cast<size_t>(from)].clone());
        out.push_back(join(parts, step.dim));
        break;
      case Kind::kAllToAll:
        for (int64_t from : group) {
          parts.push_back(slice(pieces[static_cast<size_t>(from)], step.dim, p, k));
        }
        out.push_back(join(parts, step.from_dim));
        break;
      case Kind::kAllReduce:
        out.push_back(reduced(pieces, group, step.reduction));
        break;
      case Kind::kReduceScatter:
        out.push_back(slice(reduced(pieces, group, step.reduction), step.dim, p, k));
        break;
    }
  }
  return out;
}

Pieces apply(const std::vector<ReshardStep>& steps, const Pieces& pieces, const Layout& before, const TensorType& whole,
             const Mesh& mesh) {
  Pieces now;
  for (const HostTensor& piece : pieces) now.push_back(piece.clone());
  Layout layout = before;
  for (const ReshardStep& step : steps) {
    now = apply(step, now, layout, whole, mesh);
    layout = step.after;
  }
  return now;
}

}  // namespace trireme
