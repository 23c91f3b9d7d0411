// conv2d and its two gradients in f32, of 3 x 3 windows that move by one position, by Winograd's F(4x4, 3x3)
// (isa/winograd.h): tiles of 4 x 4 results are made of patches of 6 x 6 operands. Patches and weights are transformed
// to 36 places, multiplied as matrices [tiles, channels] of each place, and transformed back: four multiplications for
// a result and channel, by whole tiles 2.25, instead of nine.
//
// The gradient of the input is the convolution of dy with the taps in reverse; that of the weight multiplies patches of
// x with tiles of dy at each place. docs/design/numerics.md says how large its errors are.
#include <algorithm>
#include <limits>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/lines_ahead.h"
#include "trireme/backend/cpu/products/onednn.h"
#include "trireme/backend/cpu/products/packed_product.h"
#include "trireme/backend/cpu/products/panels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/cpu/windows/conv_rivals.h"
#include "trireme/backend/cpu/windows/conv_windows.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kRowsOnAvx2 = 6;  // of a product's tile
constexpr int64_t kTileSide = 4, kTaps = 9, kPlaces = 36, kPlacesOfRow = 6;
// Tiles that are multiplied at once at most, where all weights are kept and where all patches are.
constexpr int64_t kTilesByWeights = 42, kTilesByPatches = 168;
constexpr int64_t kGroupChannels = 32;  // of results that are made at once: columns of the widest of such tiles
constexpr int64_t kTermsAtOnce = 256;   // of products, so that a panel of them fits the first-level cache
// Of a weight's gradient: the tiles that are transformed at once (as many as take so much, but not too few for a
// product), the rows of a task's result, and tiles transformed by a task.
constexpr int64_t kChunkFloats = 1 << 19, kLeastChunkTiles = 128;
constexpr int64_t kPartRows = 42, kTilesOfTask = 8;
constexpr int64_t kLeastChannels = 16;

// So many floats in whole cache lines, an odd number of them: 36 places so far apart lie in different sets of a cache.
int64_t spread(int64_t floats) {
  constexpr int64_t kLineFloats = 16;
  return ((floats + kLineFloats - 1) / kLineFloats | 1) * kLineFloats;
}

int64_t pieces_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// Tiles of `y`, each with the patch of `x` that it is computed from (or multiplied with).
struct WinogradTiles {
  Shape x, y;
  int64_t top, left;  // positions before x

  int64_t down() const { return pieces_of(y[1], kTileSide); }
  int64_t across() const { return pieces_of(y[2], kTileSide); }
  int64_t count() const { return y[0] * down() * across(); }

  // A tile of y: the positions of it that y has.
  template <class T>
  SquaresOf<T> tile(int64_t number, T* data) const {
    const int64_t row = number / across() % down() * kTileSide, column = number % across() * kTileSide;
    return {.data = data,
            .first = ((number / across() / down() * y[1] + row) * y[2] + column) * y[3],
            .row = y[2] * y[3],
            .column = y[3],
            .rows = {0, y[1] - row},
            .columns = {0, y[2] - column}};
  }
  SquaresOf<const float> patch(int64_t number, const float* data) const {
    const int64_t row = number / across() % down() * kTileSide - top, column = number % across() * kTileSide - left;
    return {.data = data,
            .first = ((number / across() / down() * x[1] + row) * x[2] + column) * x[3],
            .row = x[2] * x[3],
            .column = x[3],
            .rows = {-row, x[1] - row},
            .columns = {-column, x[2] - column}};
  }
};

// Squares of all places, which lie `place` floats apart.
template <class T>
SquaresOf<T> places(T* data, int64_t place) {
  return {.data = data, .row = kPlacesOfRow * place, .column = place};
}

constexpr int64_t kBytesOfFloat = sizeof(float);

int64_t room_bytes(int64_t floats) {
  return aligned(floats * kBytesOfFloat);
}

float* room_at(const KernelArgs& args, int64_t bytes) {
  return reinterpret_cast<float*>(align(args.scratch.data()) + bytes);
}

// Products of a place: c[rows, columns] of a, whose terms lie side by side or, transposed, apart, and packed panels.
struct PlaceProduct {
  Gemm g;  // k of it and its addresses stand for all terms
  const float* panels;
  int64_t a_place, panels_place, c_place;

  void run() const {
    const int64_t width = loops().tile_columns;
    for (int64_t place = 0; place < kPlaces; ++place) {
      LinesAhead ahead = next_of(place);
      for (int64_t first = 0; first < g.k; first += kTermsAtOnce) {
        Gemm part = g;
        part.k = std::min(kTermsAtOnce, g.k - first);
        part.a = g.a + place * a_place + first * (g.transpose_a ? g.lda : 1);
        part.c = g.c + place * c_place;
        if (first > 0) part.beta = 1;
        multiply_packed(part, panels + place * panels_place + first * width, g.k, {},
                        std::numeric_limits<int32_t>::max(), &ahead);
      }
    }
  }

 private:
  // What the next place's product reads; nothing where the second-level cache has it. Rows of a transposed lie apart,
  // and are found soon enough.
  LinesAhead next_of(int64_t place) const {
    constexpr int64_t kNearFloats = 128 << 10;
    LinesAhead ahead;
    if (place + 1 == kPlaces || g.transpose_a || kPlaces * g.m * g.k <= kNearFloats) return ahead;
    const int64_t lines = pieces_of(g.m * g.lda * kBytesOfFloat, kLineBytes);
    spread_over_tiles(ahead, lines, pieces_of(g.m, loops().tile_rows) * pieces_of(g.n, loops().tile_columns));
    add_lines(ahead, g.a + (place + 1) * a_place, lines, kLineBytes, 1);
    return ahead;
  }
};

// The result of a convolution, and where what it needs lies. Either all weights are transformed first, and then a task
// makes some tiles' patches and multiplies them with all weights, or the other way around, whichever takes less room.
// A thread has the operand that is not kept, the taps of some weights as they are, and the products of a block of
// tiles with a group of weights.
struct WinogradResult {
  WinogradTiles tiles;
  bool reversed;  // x is dy, and the weight [terms,3,3,channels]
  int64_t terms, channels;
  int64_t block = 0;  // tiles that are multiplied at once

  WinogradResult(Pass pass, const Windows& c)
      : tiles{c.x, c.y, c.top, c.left}, reversed(pass == Pass::kInput), terms(c.w[3]), channels(c.w[0]) {
    if (reversed) {
      tiles = {c.y, c.x, 2 - c.top, 2 - c.left};
      std::swap(terms, channels);
    }
    const int64_t most = keeps_weights() ? kTilesByWeights : kTilesByPatches;
    block = pieces_of(tiles.count(), pieces_of(tiles.count(), most));
    block = std::min(rounded_up(block, kRowsOnAvx2), tiles.count());
  }

  bool keeps_weights() const { return channels <= tiles.count(); }
  int64_t blocks() const { return pieces_of(tiles.count(), block); }
  int64_t groups() const { return pieces_of(channels, kGroupChannels); }
  int64_t tiles_of(int64_t number) const { return std::min(block, tiles.count() - number * block); }
  int64_t channels_of(int64_t group) const { return std::min(kGroupChannels, channels - group * kGroupChannels); }

  int64_t patch_place() const { return spread(block * terms); }
  int64_t weight_place() const { return spread(kGroupChannels * terms); }
  int64_t product_place() const { return spread(block * kGroupChannels); }
  int64_t patch_bytes() const { return room_bytes(kPlaces * patch_place()); }    // of a block
  int64_t weight_bytes() const { return room_bytes(kPlaces * weight_place()); }  // of a group
  int64_t tap_bytes() const { return room_bytes(kTaps * weight_place()); }
  int64_t product_bytes() const { return room_bytes(kPlaces * product_place()); }

  int64_t kept_bytes() const { return keeps_weights() ? groups() * weight_bytes() : blocks() * patch_bytes(); }
  int64_t thread_bytes() const {
    return (keeps_weights() ? patch_bytes() : weight_bytes()) + tap_bytes() + product_bytes();
  }
  int64_t scratch_bytes(int threads) const { return kAlign + kept_bytes() + threads * thread_bytes(); }

  void make_patches(int64_t number, const float* x, float* to) const {
    for (int64_t i = 0; i < tiles_of(number); ++i) {
      loops().winograd_patch(terms, tiles.patch(number * block + i, x), places(to + i * terms, patch_place()));
    }
  }

  // As panels for products: `taps` holds them as they are.
  void make_weights(int64_t group, const float* w, float* taps, float* to) const {
    const int64_t first = group * kGroupChannels, line = kTaps * (reversed ? channels : terms);
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      const float* const from = reversed ? w + tap * channels + first : w + first * line + tap * terms;
      pack_right(from, line, !reversed, channels_of(group), terms, taps + tap * weight_place());
    }
    SquaresOf<const float> from{.data = taps, .row = 3 * weight_place(), .column = weight_place()};
    if (reversed) from = {.data = taps, .first = 8 * weight_place(), .row = -from.row, .column = -from.column};
    loops().winograd_weight(rounded_up(channels_of(group), loops().tile_columns) * terms, from,
                            places(to, weight_place()));
  }

  void make_results(int64_t number, int64_t group, const float* patches, const float* weights, float* products,
                    float* y) const {
    const int64_t n = channels_of(group);
    PlaceProduct{.g = {.m = tiles_of(number),
                       .n = n,
                       .k = terms,
                       .a = patches,
                       .c = products,
                       .lda = terms,
                       .ldc = kGroupChannels},
                 .panels = weights,
                 .a_place = patch_place(),
                 .panels_place = weight_place(),
                 .c_place = product_place()}
        .run();
    for (int64_t i = 0; i < tiles_of(number); ++i) {
      SquaresOf<float> to = tiles.tile(number * block + i, y);
      to.first += group * kGroupChannels;
      loops().winograd_result(n, places<const float>(products + i * kGroupChannels, product_place()), to);
    }
  }
};

template <Pass pass>
void run_winograd(const KernelArgs& args) {
  const WinogradResult of{pass, windows_of(pass, args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape,
                                           args.attrs.as<Conv2dAttrs>())};
  const float* const x = args.in[of.reversed ? 1 : 0].as<float>().data();
  const float* const w = args.in[of.reversed ? 0 : 1].as<float>().data();
  float* const y = args.out[0].as<float>().data();
  const auto products = [&](int thread) { return room_at(args, of.kept_bytes() + thread * of.thread_bytes()); };
  const auto taps = [&](int thread) { return products(thread) + of.product_bytes() / kBytesOfFloat; };
  const auto passing = [&](int thread) { return taps(thread) + of.tap_bytes() / kBytesOfFloat; };  // what is not kept
  const auto weights_at = [&](int64_t group) { return room_at(args, group * of.weight_bytes()); };
  const auto patches_at = [&](int64_t block) { return room_at(args, block * of.patch_bytes()); };
  if (of.keeps_weights()) {
    run_tasks(args.pool, of.groups(),
              [&](int64_t group, int thread) { of.make_weights(group, w, taps(thread), weights_at(group)); });
    run_tasks(args.pool, of.blocks(), [&](int64_t block, int thread) {
      of.make_patches(block, x, passing(thread));
      for (int64_t group = 0; group < of.groups(); ++group)
        of.make_results(block, group, passing(thread), weights_at(group), products(thread), y);
    });
  } else {
    run_tasks(args.pool, of.blocks(), [&](int64_t block, int) { of.make_patches(block, x, patches_at(block)); });
    run_tasks(args.pool, of.groups(), [&](int64_t group, int thread) {
      of.make_weights(group, w, taps(thread), passing(thread));
      for (int64_t block = 0; block < of.blocks(); ++block)
        of.make_results(block, group, patches_at(block), passing(thread), products(thread), y);
    });
  }
}

// The gradient of a weight. Patches and tiles of a chunk of them are transformed, all of them shared; then a task makes
// some rows (outputs) and columns (channels of x) of the result, which is added up over chunks at all places.
struct WinogradWeightGrad {
  WinogradTiles tiles;
  int64_t channels, outputs;
  int64_t chunks, chunk;  // and tiles of a chunk

  explicit WinogradWeightGrad(const Windows& c) : tiles{c.x, c.y, c.top, c.left}, channels(c.w[3]), outputs(c.w[0]) {
    const int64_t most = std::max(kLeastChunkTiles, kChunkFloats / (kPlaces * (channels + outputs)));
    chunks = std::max<int64_t>(1, tiles.count() / most);
    chunk = pieces_of(tiles.count(), chunks);
    chunks = pieces_of(tiles.count(), chunk);
  }

  int64_t groups() const { return pieces_of(channels, kGroupChannels); }
  int64_t parts() const { return pieces_of(outputs, kPartRows); }
  int64_t rows() const { return rounded_up(pieces_of(outputs, parts()), kRowsOnAvx2); }  // of a part

  int64_t patch_place() const { return spread(groups() * kGroupChannels * chunk); }
  int64_t dy_place() const { return spread(outputs * chunk); }
  int64_t sum_place() const { return spread(rows() * kGroupChannels); }
  int64_t patch_bytes() const { return room_bytes(kPlaces * patch_place()); }
  int64_t dy_bytes() const { return room_bytes(kPlaces * dy_place()); }
  int64_t sum_bytes() const { return room_bytes(kPlaces * sum_place()); }  // of a task
  int64_t tasks() const { return groups() * parts(); }
  int64_t scratch_bytes(int threads) const {
    return kAlign + patch_bytes() + dy_bytes() + (chunks > 1 ? tasks() : threads) * sum_bytes();
  }

  // Tile `i` of a chunk of so many. Patches are made as panels of products; beyond their channels nothing is written.
  void transform(int64_t number, int64_t i, int64_t count, const float* x, const float* dy, float* patches,
                 float* dys) const {
    const int64_t width = loops().tile_columns;
    SquaresOf<const float> from = tiles.patch(number, x);
    for (int64_t c = 0; c < channels; c += width, from.first += width) {
      loops().winograd_patch(std::min(width, channels - c), from,
                             places(patches + c * count + i * width, patch_place()));
    }
    loops().winograd_result_grad(outputs, tiles.tile(number, dy), places(dys + i * outputs, dy_place()));
  }

  void add(int64_t task, int64_t count, bool first, const float* patches, const float* dys, float* sums) const {
    const int64_t group = task % groups(), row = task / groups() * rows();
    PlaceProduct{.g = {.m = std::min(rows(), outputs - row),
                       .n = std::min(kGroupChannels, channels - group * kGroupChannels),
                       .k = count,
                       .a = dys + row,
                       .c = sums,
                       .lda = outputs,
                       .ldc = kGroupChannels,
                       .transpose_a = true,
                       .beta = first ? 0.0F : 1.0F},
                 .panels = patches + group * kGroupChannels * count,
                 .a_place = dy_place(),
                 .panels_place = patch_place(),
                 .c_place = sum_place()}
        .run();
  }

  void make_results(int64_t task, const float* sums, float* dw) const {
    const int64_t c = task % groups() * kGroupChannels, row = task / groups() * rows();
    for (int64_t i = 0; i < std::min(rows(), outputs - row); ++i) {
      loops().winograd_weight_grad(
          std::min(kGroupChannels, channels - c), places<const float>(sums + i * kGroupChannels, sum_place()),
          {.data = dw, .first = (row + i) * kTaps * channels + c, .row = 3 * channels, .column = channels});
    }
  }
};

void run_winograd_weight_grad(const KernelArgs& args) {
  const WinogradWeightGrad of(windows_of(Pass::kWeight, args.in[0].type.shape, args.in[1].type.shape,
                                         args.out[0].type.shape, args.attrs.as<Conv2dAttrs>()));
  const float* const x = args.in[0].as<float>().data();
  const float* const dy = args.in[1].as<float>().data();
  float* const patches = room_at(args, 0);
  float* const dys = room_at(args, of.patch_bytes());
  for (int64_t chunk = 0; chunk < of.chunks; ++chunk) {
    const int64_t begin = chunk * of.chunk, count = std::min(of.chunk, of.tiles.count() - begin);
    for_range(args, count, kTilesOfTask, [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) of.transform(begin + i, i, count, x, dy, patches, dys);
    });
    run_tasks(args.pool, of.tasks(), [&](int64_t task, int thread) {
      const int64_t place = of.chunks > 1 ? task : thread;
      float* const sums = room_at(args, of.patch_bytes() + of.dy_bytes() + place * of.sum_bytes());
      of.add(task, count, chunk == 0, patches, dys, sums);
      if (chunk + 1 == of.chunks) of.make_results(task, sums, args.out[0].as<float>().data());
    });
  }
}

template <Pass pass>
int64_t winograd_scratch(const TypeArgs& args, int threads) {
  const Windows c =
      windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs.as<Conv2dAttrs>());
  if (pass == Pass::kWeight) return WinogradWeightGrad(c).scratch_bytes(threads);
  return WinogradResult(pass, c).scratch_bytes(threads);
}

template <Pass pass>
constexpr Kernel winograd(std::string_view op, std::string_view name, KernelFn* run) {
  return {
      .op = op,
      .name = name,
      .why_not = why_no_winograd<pass>,
      .scratch = winograd_scratch<pass>,
      .run = run,
      .bits = Bits::kShape,
      .rivals = &kConvRivals<pass>,
  };
}

}  // namespace

template <Pass pass>
std::string why_no_winograd(const TypeArgs& args) {
  std::string reason = not_all_f32(args);
  if (!reason.empty()) return reason;
  const auto& attrs = args.attrs.as<Conv2dAttrs>();
  const Windows c = windows_of(pass, args.in[0].shape, args.in[1].shape, args.out[0].shape, attrs);
  if (c.w[1] != 3 || c.w[2] != 3) return fmt::format("windows are {} x {}, not 3 x 3", c.w[1], c.w[2]);
  if (c.stride_h != 1 || c.stride_w != 1 || c.dilation_h != 1 || c.dilation_w != 1)
    return "windows step over positions";
  if (c.groups() != 1) return "channels are in groups";
  const int64_t channels = std::min(c.w[0], c.w[3]);
  if (channels < kLeastChannels) return fmt::format("{} channels are few for a product of each place", channels);
  for (const TensorType& type : {args.in[0], args.in[1], args.out[0]}) {
    if (type.elements() == 0) return fmt::format("{} is empty", to_string(type));
  }
  return "";
}

template std::string why_no_winograd<Pass::kForward>(const TypeArgs&);
template std::string why_no_winograd<Pass::kInput>(const TypeArgs&);
template std::string why_no_winograd<Pass::kWeight>(const TypeArgs&);

std::span<const Kernel> conv_winograd_kernels() {
  static constexpr Kernel kAll[] = {
      winograd<Pass::kForward>("conv2d", "conv2d.winograd", run_winograd<Pass::kForward>),
      winograd<Pass::kInput>("conv2d_grad_input", "conv2d_grad_input.winograd", run_winograd<Pass::kInput>),
      winograd<Pass::kWeight>("conv2d_grad_weight", "conv2d_grad_weight.winograd", run_winograd_weight_grad),
  };
  return kAll;
}

}  // namespace trireme::cpu
