// A certificate's tables in the form that the search uses, for tests of certificates.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/certified_price.h"
#include "trireme/planner/outer/least_part.h"
#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme::verify_certificate_test {

inline constexpr std::pair<int64_t CertifiedPart::*, int64_t PartPrice::*> kFields[] = {
    {&CertifiedPart::forward, &PartPrice::forward},
    {&CertifiedPart::input_grad, &PartPrice::input_grad},
    {&CertifiedPart::weight_grad, &PartPrice::weight_grad},
    {&CertifiedPart::again, &PartPrice::again},
    {&CertifiedPart::moving_forward, &PartPrice::moving_forward},
    {&CertifiedPart::moving_backward, &PartPrice::moving_backward},
    {&CertifiedPart::leaving, &PartPrice::leaving},
    {&CertifiedPart::returning, &PartPrice::returning},
    {&CertifiedPart::update, &PartPrice::update},
    {&CertifiedPart::sync, &PartPrice::sync},
    {&CertifiedPart::persistent, &PartPrice::persistent},
    {&CertifiedPart::held, &PartPrice::held},
    {&CertifiedPart::gradients, &PartPrice::gradients},
    {&CertifiedPart::kept, &PartPrice::kept},
    {&CertifiedPart::work, &PartPrice::work},
    {&CertifiedPart::waiting, &PartPrice::waiting},
    {&CertifiedPart::coming, &PartPrice::coming},
    {&CertifiedPart::going, &PartPrice::going},
    {&CertifiedPart::host, &PartPrice::host},
    {&CertifiedPart::disk, &PartPrice::disk},
    {&CertifiedPart::updating, &PartPrice::updating},
    {&CertifiedPart::kept_host, &PartPrice::kept_host},
    {&CertifiedPart::kept_disk, &PartPrice::kept_disk},
    {&CertifiedPart::adding, &PartPrice::adding},
    {&CertifiedPart::sums, &PartPrice::sums},
    {&CertifiedPart::tied, &PartPrice::tied},
    {&CertifiedPart::tied_sums, &PartPrice::tied_sums},
    {&CertifiedPart::tied_adding, &PartPrice::tied_adding},
    {&CertifiedPart::tied_forward, &PartPrice::tied_forward},
    {&CertifiedPart::tied_backward, &PartPrice::tied_backward}};
inline constexpr size_t kBeside = 23;    // of the fields above; the last seven are of others
inline constexpr size_t kOnDevice = 16;  // of the fields above; the others are of what lies elsewhere
inline constexpr size_t kPasses = 8;     // of the fields above
inline PartPrice as_price(const CertifiedPart& part) {
  PartPrice out;
  for (const auto& [from, to] : kFields) out.*to = part.*from;
  return out;
}

inline const PipelineShape& shape_once(const CertifiedWay& way) {
  static std::map<std::tuple<WaySchedule, int64_t, int64_t>, PipelineShape> shapes;
  const std::tuple key(way.schedule, way.pp, way.virtual_stages);
  const auto found = shapes.find(key);
  if (found != shapes.end()) return found->second;
  return shapes.emplace(key, shape_of_schedule(schedule_of(way.schedule), way.pp, way.virtual_stages)).first->second;
}

using Runs = std::vector<CertifiedRun>;

inline StageProblem as_problem(const CertifiedWay& way, const CertifiedTable& table, const Runs& runs,
                               const CertifiedRoom& room) {
  StageProblem out{.shape = shape_once(way),
                   .micro_batches = way.micro_batches,
                   .crossing = table.crossing,
                   .memory = room.device,
                   .host = room.host,
                   .disk = room.disk};
  out.parts.push_back(as_price(table.parts.front()));
  for (const CertifiedRun& run : runs) {
    for (int64_t i = 0; i < run.blocks; ++i)
      out.parts.push_back(as_price(table.parts[static_cast<size_t>(run.kind) + 1]));
  }
  out.parts.push_back(as_price(table.parts.back()));
  if (way.pp == 1) in_one_stage(out.parts);
  return out;
}

inline CertifiedCut own_of(CertifiedCut cut) {
  cut.dp = 1;
  cut.zero = 0;
  cut.place = {};
  return cut;
}
inline CertifiedCut most_of(CertifiedCut cut) {
  cut.rows = 8;
  return own_of(std::move(cut));
}

}  // namespace trireme::verify_certificate_test
