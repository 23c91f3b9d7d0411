#include "trireme/train/job/rules.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

struct Parted {
  std::string pattern, asked;
};

// At the first '=': no pattern has one.
Parted part(const std::string& text) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view all = text;
  Parted out{std::string(trim(all.substr(0, equals))), std::string(trim(all.substr(std::min(equals + 1, all.size()))))};
  require(!out.pattern.empty() && !out.asked.empty(),
          "'{}' must be \"pattern = cuts\", like \"h.*.mlp.c_fc = [dp, -, -], [-, tp]\"", text);
  return out;
}

LayoutRule read_layout_rule(const std::string& text) {
  const Parted rule = part(text);
  return {rule.pattern, rule.asked};
}
std::string print_layout_rule(const LayoutRule& rule) {
  return fmt::format("{} = {}", rule.pattern, to_string(rule.layout));
}

OpRule read_op_rule(const std::string& text) {
  const Parted rule = part(text);
  return {rule.pattern, rule.asked};
}
std::string print_op_rule(const OpRule& rule) {
  return fmt::format("{} = {}", to_string(rule.pattern), rule.asked.text);
}

PieceRule read_piece_rule(const std::string& text) {
  if (text.find('=') == std::string::npos) return {std::string(trim(text)), kOwnPiece};
  const Parted rule = part(text);
  return {rule.pattern, rule.asked};
}
std::string print_piece_rule(const PieceRule& rule) {
  return rule.piece.is_own() ? rule.pattern : fmt::format("{} = {}", rule.pattern, to_string(rule.piece));
}

StageRule read_stage_rule(const std::string& text) {
  const auto refuse = [&] {
    fail(ErrorKind::kInvalidArgument, "'{}' is not \"scope = stage\", like \"h.0..5 = 0\"", text);
  };
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) refuse();
  const std::string_view all = text;
  const std::string_view pattern = trim(all.substr(0, equals)), number = trim(all.substr(equals + 1));
  int stage = -1;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), stage);
  if (pattern.empty() || number.empty() || status != std::errc() || end != number.data() + number.size() || stage < 0)
    refuse();
  return {pattern, stage};
}
std::string print_stage_rule(const StageRule& rule) {
  return fmt::format("{} = {}", rule.pattern.text(), rule.stage);
}

using Keep = Recompute::Rule::Keep;
constexpr NameOf<Keep> kKeeps[] = {{"again", Keep::kAgain},
                                   {"device", Keep::kMemory},
                                   {"slices", Keep::kSlice},
                                   {"host", Keep::kHost},
                                   {"disk", Keep::kDisk}};

Recompute::Rule read_keep_rule(const std::string& text) {
  const Parted rule = text.find('=') == std::string::npos ? Parted{text, ""} : part(text);
  const auto found = std::ranges::find(kKeeps, rule.asked, &NameOf<Keep>::name);
  require(rule.asked != "memory", "'{}': what is kept in the device's memory is 'device', as in parallel.home", text);
  require(
      found != std::end(kKeeps),
      "'{}': after '=' stands 'device', for what is kept in its memory, 'slices', for what ranks that have the same "
      "keep slices of, 'host' or 'disk', for what is kept in the host's memory or on the disk, or 'again', for "
      "what is computed again",
      text);
  return {.pattern = rule.pattern, .keep = found->value};
}
std::string print_keep_rule(const Recompute::Rule& rule) {
  return fmt::format("{} = {}", to_string(rule.pattern), name_of(rule.keep, kKeeps));
}

std::string print_home_rule(const HomeRule& rule) {
  return to_string(rule);
}

std::string print_host_rule(const HostRule& rule) {
  return to_string(rule);
}

std::string print_prefetch_rule(const PrefetchRule& rule) {
  return to_string(rule);
}

std::string print_fusion_rule(const FusionRule& rule) {
  return fmt::format("{} = {}", rule.pattern.text(), rule.id);
}

}  // namespace

std::shared_ptr<const TextsOf> as_texts(std::vector<LayoutRule>* rules) {
  return as_texts(rules, read_layout_rule, print_layout_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<OpRule>* rules) {
  return as_texts(rules, read_op_rule, print_op_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<PieceRule>* rules) {
  return as_texts(rules, read_piece_rule, print_piece_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<StageRule>* rules) {
  return as_texts(rules, read_stage_rule, print_stage_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<Recompute::Rule>* rules) {
  return as_texts(rules, read_keep_rule, print_keep_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<HomeRule>* rules) {
  return as_texts(rules, parse_home_rule, print_home_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<HostRule>* rules) {
  return as_texts(rules, parse_host_rule, print_host_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<PrefetchRule>* rules) {
  return as_texts(rules, parse_prefetch_rule, print_prefetch_rule);
}

std::shared_ptr<const TextsOf> as_texts(std::vector<FusionRule>* rules) {
  return as_texts(rules, parse_fusion_rule, print_fusion_rule);
}

}  // namespace trireme
