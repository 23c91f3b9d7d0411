#include "trireme/ops/collectives/tile_borders.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/said.h"
#include "trireme/op/box_messages.h"
#include "trireme/op/registry.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 8> kDirections{"top",    "top right",   "right", "bottom right",
                                                 "bottom", "bottom left", "left",  "top left"};
// Of each direction: -1 before, 0 along, 1 after the tile, in rows and in columns.
constexpr std::array<int, 8> kRows{-1, -1, 0, 1, 1, 1, 0, -1};
constexpr std::array<int, 8> kColumns{0, 1, 1, 1, 0, -1, -1, -1};

// One dimension of a tile of `own` positions, with `before` and `after` more around it where it is received.
struct Extent {
  int64_t own = 0, before = 0, after = 0;

  int64_t size(int side) const { return side < 0 ? before : side > 0 ? after : own; }
  int64_t sent_from(int side) const { return side > 0 ? own - after : 0; }
  int64_t got_at(int side) const { return side < 0 ? 0 : side > 0 ? before + own : before; }
  int64_t whole() const { return before + own + after; }
};

class Borders {
 public:
  Borders(const TensorType& x, std::span<const TileBorders> of_ranks) : x_(x), of_ranks_(of_ranks) {}

  BoxesAttrs attrs(const CollectiveAttrs& group) const {
    for (size_t k = 0; k < of_ranks_.size(); ++k) check(k);
    BoxesAttrs out{.axes = group.axes, .ranks = group.ranks, .size = group.size, .shape = result(0)};
    for (size_t k = 0; k < of_ranks_.size(); ++k) {
      const auto place = static_cast<int64_t>(k);
      require(result(k) == out.shape,
              "exchange_borders: rank 0 gets {} around its tile and rank {} gets {}; all results must have one shape",
              said_by([&] { return joined_text(of_ranks_[0].recv_lens, ","); }), k,
              said_by([&] { return joined_text(of_ranks_[k].recv_lens, ","); }));
      out.add({place, place, Box::whole(x_.shape), {got(k, 0, 0).start, x_.shape}});
    }
    for (size_t k = 0; k < of_ranks_.size(); ++k) {
      for (size_t d = 0; d < kDirections.size(); ++d) add_border(k, d, out);
    }
    return out;
  }

 private:
  Extent rows(const std::array<int64_t, 4>& lens) const { return {x_.shape[2], lens[0], lens[1]}; }
  Extent columns(const std::array<int64_t, 4>& lens) const { return {x_.shape[3], lens[2], lens[3]}; }

  Box sent(size_t k, int row, int column) const {
    const Extent h = rows(of_ranks_[k].send_lens);
    const Extent w = columns(of_ranks_[k].send_lens);
    return {{0, 0, h.sent_from(row), w.sent_from(column)}, {x_.shape[0], x_.shape[1], h.size(row), w.size(column)}};
  }
  Box got(size_t k, int row, int column) const {
    const Extent h = rows(of_ranks_[k].recv_lens);
    const Extent w = columns(of_ranks_[k].recv_lens);
    return {{0, 0, h.got_at(row), w.got_at(column)}, {x_.shape[0], x_.shape[1], h.size(row), w.size(column)}};
  }
  Shape result(size_t k) const {
    const std::array<int64_t, 4>& lens = of_ranks_[k].recv_lens;
    return {x_.shape[0], x_.shape[1], rows(lens).whole(), columns(lens).whole()};
  }

  void check_ids(size_t k, const char* what, const std::array<int64_t, 8>& ids) const {
    const auto ranks = static_cast<int64_t>(of_ranks_.size());
    for (size_t d = 0; d < ids.size(); ++d) {
      require(ids[d] >= -1 && ids[d] < ranks,
              "exchange_borders: {} of rank {} name rank {} of the group ({}); use 0 to {}, or -1 for none", what, k,
              ids[d], kDirections[d], ranks - 1);
      const auto first = std::find(ids.begin(), ids.end(), ids[d]) - ids.begin();
      require(ids[d] == -1 || static_cast<size_t>(first) == d,
              "exchange_borders: {} of rank {} name rank {} twice ({} and {}); name each once", what, k, ids[d],
              kDirections[static_cast<size_t>(first)], kDirections[d]);
    }
  }

  void check(size_t k) const {
    const TileBorders& mine = of_ranks_[k];
    check_ids(k, "send_rank_ids", mine.send_rank_ids);
    check_ids(k, "recv_rank_ids", mine.recv_rank_ids);
    for (size_t i = 0; i < mine.send_lens.size(); ++i) {
      const int64_t own = x_.shape[i < 2 ? 2 : 3];
      require(mine.send_lens[i] >= 0 && mine.send_lens[i] <= own,
              "exchange_borders: send_lens of rank {} are {}; each must be from 0 to what the tile {} has", k,
              said_by([&] { return joined_text(mine.send_lens, ","); }), said(x_));
      require(mine.recv_lens[i] >= 0 && mine.recv_lens[i] <= own,
              "exchange_borders: recv_lens of rank {} are {}; each must be from 0 to what a neighbour's tile {} has", k,
              said_by([&] { return joined_text(mine.recv_lens, ","); }), said(x_));
    }
  }

  // What rank k sends in direction d, and whether somebody sends what it expects there.
  void add_border(size_t k, size_t d, BoxesAttrs& out) const {
    if (const int64_t from = of_ranks_[k].recv_rank_ids[d]; from >= 0) {
      const std::array<int64_t, 8>& sends = of_ranks_[static_cast<size_t>(from)].send_rank_ids;
      require(std::find(sends.begin(), sends.end(), static_cast<int64_t>(k)) != sends.end(),
              "exchange_borders: rank {} expects its {} from rank {}, which sends it nothing", k, kDirections[d], from);
    }
    const int64_t to = of_ranks_[k].send_rank_ids[d];
    if (to < 0) return;
    const std::array<int64_t, 8>& awaited = of_ranks_[static_cast<size_t>(to)].recv_rank_ids;
    const auto at =
        static_cast<size_t>(std::find(awaited.begin(), awaited.end(), static_cast<int64_t>(k)) - awaited.begin());
    require(at < awaited.size(), "exchange_borders: rank {} sends its {} to rank {}, which expects nothing from it", k,
            kDirections[d], to);
    const Box from_box = sent(k, kRows[d], kColumns[d]);
    const Box to_box = got(static_cast<size_t>(to), kRows[at], kColumns[at]);
    require(from_box.size == to_box.size,
            "exchange_borders: rank {} sends its {}, {}, to rank {}, which expects {} as its {}", k, kDirections[d],
            said(from_box.size), to, said(to_box.size), kDirections[at]);
    if (from_box.elements() > 0) out.add({static_cast<int64_t>(k), to, from_box, to_box});
  }

  const TensorType& x_;
  std::span<const TileBorders> of_ranks_;
};

}  // namespace

Tensor exchange_borders(const Tensor& x, const CollectiveAttrs& group, std::span<const TileBorders> of_ranks,
                        std::string_view data_format) {
  require(data_format == "NCHW", "exchange_borders: data_format '{}'; it must be 'NCHW'", data_format);
  require(x.rank() == 4 && x.type().elements() > 0, "exchange_borders: a tile {}; it must be [n,c,h,w] and not empty",
          said(x.type()));
  require(static_cast<int64_t>(of_ranks.size()) == group.size,
          "exchange_borders: borders are given for {} ranks, and the group has {}; give them for each", of_ranks.size(),
          group.size);
  return apply1(op("exchange_boxes"), {x}, Attrs::of(Borders(x.type(), of_ranks).attrs(group)));
}

}  // namespace trireme
