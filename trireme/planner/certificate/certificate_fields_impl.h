// Names and order of the figures in the lines of a certificate, and how large they may be.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "trireme/planner/certificate/certificate.h"

namespace trireme {

inline constexpr int64_t kCertifiedMost = int64_t{1} << 60;  // a few of them can be added
inline constexpr int64_t kCertifiedRanks = 65'536;
inline constexpr int64_t kCertifiedBatch = int64_t{1} << 31;
inline constexpr int64_t kCertifiedLayers = 10'000;
inline constexpr int64_t kCertifiedKinds = 8;  // of blocks

inline constexpr size_t kCertifiedPassFields = 8;  // times of a micro-batch
inline constexpr std::array kCertifiedPartFields{
    &CertifiedPart::forward,     &CertifiedPart::input_grad,     &CertifiedPart::weight_grad,
    &CertifiedPart::again,       &CertifiedPart::moving_forward, &CertifiedPart::moving_backward,
    &CertifiedPart::leaving,     &CertifiedPart::returning,      &CertifiedPart::update,
    &CertifiedPart::sync,        &CertifiedPart::persistent,     &CertifiedPart::held,
    &CertifiedPart::gradients,   &CertifiedPart::kept,           &CertifiedPart::work,
    &CertifiedPart::waiting,     &CertifiedPart::coming,         &CertifiedPart::going,
    &CertifiedPart::host,        &CertifiedPart::disk,           &CertifiedPart::updating,
    &CertifiedPart::kept_host,   &CertifiedPart::kept_disk,      &CertifiedPart::adding,
    &CertifiedPart::sums,        &CertifiedPart::tied,           &CertifiedPart::tied_sums,
    &CertifiedPart::tied_adding, &CertifiedPart::tied_forward,   &CertifiedPart::tied_backward};

template <class Struct, size_t n>
using CertifiedNames = std::array<std::pair<std::string_view, int64_t Struct::*>, n>;

inline constexpr CertifiedNames<CertifiedModel, 16> kCertifiedModelNames{
    {{"layers", &CertifiedModel::layers},
     {"heads", &CertifiedModel::heads},
     {"experts", &CertifiedModel::experts},
     {"weights", &CertifiedModel::weights},
     {"positions", &CertifiedModel::positions},
     {"vocabulary", &CertifiedModel::vocabulary},
     {"sequence", &CertifiedModel::sequence},
     {"batch", &CertifiedModel::batch},
     {"joined", &CertifiedModel::joined},
     {"parameter_bytes", &CertifiedModel::parameter_bytes},
     {"state_bytes", &CertifiedModel::state_bytes},
     {"arithmetic_ps", &CertifiedModel::arithmetic_ps},
     {"host_fs_per_byte", &CertifiedModel::host_fs_per_byte},
     {"disk_fs_per_byte", &CertifiedModel::disk_fs_per_byte},
     {"update_fs_per_byte", &CertifiedModel::update_fs_per_byte},
     {"weight_bytes", &CertifiedModel::weight_bytes}}};

inline constexpr CertifiedNames<CertifiedLedger, 8> kCertifiedLedgerNames{
    {{"ways", &CertifiedLedger::ways},
     {"do_not_divide", &CertifiedLedger::do_not_divide},
     {"memory_least", &CertifiedLedger::memory_least},
     {"bound", &CertifiedLedger::bound},
     {"slower", &CertifiedLedger::slower},
     {"memory", &CertifiedLedger::memory},
     {"needless", &CertifiedLedger::needless},
     {"solved", &CertifiedLedger::solved}}};

}  // namespace trireme
