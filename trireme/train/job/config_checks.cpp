#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/step/precision.h"

namespace trireme {
namespace {

void require_one_of(const std::string& key, const std::string& value, const std::vector<std::string>& candidates) {
  if (std::find(candidates.begin(), candidates.end(), value) != candidates.end()) return;
  fail(ErrorKind::kInvalidArgument, "configuration: {} = '{}'; it must be one of {}.{}", key, value,
       quoted_list(candidates),
       closest(value, candidates).empty() ? "" : fmt::format(" Did you mean '{}'?", closest(value, candidates)));
}

// The numbers of one key: from `low` on, or above it, or from it to below 1.
void require_from(const std::string& key, int64_t value, int64_t low) {
  require(value >= low, "configuration: {} = {}; it must be {} or more", key, value, low);
}

constexpr double kMost = std::numeric_limits<float>::max();  // steps are computed in f32

void require_not_negative(const std::string& key, double value) {
  require(value >= 0, "configuration: {} = {}; it must be 0 or more", key, value);
  require(value <= kMost, "configuration: {} = {}; it must be a number that f32 holds", key, value);
}

void require_below_one(const std::string& key, double value) {
  require(value >= 0 && static_cast<float>(value) < 1, "configuration: {} = {}; it must be from 0 to below 1{}", key,
          value, value < 1 ? ", also in f32" : "");
}

// Sizes that a tensor of this library can have: tokens, labels and positions are numbered in 32 bits.
void require_size(const std::string& key, int64_t value, int64_t low = 1) {
  require_from(key, value, low);
  require(value <= kMostOfASize, "configuration: {} = {}; it must be at most {}", key, value, +kMostOfASize);
}

void check_training(const JobConfig& c) {
  for (const auto& [key, value] : {std::pair<const char*, int64_t>{"train.steps", c.train.steps},
                                   {"train.epochs", c.train.epochs},
                                   {"train.warmup", c.train.warmup},
                                   {"train.eval_every", c.train.eval_every},
                                   {"train.eval_batches", c.train.eval_batches},
                                   {"train.eval_batch", c.train.eval_batch},
                                   {"train.save_every", c.train.save_every},
                                   {"train.keep", c.train.keep},
                                   {"train.patience", c.train.patience},
                                   {"train.sample_tokens", c.train.sample_tokens},
                                   {"train.seed", c.train.seed}}) {
    require_from(key, value, 0);
  }
  require_below_one("train.label_smoothing", c.train.label_smoothing);
  require(c.train.label_smoothing == 0 || !c.parallel.vocabulary,
          "configuration: train.label_smoothing = {} with parallel.vocabulary; a loss that is cut by tokens has none, "
          "use 0",
          c.train.label_smoothing);
  nn::check_numbers(optimizer_of(c), "configuration: train.");
  require_not_negative("train.clip", c.train.clip);
  require_not_negative("train.final_ratio", c.train.final_ratio);
}

// What is kept and when a run ends, by its validations.
void check_judging(const JobConfig& c) {
  const auto& t = c.train;
  require_one_of("train.measure", t.measure, {"loss", "accuracy"});
  require_not_negative("train.min_improvement", t.min_improvement);
  require(t.save_every_minutes >= 0 && t.save_every_minutes <= kMost,
          "configuration: train.save_every_minutes = {}; it must be 0 or more, and finite", t.save_every_minutes);
  const bool judged = t.keep_best || t.patience > 0;
  const std::string_view asked = t.keep_best ? "train.keep_best" : "train.patience";
  require(!judged || c.data.validation > 0,
          "configuration: {} goes by validations, and data.validation = 0 holds nothing out", asked);
  require(!judged || t.eval_every > 0,
          "configuration: {} goes by validations during the run; set train.eval_every to the steps between them",
          asked);
  require(t.measure == "loss" || predicts_classes(c),
          "configuration: train.measure = 'accuracy'; model.kind '{}' has a loss only, use 'loss'", c.model.kind);
  require(judged || (t.measure == "loss" && t.min_improvement == 0),
          "configuration: train.measure and train.min_improvement say what train.keep_best and train.patience go by; "
          "set one of these too");
}

}  // namespace

void check_values(const JobConfig& c) {
  check_kinds(c);
  require_one_of("train.dtype", c.train.dtype, kComputeTypes);
  require_one_of("train.numerics", c.train.numerics, {"fast", "invariant"});
  require(c.train.numerics == "fast" || c.train.dtype == "f32",
          "configuration: train.numerics = 'invariant' keeps the bits of f32 sums only; train.dtype is '{}', use 'f32'",
          c.train.dtype);
  require(c.train.numerics == "fast" || c.train.loss_pieces == 1,
          "configuration: train.numerics = 'invariant' sums in an order of its own, train.loss_pieces = {} in pieces; "
          "leave one out",
          c.train.loss_pieces);
  require_one_of("train.schedule", c.train.schedule, {"constant", "linear", "cosine"});
  require_one_of("parallel.mode", c.parallel.mode,
                 {"data_parallel", "semi_auto_parallel", "hybrid_parallel", "stand_alone"});
  require_one_of("parallel.cp_algorithm", c.parallel.cp_algorithm, {"auto", "ulysses", "ring", "hybrid"});
  require_one_of("parallel.transport", c.parallel.transport, {"auto", "shm", "ucx", "mpi"});
  require_size("train.batch", c.train.batch);
  require_size("train.loss_pieces", c.train.loss_pieces);
  require_size("train.trace_steps", c.train.trace_steps);
  const std::string& again = c.train.recompute;
  const bool is_number =
      !again.empty() && again.size() < 7 && again.find_first_not_of("0123456789") == std::string::npos;
  require(is_number || again == "none" || again == "selective" || again == "full",
          "configuration: train.recompute = '{}'; it must be 'none', 'selective', 'full' or a number of blocks", again);
  check_training(c);
  check_judging(c);
  require(c.parallel.device_num == -1 || (c.parallel.device_num >= 1 && c.parallel.device_num <= 4096),
          "configuration: parallel.device_num = {}; it must be from 1 to 4096, or -1 for as many ranks as are started",
          c.parallel.device_num);
  require_from("parallel.tp", c.parallel.tp, 1);
  require_from("parallel.cp", c.parallel.cp, 1);
  require_from("parallel.ep", c.parallel.ep, 1);
  require_from("parallel.pp", c.parallel.pp, 1);
  require_from("parallel.virtual_stages", c.parallel.virtual_stages, 0);
  require(c.parallel.pp <= 4096 && c.parallel.virtual_stages <= 4096,
          "configuration: parallel.pp = {}, parallel.virtual_stages = {}; they must be 4096 or less", c.parallel.pp,
          c.parallel.virtual_stages);
  require_from("parallel.ulysses_degree", c.parallel.ulysses_degree, 0);
  require_from("parallel.gradient_accumulation_steps", c.parallel.gradient_accumulation_steps, 1);
  require(c.parallel.gradient_accumulation_steps <= 4096,
          "configuration: parallel.gradient_accumulation_steps = {}; it must be from 1 to 4096",
          c.parallel.gradient_accumulation_steps);
  require(c.parallel.zero >= 0 && c.parallel.zero <= 3, "configuration: parallel.zero = {}; it must be 0, 1, 2 or 3",
          c.parallel.zero);
  require(c.train.lr > 0, "configuration: train.lr = {}; it must be above 0", c.train.lr);
  const double most = c.train.lr * std::max(1.0, c.train.final_ratio);
  require(static_cast<float>(c.train.lr) > 0 && most <= kMost,
          "configuration: train.lr = {}, train.final_ratio = {}; rates must be numbers that f32 holds", c.train.lr,
          c.train.final_ratio);
  require(c.train.steps > 0 || c.train.epochs > 0,
          "configuration: neither train.steps nor train.epochs is set; one of them must be 1 or more");
  require(c.data.validation >= 0 && c.data.validation < 1,
          "configuration: data.validation = {}; it is the share of samples held out, from 0 to below 1",
          c.data.validation);
  check_effects(c);
}

}  // namespace trireme
