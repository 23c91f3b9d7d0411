// Tiles of images in a grid of ranks, as they lie row by row.
#pragma once

#include "trireme/ops/collectives/tile_borders.h"

namespace trireme::testing_support {

// Each of rows x columns ranks gets so many positions at the top, at the bottom, left and right of its tile.
inline std::vector<TileBorders> grid_of_tiles(int64_t rows, int64_t columns, const std::array<int64_t, 4>& lens) {
  constexpr std::array<std::pair<int, int>, 8> kAround{
      {{-1, 0}, {-1, 1}, {0, 1}, {1, 1}, {1, 0}, {1, -1}, {0, -1}, {-1, -1}}};
  std::vector<TileBorders> out;
  for (int64_t rank = 0; rank < rows * columns; ++rank) {
    TileBorders& mine = out.emplace_back();
    mine.recv_lens = lens;
    mine.send_lens = {lens[1], lens[0], lens[3], lens[2]};
    for (size_t d = 0; d < kAround.size(); ++d) {
      const int64_t row = rank / columns + kAround[d].first;
      const int64_t column = rank % columns + kAround[d].second;
      if (row < 0 || row >= rows || column < 0 || column >= columns) continue;
      mine.send_rank_ids[d] = mine.recv_rank_ids[d] = row * columns + column;
    }
  }
  return out;
}

}  // namespace trireme::testing_support
