// What the parts of a model take with one cut. A reduced job with one block of each kind is compiled as training
// compiles it, as a pipeline whose stages are the parts, and each crew's program is priced (cost/price.h). So there is
// no second formula for an op or a collective. The job has two micro-batches: what the second one takes is what each
// takes, and the rest of the step is what it takes once.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>

#include "trireme/planner/outer/least_part.h"
#include "trireme/train/plan/parts/inner_way.h"
#include "trireme/train/plan/parts/model_parts.h"

namespace trireme {

inline constexpr int64_t kMostRows = 8;  // of the ways that are looked at

// Figures of the whole model, from which all bounds follow.
struct StepFigures {
  int64_t parameter_bytes = 0, state_bytes = 0;
  int64_t arithmetic_ps = 0;  // of the step on all ranks, as fast as they can
  bool is_joined = false;     // micro-batches depend on each other, however large
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
// The same by tp and ep, of a way with ep that is cut by cp or in its vocabulary as well.
std::optional<InnerWay> by_tp_and_ep(const InnerWay& way);
// The same by tp and so many ranks of ep, one of kFewerEp, of which the way has a multiple: experts that lie on more
// ranks exchange no less.
inline constexpr std::array<int64_t, 4> kFewerEp{2, 4, 8, 16};
std::optional<InnerWay> by_fewer_ep(const InnerWay& way, int64_t ep);
// The same by tp, ep and half the ranks of cp, of a way whose cp is a multiple of 4.
std::optional<InnerWay> by_half_cp(const InnerWay& way);
std::vector<InnerWay> by_fewer_axes(const InnerWay& way);  // all of these that there are
// Ways that the same programs before passes are of, where most who ask for one ask for the others soon: but for those
// that compute all again, and those that keep elsewhere, of which few are asked for.
std::vector<InnerWay> asked_together_with(const InnerWay& way);
// What blocks of `way` take at least, by the prices of one of these, for its rows.
PartPrices least_by_fewer_axes(const PartPrices& prices, const InnerWay& known, const InnerWay& way);

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
struct ExchangedBlocks {
  const PartPrices &alone, &summed, &unsummed;
};
void raise_exchanged(PartPrices& to, const ExchangedBlocks& of, int64_t zero);

// Each part of `way` takes no less, by the prices of `known`, one data parallel rank.
LeastPartOf least_part_of(const InnerWay& known, const InnerWay& way, const StepFigures& figures);
PartPrices least_of(const PartPrices& alone, const LeastPartOf& of);
PartPrices least_of(const PartPrices& alone, const InnerWay& known, const InnerWay& way, const StepFigures& figures);

struct PricedTable;  // train/plan/parts/priced_tables.h
struct PricedTables;

class PartPricer {
 public:
  // `job` is without cuts (ways.h). `known`: tables that are not compiled again; it gets those that are, and must
  // outlive this.
  PartPricer(const JobConfig& job, const ModelParts& parts, const StepFigures& figures, int threads,
             PricedTables* known = nullptr);
  ~PartPricer();

  // Whether micro-batches of half the batch, or the largest ones there are of whole groups of experts' places, depend
  // on each other: a mixture whose loss, or whose groups, are of the whole batch. Then smaller ones do, and no pipeline
  // runs them in turn.
  static bool has_joined_micro_batches(const JobConfig& job, const ModelParts& parts);

  // Nothing where the compiler refuses the way; `refusal` says why the first one was. They are no less than what
  // alone(way) says of them (planner/outer/least_part.h), nor than what with_few_ranks(way) moves,
  // and by without_slices(way);
  // with the state elsewhere, or what is kept in slices, nothing takes less time than without. Nor do all parts
  // together move for less than least_moves_ps(way).
  const std::optional<PartPrices>& prices(const InnerWay& way);
  // The table of alone_of(way), no less than what the one with the most rows says of it, no shorter than with all kept,
  // and of cp, ep and a cut vocabulary than what the ways of fewer axes say (by_tp_alone and those after it).
  const std::optional<PartPrices>& alone(const InnerWay& way);
  // The same by compiling this very way, instead of from the compute of one data parallel rank and what the others add.
  std::optional<PartPrices> compiled(const InnerWay& way);

  const std::string& refusal() const { return refusal_; }
  int64_t jobs_compiled() const { return jobs_compiled_; }
  int64_t tables_reused() const { return tables_reused_; }  // of those known before

 private:
  struct Impl;
  PricedTable made(const InnerWay& way);
  std::optional<PartPrices> compiled_or_throw(const InnerWay& way);
  const std::optional<PartPrices>& compiled_once(const InnerWay& way);
  void raise_by_sums(const InnerWay& way, const PartPrices& of_alone, PartPrices& to);

  std::unique_ptr<Impl> impl_;
  std::map<InnerWay, std::optional<PartPrices>> compiled_, alone_, prices_;
  std::string refusal_;
  int64_t jobs_compiled_ = 0, tables_reused_ = 0;
};

}  // namespace trireme
