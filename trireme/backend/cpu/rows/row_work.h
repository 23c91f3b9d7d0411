// How fused_rows runs a call: its blocks of rows, the kernel of each step, and where each value between two steps lies.
// All of this follows from types alone.
#pragma once

#include <optional>
#include <vector>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/products/product.h"
#include "trireme/op/row_steps.h"

namespace trireme::cpu {

// Where products stand among the steps: each is computed by a kernel of its own for all rows, before the steps that
// follow (by one that keeps bits whatever the shape, or by the usual one); or block by block, of f32 by
// panel_product.h or tiled_product.h, and where its sums are taken in parts, by its kernel in blocks or in tiles, for
// all rows; of bf16 by tiled_bf16_product.h.
enum class RowProducts { kInvariant, kUsual, kPanels, kTiles, kBf16Tiles };

struct RowWork {
  // Steps that run one after the other on a part of a block; a product is by itself.
  struct Run {
    size_t first = 0, end = 0;
    bool is_product = false;
  };
  // A product by panels or tiles: of a block, of which a row may be several of the product's.
  struct PanelProduct {
    size_t step = 0;
    Product of_block;
    int64_t offset = 0;  // of its packed matrix, among those of all
  };

  RowProducts how = RowProducts::kInvariant;
  RowSteps steps;
  std::vector<RowValue> values;
  std::vector<Run> runs;
  std::vector<const Kernel*> kernels;  // of steps; null: a product by panels or tiles
  std::vector<PanelProduct> panels;
  bool apart = false;  // products are computed for all rows, which are one block
  int64_t rows = 0;
  int64_t block = 1;  // rows of a block
  int64_t part = 1;   // rows that a step takes at a time; where no step is a product, a block

  std::vector<int64_t> place;     // of values, among those of a block or of a part; -1: operands and results
  std::vector<char> keeps_block;  // values of which all rows of a block are there, not those of a part alone
  int64_t block_bytes = 0;        // of such values
  int64_t part_bytes = 0;         // of the others
  int64_t step_bytes = 0;         // scratch of a step's kernel
  int64_t shared_bytes = 0;       // that threads share: packed matrices, or scratch of a product's kernel

  int64_t row_elements(size_t id) const { return rows == 0 ? 0 : values[id].type.elements() / rows; }
  int64_t row_bytes(size_t id) const { return row_elements(id) * size_of(values[id].type.dtype); }

  // Scratch: what each thread has, then what they share. There are blocks for each, or one for all.
  int64_t thread_bytes() const { return part_bytes + step_bytes + (apart ? 0 : block_bytes); }
  int64_t scratch_bytes(int threads) const;

  // The type of so many rows of a value.
  TensorType piece(size_t id, int64_t count) const;
};

RowWork row_work(std::span<const TensorType> in, const Attrs& attrs, RowProducts how, int threads);

// The products among the steps: nothing for one that is not of matrices of this type, the first of them as it lies.
std::vector<std::optional<Product>> products_of_type(DType dtype, const RowSteps& steps,
                                                     std::span<const RowValue> values);

}  // namespace trireme::cpu
