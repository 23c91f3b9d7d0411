// The words of a table's line: its cut, and the figures of its parts. And the line that ends a file of such lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/planner/certificate/certificate.h"
#include "trireme/planner/certificate/line_reader_impl.h"

namespace trireme {

// The cut of a table of one data parallel rank has no dp, zero and place of its own.
std::string cut_words(const CertifiedCut& cut, bool is_alone);
CertifiedCut read_cut(LineReader& reader, bool is_alone);

// The word that stands for one of so many parts; and its figures, none below `least`.
std::string_view part_name(size_t part, size_t parts);
std::string part_numbers(const CertifiedPart& part);
void read_part(LineReader& reader, std::string_view name, CertifiedPart& into, int64_t least = 0);

// `lines`, and the one that ends them with their checksum.
std::string sealed(std::string_view lines);

}  // namespace trireme
