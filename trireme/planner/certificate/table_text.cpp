#include "trireme/base/joined_text.h"
#include "trireme/planner/certificate/table_text_impl.h"

#include <fmt/format.h>

#include <vector>

#include "trireme/base/hash.h"
#include "trireme/planner/certificate/certificate_fields_impl.h"

namespace trireme {
std::string part_numbers(const CertifiedPart& part) {
  std::vector<int64_t> numbers;
  for (const auto field : kCertifiedPartFields) numbers.push_back(part.*field);
  return joined_text(numbers, ",");
}

std::string_view part_name(size_t part, size_t parts) {
  return part == 0 ? "before" : part + 1 == parts ? "after" : "block";
}

std::string cut_words(const CertifiedCut& cut, bool is_alone) {
  std::string out = fmt::format("tp={} cp={} ep={} sp={} vocabulary={} rows={} recompute={} kept_slices={} keep={}",
                                cut.tp, cut.cp, cut.ep, cut.sp ? 1 : 0, cut.vocabulary ? 1 : 0, cut.rows,
                                to_string(cut.recompute), cut.kept_slices ? 1 : 0, to_string(cut.keep));
  if (!is_alone)
    out += fmt::format(" dp={} zero={} state={} update={}", cut.dp, cut.zero, to_string(cut.place.state),
                       to_string(cut.place.update));
  return out;
}

void read_part(LineReader& reader, std::string_view name, CertifiedPart& into, int64_t least) {
  const std::vector<int64_t> numbers = reader.numbers(name, least);
  constexpr size_t kFields = kCertifiedPartFields.size();
  if (numbers.size() != kFields) reader.wrong(fmt::format("{} has {} numbers, not {}", name, numbers.size(), kFields));
  for (size_t i = 0; i < kFields; ++i) into.*kCertifiedPartFields[i] = numbers[i];
}

CertifiedCut read_cut(LineReader& reader, bool is_alone) {
  CertifiedCut out;
  out.tp = reader.number_from("tp", 1, kCertifiedRanks);
  out.cp = reader.number_from("cp", 1, kCertifiedRanks);
  out.ep = reader.number_from("ep", 1, kCertifiedRanks);
  out.sp = reader.number_from("sp", 0, 1) == 1;
  out.vocabulary = reader.number_from("vocabulary", 0, 1) == 1;
  out.rows = reader.number_from("rows", 1, kCertifiedBatch);
  out.recompute = reader.choice("recompute", kWayRecompute);
  out.kept_slices = reader.number_from("kept_slices", 0, 1) == 1;
  out.keep = reader.choice("keep", kEveryTier);
  if (is_alone) return out;
  out.dp = reader.number_from("dp", 1, kCertifiedRanks);
  out.zero = reader.number_from("zero", 0, 3);
  out.place.state = reader.choice("state", kEveryTier);
  out.place.update = reader.choice("update", kEveryTier);
  if (out.place.update == Tier::kDisk || (out.place.update == Tier::kHost && out.place.state == Tier::kDevice))
    reader.wrong("updates run on the device, or on the host with their state elsewhere than on the device");
  return out;
}

std::string sealed(std::string_view lines) {
  return fmt::format("{}end {}\n", lines, sha256_hex(lines));
}

}  // namespace trireme
