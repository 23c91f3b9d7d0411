// The certificate of a plan that the exact search found: all figures that its proof rests on, as text with a version
// and a checksum. verify_certificate.h checks the proof; neither knows how the plan was searched.
//
// The text has one line for each fact, made of words and name=value, in this order: the program that made it and what
// it is for (graph, machine, ranks), the model's figures and its parts, the best ways, the ledger, the tables, and
// `end` with the SHA-256 of all lines above. docs/file_formats.md lists them.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/op/move.h"
#include "trireme/planner/way_choices.h"

namespace trireme {

// What a part of the model takes of a rank: times in picoseconds, of one micro-batch unless stated otherwise, and
// bytes.
struct CertifiedPart {
  int64_t forward = 0, input_grad = 0, weight_grad = 0, again = 0;  // computing
  int64_t moving_forward = 0, moving_backward = 0;                  // collectives
  // If what is kept lies on the host or the disk: its moves beside the forward pass, and beside the input gradients.
  int64_t leaving = 0, returning = 0;
  int64_t update = 0, sync = 0;           // computing and collectives, once a step
  int64_t persistent = 0, gradients = 0;  // bytes
  int64_t held = 0;                       // bytes of weights that came, or were cast, for all micro-batches of a step
  int64_t kept = 0;                       // bytes of each micro-batch in flight
  int64_t waiting = 0;  // bytes of each whose weight gradients alone are still to be computed, instead of `kept`
  int64_t work = 0;     // bytes beside these, of one part at a time
  // For what lies on the host or the disk: the times, once a step, to the device, back, and of updates on the host; and
  // its bytes there.
  int64_t coming = 0, going = 0, updating = 0;
  int64_t host = 0, disk = 0;
  int64_t kept_host = 0, kept_disk = 0;  // bytes there of each micro-batch in flight, instead of on the device
  // However many rows a micro-batch has: of `weight_grad` adding to the gradients before, and of `gradients` these
  // sums.
  int64_t adding = 0, sums = 0;
  // Of what stands before the blocks, where a stage has all parts: what it takes for each micro-batch instead of once a
  // step (of `sync`), as a weight that it shares with others has its gradients summed in slices; and bytes of
  // `gradients` in all parts that are not needed, as there is one sum of these; and of `update` what it takes less.
  int64_t tied = 0, tied_sums = 0, tied_adding = 0;
  // Of what stands after the blocks: of `moving_forward` and `moving_backward`, what a stage of all parts does without,
  // as it gathers that weight for all of them.
  int64_t tied_forward = 0, tied_backward = 0;
  friend bool operator==(const CertifiedPart&, const CertifiedPart&) = default;
};

// Where the optimizer's state lies, and where updates run: on the device or the host.
struct CertifiedPlace {
  Tier state = Tier::kDevice, update = Tier::kDevice;
  friend auto operator<=>(const CertifiedPlace&, const CertifiedPlace&) = default;
};

// How a stage is cut over its ranks.
struct CertifiedCut {
  int64_t tp = 1, cp = 1, ep = 1, dp = 1;
  bool sp = false;
  bool vocabulary = false;  // embedding, head and loss are cut over tp
  int64_t zero = 0;
  int64_t rows = 1;  // samples of a micro-batch, of each of the dp * ep ranks that share the batch
  WayRecompute recompute = WayRecompute::kNone;
  bool kept_slices = false;   // what is kept for the backward pass lies in slices on ranks of tp
  Tier keep = Tier::kDevice;  // where it lies
  CertifiedPlace place = {};
  friend auto operator<=>(const CertifiedCut&, const CertifiedCut&) = default;
};

// What the parts take by one cut.
struct CertifiedTable {
  CertifiedCut cut;
  bool is_refused = false;           // the compiler does not take the cut; then without figures
  bool is_joined = false;            // micro-batches depend on each other, so that no pipeline runs them in turn
  int64_t crossing = 0;              // ps: activations over one boundary of stages, and their gradients back
  std::vector<CertifiedPart> parts;  // what stands before the blocks, a block of each kind, what stands after
  friend bool operator==(const CertifiedTable&, const CertifiedTable&) = default;
};

struct CertifiedWay {
  int64_t pp = 1, micro_batches = 1;
  WaySchedule schedule = WaySchedule::k1F1B;
  int64_t virtual_stages = 1;  // of each crew: crew c has the stages c, c + pp, c + 2 pp and so on
  CertifiedCut cut;
  friend auto operator<=>(const CertifiedWay&, const CertifiedWay&) = default;
};

struct CertifiedPlan {
  CertifiedWay way;
  std::vector<int64_t> begins;  // the first part of each stage; part 0 stands before the blocks
  int64_t step_ps = 0;
  std::vector<int64_t> crew_bytes;  // of a rank of each crew
  friend bool operator==(const CertifiedPlan&, const CertifiedPlan&) = default;
};

// The counts after the first add up to it; OuterLedger says what each is.
struct CertifiedLedger {
  int64_t ways = 0, do_not_divide = 0, memory_least = 0, bound = 0, slower = 0, memory = 0, needless = 0, solved = 0;
  friend bool operator==(const CertifiedLedger&, const CertifiedLedger&) = default;
};

struct CertifiedModel {
  int64_t layers = 0;      // blocks
  int64_t heads = 0;       // that tp divides; 0: any
  int64_t experts = 0;     // that ep cuts; 0: none
  int64_t weights = 0;     // 1: tp cuts them
  int64_t positions = 0;   // 1: cp and sp cut them
  int64_t vocabulary = 0;  // that tp cuts where it divides; 0: it does not
  int64_t sequence = 1;    // positions of a sample
  int64_t batch = 1;       // samples of a step
  int64_t joined = 0;      // 1: micro-batches depend on each other, so that no pipeline runs them in turn
  int64_t parameter_bytes = 0, state_bytes = 0;
  int64_t arithmetic_ps = 0;  // of the step on all ranks, as fast as they can
  // What a byte of state takes at least, in femtoseconds, to come from where it lies or to go back.
  int64_t host_fs_per_byte = 0, disk_fs_per_byte = 0;
  // Where updates may run on the host: what one takes for each byte of state at least; and bytes of the parameters in
  // the type in which the device computes with them. 0: they run on the device alone.
  int64_t update_fs_per_byte = 0, weight_bytes = 0;
  friend bool operator==(const CertifiedModel&, const CertifiedModel&) = default;
};

// Blocks of one kind that follow each other.
struct CertifiedRun {
  int64_t kind = 0;  // numbered in the order in which they first come
  int64_t blocks = 0;
  friend bool operator==(const CertifiedRun&, const CertifiedRun&) = default;
};

struct Certificate {
  std::string version;  // of the program that made it
  std::string graph, machine_hash, machine;
  int64_t ranks = 1, threads = 1;  // compute threads of a rank
  int64_t memory = 0;              // bytes of a rank, of its device
  int64_t host = 0, disk = 0;      // and beside it; 0: none
  CertifiedModel model;
  std::vector<std::string> before, after;  // scopes that stand before and after the blocks
  std::string blocks;                      // "h", of "h.0", "h.1"
  std::vector<CertifiedRun> runs;          // of the blocks
  int64_t top = 1;                         // how many ways were asked for
  std::vector<CertifiedPlan> best;         // by time; fewer than asked for: no other fits
  CertifiedLedger ledger;
  // Each in ascending order of cuts. `alone`: of one data parallel rank, from which bounds follow of all cuts that are
  // the same in tp, cp, ep and sp (certified_least.h); with state and updates on the device.
  std::vector<CertifiedTable> alone, prices;
  friend bool operator==(const Certificate&, const Certificate&) = default;
};

std::string to_string(const Certificate& certificate);
// Throws kInvalidArgument with the line's number: another version, a line that is none, the wrong order, a checksum
// that is not that of the lines.
Certificate parse_certificate(std::string_view text);
bool is_certificate(std::string_view text);  // of whatever version, by its first words
// `lines` and the line that ends them.
std::string sealed_certificate(std::string_view lines);

}  // namespace trireme
