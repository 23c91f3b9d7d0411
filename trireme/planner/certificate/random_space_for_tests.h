// Random models with ranks and memory, and the ways that they have, for tests of certificates.
#pragma once

#include <array>
#include <random>

#include "trireme/planner/certificate/certified_problem_for_tests.h"
#include "trireme/planner/certificate/certified_space.h"

namespace trireme::verify_certificate_test {

class RandomSpace {
 public:
  explicit RandomSpace(uint64_t seed) : random_(seed) {
    model_ = {.layers = number(1, 6),
              .heads = number(0, 2) * 2,
              .experts = number(0, 3) == 0 ? std::array<int64_t, 3>{2, 12, 16}[seed % 3] : 0,
              .weights = number(0, 3) > 0 ? 1 : 0,
              .positions = number(0, 1),
              .vocabulary = number(0, 1) == 0 ? 0 : number(1, 4) * 6,
              .sequence = number(1, 4) * 1024,
              .batch = number(1, 12),
              .joined = number(0, 9) == 0 ? 1 : 0};
    const bool has_many_ranks = seed % 32 == 5;  // of a small model: it has many ways
    if (has_many_ranks) {
      model_.layers = 1;
      model_.experts = 0;
    }
    draw_runs();
    ranks_ = std::vector<int64_t>{1, 2, 3, 4, 6, 8, 16}[static_cast<size_t>(number(0, 6))];
    if (has_many_ranks) ranks_ = 32;
    if (ranks_ >= 16) model_.batch = ranks_ * number(1, 3);
    memory_ = number(0, 3) == 0 ? number(10, 100) : number(100, 400);
    // So few that a smaller sum makes no larger share.
    model_.parameter_bytes = number(0, 500);
    model_.state_bytes = number(0, 500);
    model_.update_fs_per_byte = number(0, 1) * number(1, 4'000);
    model_.weight_bytes = number(0, model_.parameter_bytes);
    room_ = {.device = memory_, .host = number(0, 1) * number(5, 250), .disk = number(0, 5) == 0 ? number(10, 250) : 0};
    if (has_many_ranks) room_.host = room_.disk = 0;
    find_groups();
  }

  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  using Group = std::vector<CertifiedWay>;
  const std::vector<Group>& groups() const { return groups_; }
  std::vector<CertifiedWay> space() const {
    std::vector<CertifiedWay> out;
    for (const Group& group : groups_) out.insert(out.end(), group.begin(), group.end());
    return out;
  }
  const CertifiedModel& model() const { return model_; }
  const Runs& runs() const { return runs_; }
  int64_t ranks() const { return ranks_; }
  const CertifiedRoom& room() const { return room_; }

 protected:
  void find_groups() {
    tiers_ = certified_tiers(model_, room_.host, room_.disk);
    groups_.clear();
    for_each_group(model_, ranks_, tiers_, [&](CertifiedGroup group) {
      std::vector<CertifiedWay>& ways = groups_.emplace_back();
      for (size_t i = 0; i < group.size(); ++i) ways.push_back(group[i]);
    });
  }

  void draw_runs() {
    int64_t kinds = 0;
    for (int64_t left = model_.layers; left > 0; left -= runs_.back().blocks) {
      int64_t kind = number(0, std::min<int64_t>(kinds, 2));
      if (!runs_.empty() && kind == runs_.back().kind) kind = kinds++;
      kinds = std::max(kinds, kind + 1);
      runs_.push_back({.kind = kind, .blocks = number(0, 1) == 0 ? left : number(1, left)});
    }
    kinds_ = static_cast<size_t>(kinds);
  }

  std::mt19937_64 random_;
  CertifiedModel model_;
  Runs runs_;
  size_t kinds_ = 1;
  int64_t ranks_ = 1, memory_ = 0;
  CertifiedRoom room_;
  CertifiedTiers tiers_;
  std::vector<Group> groups_;
};

}  // namespace trireme::verify_certificate_test
