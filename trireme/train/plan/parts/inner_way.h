// A way without its pipeline (InnerWay), what the parts of a model take by it (PartPrices), and how the prices of some
// ways bound those of others.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "trireme/planner/outer/least_part.h"
#include "trireme/planner/way_choices.h"
#include "trireme/train/job/config.h"
#include "trireme/train/plan/ways/ways.h"

namespace trireme {

// A way without its pipeline.
struct InnerWay {
  int64_t tp = 1, cp = 1, ep = 1, dp = 1;
  bool sp = false;
  bool vocabulary = false;  // embedding, head and loss are cut over tp
  int64_t zero = 0;
  int64_t rows = 1;  // samples of a micro-batch, of each of the dp * ep ranks that share the batch
  WayRecompute recompute = WayRecompute::kNone;
  bool kept_slices = false;   // what is kept for the backward pass lies in slices on ranks of tp
  Tier keep = Tier::kDevice;  // where what is kept lies
  UpdatePlace place = {};     // of the optimizer's state and updates

  int64_t ranks() const { return tp * cp * ep * dp; }
  int64_t samples() const { return rows * dp * ep; }  // of a micro-batch
  Way way() const;
  friend auto operator<=>(const InnerWay&, const InnerWay&) = default;
};
struct InnerWayHash {
  size_t operator()(const InnerWay& way) const noexcept;
};

inline constexpr int64_t kMostRows = 8;  // of the ways that are looked at

// Figures of the whole model, from which all bounds follow.
struct StepFigures {
  int64_t parameter_bytes = 0, state_bytes = 0;
  int64_t arithmetic_ps = 0;  // of the step on all ranks, as fast as they can
  // Micro-batches depend on each other, however large: all would be kept until the last one has gone forward. Ways then
  // have one, which is the whole batch.
  bool is_joined = false;
  // What a byte of the optimizer's state takes to come from there or to go back, in femtoseconds, at least.
  int64_t host_fs_per_byte = 0, disk_fs_per_byte = 0;
  // Where updates may run on the host, what one takes for each byte of the state, at least; else 0. And of parameters
  // that lie there, in the type in which the device computes with them.
  int64_t update_fs_per_byte = 0, weight_bytes = 0;
};

// Whether parameters lie on the host for their updates and come to the device once a step, for as long as it lasts.
// Those that ranks have whole although their state is in slices stay on the device.
bool come_for_the_step(const InnerWay& way);

// What the crews of a way with its state elsewhere move, or update on the host, once a step, all together: of each a
// rank, one way at least.
int64_t least_moves_ps(const InnerWay& way, const StepFigures& figures);

struct PartPrices {
  std::vector<PartPrice> parts;  // what stands before, a block of each kind, what stands after
  // What a micro-batch sends over a boundary, there and back.
  int64_t messages = 0, message_bytes = 0;
  int64_t crossing = 0;    // ps that takes
  bool is_joined = false;  // StepFigures::is_joined

  friend bool operator==(const PartPrices&, const PartPrices&) = default;
};

// Keys of the job that leave one block of each kind, in the order of the kinds.
std::vector<std::string> one_block_keys(const JobConfig& job);

// The way of one data parallel rank, without slices, with the state on the device.
InnerWay alone_of(InnerWay way);
// That with kMostRows.
InnerWay with_most_rows(const InnerWay& way);

// That whose vocabulary is whole, with the same blocks.
InnerWay with_whole_vocabulary(InnerWay way);
// That without recomputation, with what is kept whole and on the device.
InnerWay all_kept(InnerWay way);
// The way with the most rows, with all kept, that is cut by tp (and sp) alone, where `way` is cut by cp, ep or
// in its vocabulary as well.
std::optional<InnerWay> by_tp_alone(const InnerWay& way);
// The same by kFewerTp ranks of tp alone, of a way whose tp is a larger multiple of these: collectives among more ranks
// are no shorter.
inline constexpr int64_t kFewerTp = 8;
std::optional<InnerWay> by_fewer_tp(const InnerWay& way);
// The same by tp and ep, of a way with ep that is cut by cp or in its vocabulary as well.
std::optional<InnerWay> by_tp_and_ep(const InnerWay& way);
// The same by tp and so many ranks of ep, one of kFewerEp, of which the way has a multiple: experts that lie on more
// ranks exchange no less.
inline constexpr std::array<int64_t, 4> kFewerEp{2, 4, 8, 16};
std::optional<InnerWay> by_fewer_ep(const InnerWay& way, int64_t ep);
// The same by tp, ep and half the ranks of cp, of a way whose cp is a multiple of 4.
std::optional<InnerWay> by_half_cp(const InnerWay& way);
std::vector<InnerWay> by_fewer_axes(const InnerWay& way);  // all of these that there are
// What blocks of `way` take at least, by the prices of one of these, for its rows.
PartPrices least_by_fewer_axes(const PartPrices& prices, const InnerWay& known, const InnerWay& way);

// The way with the most rows that keeps the same elsewhere, without ep and with the vocabulary whole, where `way` keeps
// it elsewhere and has either: its blocks keep as much, wherever experts lie.
std::optional<InnerWay> by_kept_without_ep(const InnerWay& way);
void raise_kept_moves(PartPrices& to, const PartPrices& of_known, const InnerWay& known, const InnerWay& way);

// The way with what is kept nearer; and with its state nearer, or updates on the device. Each is looked at before it.
InnerWay with_nearer_keep(InnerWay way);
InnerWay with_nearer_state(InnerWay way);

// That of kFewRanks data parallel ranks with the state on the device, where `way` has a multiple of them: among more,
// sums and gathers are no shorter.
inline constexpr int64_t kFewRanks = 8;
std::optional<InnerWay> with_few_ranks(const InnerWay& way);
void raise_moved(PartPrices& to, const PartPrices& of_few);

// That without slices, of one row, with the vocabulary whole and all kept, where `way` has slices; its sums say what
// blocks in slices exchange at least.
std::optional<InnerWay> without_slices(InnerWay way);
// `of`: alone(way), `summed` and alone(that).
// Of these sums, those among kFewRanks data parallel ranks that do without cp and sp, where `without` has a multiple of
// kFewRanks: with cp more ranks sum the same gradients, and with sp those of what it cuts as well.
std::optional<InnerWay> with_fewest_sums(const InnerWay& without);
struct ExchangedBlocks {
  const PartPrices &alone, &summed, &unsummed;
};
void raise_exchanged(PartPrices& to, const ExchangedBlocks& of, int64_t zero);

// Each part of `way` takes no less, by the prices of `known`, one data parallel rank.
LeastPartOf least_part_of(const InnerWay& known, const InnerWay& way, const StepFigures& figures);
PartPrices least_of(const PartPrices& alone, const LeastPartOf& of);
PartPrices least_of(const PartPrices& alone, const InnerWay& known, const InnerWay& way, const StepFigures& figures);

}  // namespace trireme
