// The keys of [parallel] that say what lies elsewhere than in the device's memory, and how it comes and goes
// (docs/design/tiers.md).
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/train/job/config_impl.h"
#include "trireme/train/job/rules.h"

namespace trireme {
namespace {

constexpr NameOf<bool> kUpdatesOn[] = {{"device", false}, {"host", true}};
constexpr NameOf<Tier> kOffloadTo[] = {{"device", Tier::kDevice}, {"host", Tier::kHost}, {"disk", Tier::kDisk}};

void check_ratio(const std::string& name, const KeyTarget& target) {
  const double share = *std::get<double*>(target);
  require(share > 0 && share <= 1, "{} = {}; it must be above 0 and at most 1", name, share);
}

// What nobody writes is all there is; who writes 0 asks for none of it, which is no size.
template <class Value>
TextOf as_size_above_0(Value* value) {
  TextOf out = as_text(value);
  out.set = [set = out.set](const std::string& name, const std::string& text) {
    require(trim(text) != "0" && !text.ends_with(":0"),
            "configuration: {} = '{}' leaves a rank nothing; give more, or leave the size out for all there is", name,
            text);
    set(name, text);
  };
  return out;
}

// What lies and runs where.
std::vector<Key> keys_of_places(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "home",
       .target = as_texts(&p.homes),
       .doc = "where parameters lie while nothing reads them, \"parameters = host\" or \"= disk\", like \"h.* = "
              "disk\": they are moved to the device's memory before they are read, and back after their update; "
              "\"parameters/state = host\" is of the optimizer's state of them, and \"parameters/gradient = host\" of "
              "their gradients; none: the device's memory"},
      {.name = "on",
       .target = as_texts(&p.on_host.rules),
       .doc = "which ops run on the host, \"scope = host\", like \"wte = host\", or \"scope/op = host\"; \"= device\" "
              "takes some back: forward and backward, on what lies in the host's memory, beside those of the device. "
              "Parameters that they alone read lie there and are updated there; none: all run on the device"},
      {.name = "optimizer_on",
       .target = one_of(&p.on_host.updates, kUpdatesOn),
       .doc = "device, or host: parameters are updated on the host, where they and the optimizer's state then lie; "
              "gradients leave as they are made, and weights come before they are read, the last updates run under the "
              "next forward pass",
       .flag = "--optimizer-on",
       .in_bench = true,
       .of_training = true}};
}

// How much there is.
std::vector<Key> keys_of_sizes(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "device_memory",
       .target = as_size_above_0(&p.tiers.device),
       .doc = "the most of the device's memory that a rank may take, like 2GB or 512MiB; none: all",
       .flag = "--device-memory"},
      {.name = "device_ratio",
       .target = &p.tiers.device_ratio,
       .doc = "the share of device_memory that a rank may take",
       .check = check_ratio,
       .no_effect_with = "device_memory = ''"},
      {.name = "host_memory",
       .target = as_size_above_0(&p.tiers.host),
       .doc = "the most of the host's memory that a rank may take beside the device's, for what has its home there "
              "and what is on its way; none: all",
       .flag = "--host-memory"},
      {.name = "host_ratio",
       .target = &p.tiers.host_ratio,
       .doc = "the share of host_memory that a rank may take",
       .check = check_ratio,
       .no_effect_with = "host_memory = ''"},
      {.name = "disk",
       .target = as_size_above_0(&p.tiers.disk),
       .doc = "directory of the file in which a rank has what has its home on the disk, and after a colon how large "
              "that may be, like /scratch:40GB; none: the run's folder, or without one that of temporary files",
       .flag = "--disk"}};
}

// How what lies elsewhere comes and goes.
std::vector<Key> keys_of_ways(JobConfig& c) {
  auto& p = c.parallel;
  return {
      {.name = "update_part",
       .target = as_text(&p.tier_ways.update_part),
       .doc = "of a tensor with another home than the device's memory, the most that its update takes at a time, like "
              "8MiB, in whole rows; 0: all of it",
       .of_training = true},
      {.name = "prefetch",
       .target = as_texts(&p.tier_ways.prefetch),
       .doc = "how early comes what has another home, \"scope = readers\" or \"scope/op = readers\", like \"h.* = 2\": "
              "it is begun at most so many ops before, of those that something comes for; more takes more memory and "
              "waits less; none: 4"},
      {.name = "disk_block",
       .target = as_text(&p.tier_ways.disk_block),
       .doc = "the disk is read and written in blocks of this size, a multiple of 4KiB; each has a checksum"},
      {.name = "disk_queue",
       .target = &p.tier_ways.disk_queue,
       .doc = "blocks of a value that are read or written at a time",
       .check = check_from_to<1, 64>},
      {.name = "auto_offload",
       .target = &p.tier_ways.auto_offload,
       .doc = "true: what leaves the device's memory is chosen where device_memory is less than the step takes, and "
              "what goes on from the host to the disk where host_memory is; false: all lies where home, keep and "
              "offload_to say, and a step that takes more is refused"},
      {.name = "offload_to",
       .target = one_of(&p.tier_ways.offload_to, kOffloadTo),
       .doc = "device, host or disk: where parameters and the optimizer's state lie that home says nothing of, with "
              "auto_offload = false"}};
}

}  // namespace

std::vector<Key> keys_of_tiers(JobConfig& config) {
  std::vector<Key> out;
  for (const std::vector<Key>& keys : {keys_of_places(config), keys_of_sizes(config), keys_of_ways(config)})
    out.insert(out.end(), keys.begin(), keys.end());
  return out;
}

}  // namespace trireme
