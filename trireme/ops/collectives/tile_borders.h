// Borders of image tiles, which ranks pass to each other in eight directions. Each rank names the ranks that it sends
// to and receives from. This is for models that are cut by hand, and for grids that are not axes of a mesh. On a mesh's
// grid, `halo` along one dimension after the other does the same.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "trireme/op/build.h"
#include "trireme/op/structural.h"

namespace trireme {

// What one rank declares. Ranks are places in the group, -1: none. The eight directions go clockwise from the top: top,
// top right, right, bottom right, bottom, bottom left, left, top left. The four lengths are rows at the top and at the
// bottom, columns left and right.
struct TileBorders {
  std::array<int64_t, 8> send_rank_ids{-1, -1, -1, -1, -1, -1, -1, -1};
  std::array<int64_t, 8> recv_rank_ids{-1, -1, -1, -1, -1, -1, -1, -1};
  std::array<int64_t, 4> send_lens{};
  std::array<int64_t, 4> recv_lens{};
};

// x is a tile [n,c,h,w]; the result [n,c,h + top + bottom,w + left + right] of `recv_lens` has the tile inside, and
// around it what arrives: from each neighbour the border of its tile on the side where it sends, corners from the
// diagonal neighbours, and zeros where none sends. `of_ranks` has an entry for each rank of the group. The gradient
// sends the cotangents of borders back and adds them. Throws kInvalidArgument for ranks that are not in the group or
// are named twice, negative lengths or ones beyond the tile, another format than NCHW, results of different shapes, and
// borders that are sent but not expected in the same size, or expected but not sent.
Tensor exchange_borders(const Tensor& x, const CollectiveAttrs& group, std::span<const TileBorders> of_ranks,
                        std::string_view data_format = "NCHW");

}  // namespace trireme
