#include "tests/equivalence/pass_options.h"

namespace trireme::equivalence {
namespace {

// Parts of a random graph are modules. In one that is cut by hand nothing can be kept in slices.
Recompute recompute_of(const Case& test) {
  if (test.homes == "kept") {
    Case other = test;
    other.homes = "host";
    Recompute out = recompute_of(other);
    using Keep = Recompute::Rule::Keep;
    out.rules.push_back({.pattern = "*", .keep = test.home_tier == "host" ? Keep::kHost : Keep::kDisk});
    out.fewest_bytes = 1;
    return out;
  }
  if (test.recompute == "none") return {};
  if (test.recompute == "rows") return {.rows = true, .fewest_bytes = 1};
  if (test.recompute == "gathered") return {.optimizer_communication = false};
  if (test.recompute == "slices") return {.slice = !test.by_hand, .fewest_bytes = 1};
  using Keep = Recompute::Rule::Keep;
  // "part.3", or "part3" of cases that were kept before; the last rule says what is a module.
  Recompute out{.rules = {{"part*"}, {"part.*"}}, .communication = test.recompute != "local", .fewest_bytes = 1};
  if (test.recompute == "most")
    out.rules.insert(out.rules.end(),
                     {{"part*/matmul", Keep::kMemory}, {"loss"}, {"*/add"}, {"part.0..1/mul", Keep::kMemory}});
  if (test.recompute == "most" && !test.by_hand) out.rules.push_back({"*", Keep::kSlice});
  if (test.recompute == "all") {
    for (Recompute::Rule& rule : out.rules)
      rule.communication = rule.optimizer_communication = false, rule.slice = !test.by_hand;
  }
  return out;
}

// "mixed" takes other sizes for other kinds, "off" nothing together, "ids" by names: all of one, and some alone.
Fusion fusion_of(const Case& test) {
  Fusion out;
  out.all_reduce = {.bytes = test.bucket_bytes, .ends = test.bucket_ends};
  out.reduce_scatter.bytes = out.all_gather.bytes = test.bucket_bytes;
  if (test.fusion == "mixed") {
    out.reduce_scatter.bytes = 300;
    out.all_gather.mode = FusionOfKind::Mode::kOff;
  }
  out.is_on = test.fusion != "off";
  if (test.fusion == "ids") {
    out.ids.push_back({.pattern = "", .id = 3});
    for (const Input& input : test.graph.inputs()) {
      if (input.role == Role::kParameter)
        out.ids.push_back({.pattern = input.name, .id = test.graph.type(input.value).elements() % 3});
    }
  }
  return out;
}

void add_homes(const Case& test, Held what, std::vector<HomeRule>& out) {
  out.push_back({.parameters = "*", .of = what, .home = test.home_tier == "host" ? Tier::kHost : Tier::kDisk});
  int count = 0;
  for (const Input& input : test.graph.inputs()) {
    if (input.role != Role::kParameter) continue;
    const bool stays = test.homes == "mixed" && count % 2 == 1;
    const bool is_on_host = test.home_tier == "both" && count % 4 < 2;
    if (stays || is_on_host)
      out.push_back({.parameters = input.name, .of = what, .home = stays ? Tier::kDevice : Tier::kHost});
    ++count;
  }
}

std::vector<HomeRule> homes_of(const Case& test) {
  std::vector<HomeRule> out;
  if (test.homes == "device") return out;
  const bool all = test.homed == "all";
  if (all || test.homed == "state") add_homes(test, Held::kState, out);
  if (all || test.homed == "parameters") add_homes(test, Held::kParameter, out);
  if (all || test.homed == "gradients") add_homes(test, Held::kGradient, out);
  return out;
}

// Some ops of each kind, so that values go back and forth.
OnHost on_host_of(const Case& test) {
  OnHost out{.updates = test.on_host == "updates" || test.on_host == "all"};
  // Where stages of one parameter have it in different tiers, an evaluation is refused
  // (train/step/compile/compile.cpp).
  if (test.crews > 1 && test.evaluates) return {.updates = test.on_host != "none"};
  const auto add = [&](const std::vector<std::string>& rules) {
    for (const std::string& rule : rules) out.rules.push_back(parse_host_rule(rule));
  };
  if (test.on_host == "parts")
    add({"part.0..1 = host", "part.3 = host", "part3 = host", "loss = host", "*/add = device"});
  if (test.on_host == "kinds") add({"*/matmul = host", "*/add = host", "*/mul = host", "*/softmax = host"});
  if (test.on_host == "all") add({"* = host"});
  return out;
}

// Sums of bits are trees (train/step/compile); in one in 16 of the others they are ops of their own, too.
std::vector<std::string> disabled_of(const Case& test) {
  if (test.numerics == Numerics::kInvariant || test.seed % 16 == 1) return {"sum_in_products"};
  return {};
}

TierWays ways_of(const Case& test) {
  TierWays out{.update_part = MemorySize(test.update_part)};
  if (test.prefetch > 0) out.prefetch.push_back({.scope = "", .op = "", .readers = test.prefetch});
  return out;
}

}  // namespace

PassOptions pass_options(const Case& test) {
  return {.fusion = fusion_of(test),
          .rates = rates_of(test),
          .recompute = recompute_of(test),
          .on_host = on_host_of(test),
          .homes = homes_of(test),
          .tier_ways = ways_of(test),
          .fused_product_bytes = 1,
          .loss_pieces = test.loss_pieces,
          .disabled = disabled_of(test)};
}

}  // namespace trireme::equivalence
