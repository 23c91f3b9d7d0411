#include "trireme/exec/run/agree.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme {
namespace {

// What rank `root` has, on all ranks.
std::string text_of(int root, const std::string& mine, comm::World& world) {
  auto size = static_cast<int64_t>(mine.size());
  world.all().broadcast({reinterpret_cast<std::byte*>(&size), {DType::kI64, {1}}}, root).wait();
  std::string out = mine;
  out.resize(static_cast<size_t>(size));
  world.all().broadcast({reinterpret_cast<std::byte*>(out.data()), {DType::kU8, {size}}}, root).wait();
  return out;
}

// What differs of the line, with what stands around it.
std::string_view part_of(std::string_view line, size_t differs_at) {
  constexpr size_t kBefore = 120, kShown = 200;
  return line.substr(differs_at > kBefore && line.size() > kShown ? differs_at - kBefore : 0, kShown);
}

// The first line in which the texts of two plans differ, as each has it. Values and their places in memory follow from
// what is done: lines about them are told last.
std::string first_difference(std::string_view a, std::string_view b, int rank_of_b) {
  static constexpr std::string_view kOfMemory[] = {"arena", "buffer", "value"};
  struct Line {
    int number = 0;
    std::string_view text;
  };
  const auto lines = [](std::string_view text, bool of_memory) {
    std::vector<Line> out;
    for (int number = 1; !text.empty(); ++number) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      const bool is_of_memory =
          std::ranges::any_of(kOfMemory, [&](std::string_view word) { return line.starts_with(word); });
      if (is_of_memory == of_memory) out.push_back({number, line});
    }
    return out;
  };
  for (const bool of_memory : {false, true}) {
    const std::vector<Line> in_a = lines(a, of_memory), in_b = lines(b, of_memory);
    for (size_t i = 0; i < std::max(in_a.size(), in_b.size()); ++i) {
      const Line here = i < in_a.size() ? in_a[i] : Line{}, there = i < in_b.size() ? in_b[i] : Line{};
      if (here.text == there.text) continue;
      const auto [end_a, end_b] = std::ranges::mismatch(here.text, there.text);
      const auto at = static_cast<size_t>(end_a - here.text.begin());
      return fmt::format("line {} of the plan is first to differ: '{}' on rank 0, '{}' on rank {}",
                         std::max(here.number, there.number), part_of(here.text, at), part_of(there.text, at),
                         rank_of_b);
    }
  }
  return "";
}

}  // namespace

void agree(const std::vector<const ExecutionPlan*>& crews, comm::World& world) {
  std::vector<uint64_t> of_crews;
  for (const ExecutionPlan* plan : crews) of_crews.push_back(hash(*plan));
  uint64_t mine = crews.size() == 1 ? of_crews[0] : hash64(std::as_bytes(std::span(of_crews)));
  std::vector<uint64_t> all(static_cast<size_t>(world.size()));
  const View in{reinterpret_cast<std::byte*>(&mine), {DType::kI64, {1}}};
  const View out{reinterpret_cast<std::byte*>(all.data()), {DType::kI64, {world.size()}}};
  world.all().all_gather(in, out).wait();
  std::vector<int> others;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (all[static_cast<size_t>(rank)] != all[0]) others.push_back(rank);
  }
  if (others.empty()) return;
  std::string list;
  for (const int rank : others) list += fmt::format("{}{}", list.empty() ? "" : ", ", rank);
  // With other instructions buffers mostly differ as well; the cause is what is told.
  const std::string bits = text_of(0, crews[0]->bits, world);
  const std::string other_bits = text_of(others[0], crews[0]->bits, world);
  require(bits == other_bits,
          "the ranks would compute with different instructions, so copies of a value on several ranks would differ: "
          "rank {} is '{}', rank 0 is '{}'; set TRIREME_ISA on all ranks to a set that each of them has",
          others[0], other_bits, bits);
  std::string text;
  for (const ExecutionPlan* plan : crews) text += to_string(*plan);
  const std::string first = text_of(0, text, world);
  const std::string other = text_of(others[0], text, world);
  fail(
      ErrorKind::kInvalidArgument,
      "the ranks have planned different programs: rank {} (plan {:016x}) differs from rank 0 (plan {:016x}); {}; start "
      "all ranks with the same configuration, program and TRIREME_* settings",
      list, all[static_cast<size_t>(others[0])], all[0], first_difference(first, other, others[0]));
}

}  // namespace trireme
