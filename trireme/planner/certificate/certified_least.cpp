#include "trireme/planner/certificate/certified_least.h"

#include <algorithm>

#include "trireme/planner/certificate/certificate_fields_impl.h"
#include "trireme/planner/certificate/certified_passes.h"
#include "trireme/planner/certificate/certified_space.h"
#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
namespace {

// What each row adds to: fewer rows are no faster, one by one, and keep no less.
bool is_of_rows(size_t field) {
  const auto each = kCertifiedPartFields[field];
  return field < kCertifiedPassFields || each == &CertifiedPart::kept || each == &CertifiedPart::waiting ||
         each == &CertifiedPart::kept_host || each == &CertifiedPart::kept_disk;
}

// Optimizer parallelism divides at most the state by 1 and 2, and all there is by 3; and the state may lie elsewhere.
// Of Adam's state that is two of three, so that is asked of the model, in parts of 1,024.
int64_t least_of_persistent(int64_t bytes, const CertifiedCut& cut, const CertifiedModel& model) {
  const bool has_state = cut.place.state == Tier::kDevice;
  if (!has_state || cut.zero == 1 || cut.zero == 2) {
    const int64_t all = exact_sum(model.parameter_bytes, model.state_bytes);
    const int64_t left = certified_comes_for_step(cut) ? model.weight_bytes : model.parameter_bytes;
    bytes = exact_product(bytes, left / (all / 1024 + 1)) / 1024;
  }
  if (cut.zero < 3) return bytes;
  return bytes / exact_product(exact_product(cut.tp, cut.cp), exact_product(cut.ep, cut.dp));
}

}  // namespace

CertifiedCut certified_alone(CertifiedCut cut) {
  cut.dp = 1;
  cut.zero = 0;
  cut.place = {};
  return cut;
}

CertifiedCut certified_most_rows(CertifiedCut cut) {
  cut.rows = certified_most_rows_of_ways();
  return certified_alone(std::move(cut));
}

CertifiedCut certified_all_kept(CertifiedCut cut) {
  cut.recompute = WayRecompute::kNone;
  cut.kept_slices = false;
  cut.keep = Tier::kDevice;
  return cut;
}

CertifiedCut certified_whole_vocabulary(CertifiedCut cut) {
  cut.vocabulary = false;
  return cut;
}

CertifiedTable certified_blocks_of(const CertifiedTable& table, const CertifiedCut& cut) {
  CertifiedTable out{.cut = cut, .crossing = table.crossing};
  out.parts.resize(table.parts.size());
  for (size_t block = 1; block + 1 < out.parts.size(); ++block) {
    for (size_t i = 0; i < kCertifiedPassFields; ++i)
      out.parts[block].*kCertifiedPartFields[i] = table.parts[block].*kCertifiedPartFields[i];
  }
  return out;
}

std::optional<CertifiedCut> certified_by_tp(CertifiedCut cut) {
  if (cut.cp * cut.ep == 1 && !cut.vocabulary) return std::nullopt;
  cut = certified_all_kept(certified_most_rows(std::move(cut)));
  cut.cp = 1;
  cut.ep = 1;
  cut.vocabulary = false;
  return cut;
}

std::optional<CertifiedCut> certified_by_fewer_tp(CertifiedCut cut) {
  constexpr int64_t kFewerTp = 8;
  if (cut.tp == kFewerTp || cut.tp % kFewerTp != 0) return std::nullopt;
  cut = certified_all_kept(certified_most_rows(std::move(cut)));
  cut.tp = kFewerTp;
  cut.cp = 1;
  cut.ep = 1;
  cut.vocabulary = false;
  return cut;
}

std::optional<CertifiedCut> certified_by_tp_and_ep(CertifiedCut cut) {
  if (cut.ep == 1) return std::nullopt;
  const int64_t ep = cut.ep;
  auto out = cut.cp == 1 && !cut.vocabulary ? std::nullopt : certified_by_tp(std::move(cut));
  if (out) out->ep = ep;
  return out;
}

std::vector<CertifiedCut> certified_by_fewer_ep(const CertifiedCut& cut) {
  std::vector<CertifiedCut> out;
  for (int64_t ep = 2; ep <= 16; ep *= 2) {
    if (cut.ep == ep || cut.ep % ep != 0) break;
    out.push_back(*certified_by_tp(cut));
    out.back().ep = ep;
  }
  return out;
}

std::optional<CertifiedCut> certified_by_half_cp(const CertifiedCut& cut) {
  auto out = cut.cp % 4 == 0 ? certified_by_tp(cut) : std::nullopt;
  if (out) {
    out->cp = cut.cp / 2;
    out->ep = cut.ep;
  }
  return out;
}

CertifiedTable certified_least_by_fewer(const CertifiedTable& fewer, const CertifiedCut& cut) {
  CertifiedTable out{.cut = cut};
  out.parts.resize(fewer.parts.size());
  for (size_t block = 1; block + 1 < out.parts.size(); ++block) {
    for (size_t i = 0; i < kCertifiedPassFields; ++i) {
      const auto field = kCertifiedPartFields[i];
      const bool moves = field == &CertifiedPart::moving_forward || field == &CertifiedPart::moving_backward;
      if (field == &CertifiedPart::leaving || field == &CertifiedPart::returning) continue;  // all is kept here
      if (!moves && (cut.ep != fewer.cut.ep || field == &CertifiedPart::again)) continue;
      const int64_t whole = field == &CertifiedPart::weight_grad ? fewer.parts[block].adding : 0;
      const int64_t more_tp = cut.tp / fewer.cut.tp, more_cp = cut.cp / fewer.cut.cp;
      const int64_t of_piece =
          (fewer.parts[block].*field - whole) / (moves ? more_cp : exact_product(more_tp, more_cp));
      out.parts[block].*field = exact_sum(whole / more_tp, exact_product(of_piece, cut.rows) / fewer.cut.rows);
    }
  }
  return out;
}

std::optional<CertifiedCut> certified_kept_without_ep(CertifiedCut cut) {
  if (cut.keep == Tier::kDevice || (cut.ep == 1 && !cut.vocabulary)) return std::nullopt;
  cut.ep = 1;
  cut.vocabulary = false;
  return certified_most_rows(std::move(cut));
}

CertifiedTable with_kept_moves(CertifiedTable table, const CertifiedTable& known) {
  for (size_t block = 1; block + 1 < table.parts.size(); ++block) {
    for (const auto field : {&CertifiedPart::leaving, &CertifiedPart::returning}) {
      int64_t& moves = table.parts[block].*field;
      moves = std::max(moves, exact_product(known.parts[block].*field, table.cut.rows) / known.cut.rows);
    }
  }
  return table;
}

std::optional<CertifiedCut> certified_few_ranks(CertifiedCut cut) {
  constexpr int64_t kFew = 8;
  if (cut.dp <= kFew || cut.dp % kFew != 0) return std::nullopt;
  cut.dp = kFew;
  cut.kept_slices = false;
  cut.keep = Tier::kDevice;
  cut.place = {};
  return cut;
}

CertifiedTable with_moved(CertifiedTable table, const CertifiedTable& few) {
  for (size_t part = 0; part < table.parts.size(); ++part) {
    for (const auto field : {&CertifiedPart::moving_forward, &CertifiedPart::moving_backward, &CertifiedPart::sync})
      table.parts[part].*field = std::max(table.parts[part].*field, few.parts[part].*field);
  }
  return table;
}

std::optional<CertifiedCut> certified_without_slices(CertifiedCut cut) {
  if (cut.zero == 0) return std::nullopt;
  cut.zero = 0;
  cut.rows = 1;
  cut.vocabulary = false;
  cut.place = {};
  return certified_all_kept(std::move(cut));
}

std::optional<CertifiedCut> certified_fewest_sums(CertifiedCut without) {
  auto out = certified_few_ranks(std::move(without));
  if (out) {
    out->cp = 1;
    out->sp = false;
  }
  return out;
}

CertifiedTable with_exchanged(CertifiedTable table, const CertifiedSums& by) {
  for (size_t block = 1; block + 1 < table.parts.size(); ++block) {
    const int64_t sums = by.summed.parts[block].sync;
    int64_t& once = table.parts[block].sync;
    int64_t& each = table.parts[block].moving_backward;
    if (table.cut.zero == 1) {
      once = std::max(once, sums);
      continue;
    }
    const int64_t of_ranks = std::max(sums, by.unsummed.parts[block].sync) - by.unsummed.parts[block].sync;
    each = std::max(each, exact_sum(by.alone.parts[block].moving_backward, of_ranks / 32 * 15));
  }
  return table;
}

CertifiedTable certified_least(const CertifiedTable& alone, const CertifiedCut& cut, const CertifiedModel& model) {
  CertifiedTable out{.cut = cut, .crossing = exact_product(alone.crossing, cut.rows) / alone.cut.rows};
  out.parts.resize(alone.parts.size());
  const bool is_whole = certified_alone(cut) == alone.cut && cut.zero == 0;
  for (size_t part = 0; part < alone.parts.size(); ++part) {
    for (size_t i = 0; i < kCertifiedPartFields.size(); ++i) {
      const auto field = kCertifiedPartFields[i];
      if (field == &CertifiedPart::adding || field == &CertifiedPart::sums) continue;  // of others
      if (field == &CertifiedPart::tied || field == &CertifiedPart::tied_adding ||
          field == &CertifiedPart::tied_forward || field == &CertifiedPart::tied_backward)
        continue;
      if (field == &CertifiedPart::tied_sums) {  // what others need is no more than all but these
        out.parts[part].tied_sums = cut.zero <= 1 ? alone.parts[part].tied_sums : 0;
        continue;
      }
      const int64_t of_alone = alone.parts[part].*field;
      int64_t& to = out.parts[part].*field;
      if (field == &CertifiedPart::weight_grad) {  // gradients are added once, of however many rows
        const int64_t adding = alone.parts[part].adding;
        to = exact_sum(adding, exact_product(of_alone - adding, cut.rows) / alone.cut.rows);
      } else if (is_of_rows(i)) {
        to = exact_product(of_alone, cut.rows) / alone.cut.rows;
      } else if (field == &CertifiedPart::persistent) {
        int64_t& on_device = certified_comes_for_step(cut) ? out.parts[part].held : to;
        on_device = least_of_persistent(of_alone, cut, model);
      } else if (is_whole && (cut.place.state == Tier::kDevice || field == &CertifiedPart::sync ||
                              (field == &CertifiedPart::update && cut.place.update == Tier::kDevice))) {
        to = field == &CertifiedPart::update ? of_alone - alone.parts[part].tied_adding : of_alone;
      } else if (field == &CertifiedPart::gradients && cut.zero <= 1) {
        to = alone.parts[part].sums;  // which are whole
      }
    }
  }
  return out;
}

int64_t certified_moves_ps(const CertifiedCut& cut, const CertifiedModel& model) {
  if (cut.place == CertifiedPlace()) return 0;
  int64_t pieces = exact_product(cut.tp, cut.ep);  // each of which some rank of a crew has
  if (cut.zero > 0) pieces = exact_product(pieces, exact_product(cut.cp, cut.dp));
  int64_t fs = cut.place.update == Tier::kHost  ? model.update_fs_per_byte
               : cut.place.state == Tier::kHost ? model.host_fs_per_byte
                                                : 0;
  if (cut.place.state == Tier::kDisk) fs = std::max(fs, model.disk_fs_per_byte);
  return exact_product(model.state_bytes / pieces, fs) / 1000;
}

void check_moves(const CertifiedTable& table, const std::vector<CertifiedRun>& runs, const CertifiedModel& model) {
  if (table.is_refused || table.cut.place == CertifiedPlace()) return;
  const auto moves = [&](size_t part) { return certified_moves_of(table.parts[part]); };
  int64_t all = exact_sum(moves(0), moves(table.parts.size() - 1));
  for (const CertifiedRun& run : runs)
    all = exact_sum(all, exact_product(moves(static_cast<size_t>(run.kind) + 1), run.blocks));
  require(all >= certified_moves_ps(table.cut, model),
          "certificate: in a table with dp={}, moving or updating the optimizer's state on the {} takes {} ps, less "
          "than its bytes need",
          table.cut.dp, to_string(table.cut.place.state), all);
}

void check_no_less(const CertifiedTable& table, const CertifiedTable& least) {
  const CertifiedCut& cut = table.cut;
  for (size_t part = 0; part < least.parts.size(); ++part) {
    for (const auto field : kCertifiedPartFields) {
      if (field == &CertifiedPart::tied_sums) continue;  // it is not needed
      require(table.parts[part].*field >= least.parts[part].*field && table.crossing >= least.crossing,
              "certificate: the prices of tp={} cp={} ep={} dp={} sp={} vocabulary={} zero={} rows={} recompute={} "
              "kept_slices={} keep={} state={} update={} are below their bounds",
              cut.tp, cut.cp, cut.ep, cut.dp, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0, cut.zero, cut.rows,
              to_string(cut.recompute), cut.kept_slices ? 1 : 0, to_string(cut.keep), to_string(cut.place.state),
              to_string(cut.place.update));
    }
  }
}

}  // namespace trireme
