// What the parts of a model take with one cut. A reduced job with one block of each kind is compiled as training
// compiles it, as a pipeline whose stages are the parts, and each crew's program is priced (cost/price.h). So there is
// no second formula for an op or a collective. The job has two micro-batches: what the second one takes is what each
// takes, and the rest of the step is what it takes once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trireme/train/plan/parts/inner_way.h"
#include "trireme/train/plan/parts/model_parts.h"

namespace trireme {

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
  // on each other: a mixture whose loss, or whose groups, are of the whole batch. Then smaller ones do.
  static bool has_joined_micro_batches(const JobConfig& job, const ModelParts& parts);

  // Nothing where the compiler refuses the way; `refusal` says why the first one was. Where micro-batches depend on
  // each other it is what compiling this very way gives, with its data parallel ranks. Else they are no less than what
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
  void raise_by_variants(const InnerWay& way, PartPrices& to);

  std::unique_ptr<Impl> impl_;
  std::map<InnerWay, std::optional<PartPrices>> compiled_, alone_, prices_;
  std::string refusal_;
  int64_t jobs_compiled_ = 0, tables_reused_ = 0;
};

}  // namespace trireme
