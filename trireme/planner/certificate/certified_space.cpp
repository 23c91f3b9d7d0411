#include "trireme/planner/certificate/certified_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/planner/certificate/exact_numbers_impl.h"

namespace trireme {
namespace {

// A change of the space is a change of the certificate's version.
constexpr int64_t kCertifiedMostRows = 8;
constexpr int64_t kCertifiedFewestPositions = 1024;
constexpr std::array kCertifiedSchedules{WaySchedule::k1F1B, WaySchedule::kZbH1, WaySchedule::kZbH2};
constexpr std::array kCertifiedInterleaved{WaySchedule::kInterleaved, WaySchedule::kInterleavedDelayed};
constexpr std::array kCertifiedRecompute{WayRecompute::kNone, WayRecompute::kSelective, WayRecompute::kFull};

// All values from 1 to `of` that divide it and that `is_allowed`.
template <class Allowed>
std::vector<int64_t> dividing(int64_t of, Allowed is_allowed) {
  std::vector<int64_t> out;
  for (int64_t value = 1; value <= of; ++value) {
    if (of % value == 0 && is_allowed(value)) out.push_back(value);
  }
  return out;
}

class SpaceOf {
 public:
  SpaceOf(const CertifiedModel& model, int64_t ranks, const CertifiedTiers& tiers,
          const std::function<void(CertifiedGroup)>& look, const CertifiedWay* like)
      : model_(model),
        ranks_(ranks),
        measures_(measures_of(tiers, false)),
        measures_with_slices_(measures_of(tiers, true)),
        look_(look),
        like_(like) {}

  void look_at_all() {
    for (const int64_t tp : dividing(ranks_, [&](int64_t v) { return v == 1 || model_.weights == 1; })) {
      if (model_.heads > 0 && model_.heads % tp != 0) continue;
      if (like_ != nullptr && like_->cut.tp != tp) continue;
      for (const int64_t pp : dividing(ranks_ / tp, [&](int64_t v) { return v <= most_stages(); })) {
        if (like_ == nullptr || like_->pp == pp) add(tp, pp);
      }
    }
  }

 private:
  int64_t most_stages() const { return model_.joined == 1 ? 1 : model_.layers + 2; }

  void add(int64_t tp, int64_t pp) {
    const int64_t left = ranks_ / tp / pp;
    const auto may_cp = [&](int64_t v) {
      return v == 1 || (model_.positions == 1 && model_.sequence / v >= kCertifiedFewestPositions);
    };
    const auto may_ep = [&](int64_t v) { return v == 1 || (model_.experts > 0 && model_.experts % v == 0); };
    for (const int64_t cp : dividing(left, may_cp)) {
      for (const int64_t ep : dividing(left / cp, may_ep)) {
        CertifiedWay way{.pp = pp, .cut = {.tp = tp, .cp = cp, .ep = ep, .dp = left / cp / ep}};
        add_vocabulary(way);
        way.cut.sp = true;
        if (tp > 1 && model_.positions == 1) add_vocabulary(way);
      }
    }
  }

  // Where tp cuts it without rest.
  void add_vocabulary(CertifiedWay way) {
    add_rows(way);
    way.cut.vocabulary = way.cut.tp > 1 && model_.vocabulary > 0 && model_.vocabulary % way.cut.tp == 0;
    if (way.cut.vocabulary) add_rows(way);
  }

  void add_rows(CertifiedWay way) {
    const int64_t shares = way.cut.dp * way.cut.ep;
    if (model_.batch % shares != 0) {
      way.micro_batches = 0;
      add_rest(way);
      return;
    }
    const int64_t samples = model_.batch / shares;
    if (model_.joined == 1) {  // all are kept until the last one has gone forward
      way.cut.rows = samples;
      way.micro_batches = 1;
      add_rest(way);
      return;
    }
    for (way.cut.rows = 1; way.cut.rows <= kCertifiedMostRows; ++way.cut.rows) {
      way.micro_batches = samples / way.cut.rows;
      if (way.micro_batches * way.cut.rows == samples) add_rest(way);
    }
  }

  void add_rest(CertifiedWay way) {
    for (const WaySchedule schedule : kCertifiedSchedules) {
      if (way.pp == 1 && schedule != kCertifiedSchedules.front()) continue;
      way.schedule = schedule;
      add_slices(way);
    }
    if (way.pp == 1) return;
    // Stages of a crew are alike where their number divides the blocks of the crew with the most.
    const int64_t most = (model_.layers + way.pp - 1) / way.pp;
    for (way.virtual_stages = 2; way.virtual_stages <= most; ++way.virtual_stages) {
      if (most % way.virtual_stages != 0 || way.virtual_stages * way.pp > model_.layers + 2) continue;
      for (const WaySchedule schedule : kCertifiedInterleaved) {
        way.schedule = schedule;
        add_slices(way);
      }
    }
  }

  void add_slices(CertifiedWay way) {
    const bool has_copies = ranks_ / way.pp > way.cut.tp;
    for (way.cut.zero = 0; way.cut.zero <= (has_copies ? 3 : 0); ++way.cut.zero) {
      for (const WayRecompute recompute : kCertifiedRecompute) {
        way.cut.recompute = recompute;
        look_at_group(way);
      }
    }
  }

  void look_at_group(const CertifiedWay& way) const {
    look_(CertifiedGroup(way, way.cut.tp > 1 ? measures_with_slices_ : measures_));
  }

  static std::vector<CertifiedMeasures> measures_of(const CertifiedTiers& tiers, bool slices) {
    std::vector<CertifiedMeasures> out;
    for (size_t place = 0; place <= tiers.places.size(); ++place) {
      for (size_t keep = 0; keep <= tiers.keeps.size(); ++keep) {
        for (int slice = 0; slice <= (slices ? 1 : 0); ++slice) {
          out.push_back({.kept_slices = slice == 1,
                         .keep = keep > 0 ? tiers.keeps[keep - 1] : Tier::kDevice,
                         .place = place > 0 ? tiers.places[place - 1] : CertifiedPlace()});
        }
      }
    }
    return out;
  }

  const CertifiedModel& model_;
  int64_t ranks_;
  const std::vector<CertifiedMeasures> measures_, measures_with_slices_;
  const std::function<void(CertifiedGroup)>& look_;
  const CertifiedWay* like_;
};

}  // namespace

CertifiedWay CertifiedGroup::operator[](size_t i) const {
  CertifiedWay out = first_;
  out.cut.kept_slices = measures_[i].kept_slices;
  out.cut.keep = measures_[i].keep;
  out.cut.place = measures_[i].place;
  return out;
}

bool CertifiedGroup::has(const CertifiedWay& way) const {
  CertifiedWay first = way;
  first.cut.kept_slices = false;
  first.cut.keep = Tier::kDevice;
  first.cut.place = {};
  if (first != first_) return false;
  return std::ranges::any_of(measures_, [&](const CertifiedMeasures& each) {
    return each.kept_slices == way.cut.kept_slices && each.keep == way.cut.keep && each.place == way.cut.place;
  });
}

void for_each_group(const CertifiedModel& model, int64_t ranks, const CertifiedTiers& tiers,
                    const std::function<void(CertifiedGroup)>& look, const CertifiedWay* like) {
  SpaceOf(model, ranks, tiers, look, like).look_at_all();
}

bool is_no_slower_in_group(const CertifiedCut& less, const CertifiedCut& more) {
  if (less.keep > more.keep || !is_as_near(less.place, more.place)) return false;
  return less.kept_slices == more.kept_slices || (more.kept_slices && less.keep == Tier::kDevice);
}

bool is_next_in_group(const CertifiedCut& less, const CertifiedCut& more, const CertifiedTiers& tiers) {
  if (!is_no_slower_in_group(less, more)) return false;
  const bool has_place = less.place != more.place, has_keep = less.keep != more.keep;
  if (static_cast<int>(has_place) + static_cast<int>(has_keep) + (less.kept_slices != more.kept_slices ? 1 : 0) != 1)
    return false;
  if (has_keep) return std::ranges::none_of(tiers.keeps, [&](Tier t) { return less.keep < t && t < more.keep; });
  return !has_place || std::ranges::none_of(tiers.places, [&](const CertifiedPlace& between) {
    return between != less.place && between != more.place && is_as_near(less.place, between) &&
           is_as_near(between, more.place);
  });
}

bool is_as_near(const CertifiedPlace& nearer, const CertifiedPlace& place) {
  if (nearer == CertifiedPlace()) return true;
  return nearer.update == place.update && nearer.state <= place.state;
}

// Micro-batches that depend on each other keep what is of all.
CertifiedTiers certified_tiers(const CertifiedModel& model, int64_t host_bytes, int64_t disk_bytes) {
  CertifiedTiers out;
  if (model.joined == 0 && host_bytes > 0) out.keeps.push_back(Tier::kHost);
  if (model.joined == 0 && disk_bytes > 0) out.keeps.push_back(Tier::kDisk);
  if (model.state_bytes == 0) return out;
  std::vector<CertifiedPlace>& places = out.places;
  if (host_bytes > 0) places.push_back({.state = Tier::kHost, .update = Tier::kDevice});
  if (disk_bytes > 0) places.push_back({.state = Tier::kDisk, .update = Tier::kDevice});
  if (host_bytes == 0 || model.update_fs_per_byte == 0) return out;  // parameters that are updated there lie there
  places.push_back({.state = Tier::kHost, .update = Tier::kHost});
  if (disk_bytes > 0) places.push_back({.state = Tier::kDisk, .update = Tier::kHost});
  return out;
}

bool certified_comes_for_step(const CertifiedCut& cut) {
  return cut.place.update == Tier::kHost && cut.zero != 1 && cut.zero != 2;
}

std::string certified_way_text(const CertifiedWay& way) {
  const CertifiedCut& cut = way.cut;
  std::string out = fmt::format("pp={} tp={} cp={} ep={} dp={} sp={} vocabulary={} zero={} rows={} recompute={}",
                                way.pp, cut.tp, cut.cp, cut.ep, cut.dp, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0,
                                cut.zero, cut.rows, to_string(cut.recompute));
  if (cut.kept_slices) out += " kept_slices=1";
  if (cut.keep != Tier::kDevice) out += fmt::format(" keep={}", to_string(cut.keep));
  if (way.pp > 1) out += fmt::format(" schedule={}", to_string(way.schedule));
  if (way.virtual_stages > 1) out += fmt::format(" virtual_stages={}", way.virtual_stages);
  if (cut.place.state != Tier::kDevice) out += fmt::format(" state={}", to_string(cut.place.state));
  if (cut.place.update != Tier::kDevice) out += fmt::format(" update={}", to_string(cut.place.update));
  return out;
}

std::string certified_space_text() {
  return "pp, tp, cp and ep that divide the ranks, sp, a vocabulary that tp cuts, zero 0 to 3, recomputation, what "
         "is kept whole or in slices, this and the optimizer's state on the device, the host or the disk, updates on "
         "the device or the host, 1f1b, zb-h1 and zb-h2, 1 to 8 rows of a micro-batch, and every cut of the parts into "
         "stages; interleaved stages in even cuts; where micro-batches depend on each other, one stage and one "
         "micro-batch";
}

int64_t certified_most_rows_of_ways() {
  return kCertifiedMostRows;
}

bool certified_way_divides(const CertifiedWay& way) {
  if (way.schedule == WaySchedule::kZbH2) return way.micro_batches > 2 * (way.pp - 1);  // it runs ahead by so many
  if (way.virtual_stages > 1 && way.micro_batches % way.pp != 0) return false;          // they go in groups of so many
  return way.micro_batches >= way.pp;
}

int64_t certified_least_bytes(const CertifiedWay& way, const CertifiedModel& model, int64_t ranks) {
  const int64_t stage_pieces = way.pp * way.cut.tp * way.cut.ep;
  const auto in_pieces = [&](int64_t bytes, bool in_slices) { return bytes / (in_slices ? ranks : stage_pieces); };
  const int64_t weights = certified_comes_for_step(way.cut) ? model.weight_bytes : model.parameter_bytes;
  int64_t out = in_pieces(weights, way.cut.zero >= 3);
  if (way.cut.place.state == Tier::kDevice) out = exact_sum(out, in_pieces(model.state_bytes, way.cut.zero >= 1));
  // Sums of gradients, which several micro-batches add to.
  if (way.micro_batches > 1) out = exact_sum(out, in_pieces(model.parameter_bytes, way.cut.zero >= 1));
  return out;
}

int64_t certified_arithmetic_ps(const CertifiedWay& way, const CertifiedModel& model) {
  if (way.schedule != WaySchedule::k1F1B) return model.arithmetic_ps;
  // Besides the slowest stage, which takes an average one's or more, all run one micro-batch while it waits.
  return exact_sum(model.arithmetic_ps, exact_product(model.arithmetic_ps, way.pp - 1) / way.micro_batches);
}

}  // namespace trireme
