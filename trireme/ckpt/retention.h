// Which checkpoints of a folder are kept, what is set aside, and the links that point people to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/ckpt/manifest.h"

namespace trireme::ckpt {

struct Keep {
  int64_t last = 0;                 // the newest that stay; 0: all
  std::vector<int64_t> steps = {};  // stay besides
};

// Those of `complete`, oldest first, that need not stay.
std::vector<StepName> superfluous(std::vector<StepName> complete, const Keep& keep);

// Removes what need not stay of the complete checkpoints in the root. Returns what could not be removed, and why.
std::vector<std::string> prune(const std::string& root, const Keep& keep, Disk& disk = trireme::disk());

// Removes one checkpoint, COMMIT first: from then on the directory means nothing.
void remove_checkpoint(const std::string& path, Disk& disk = trireme::disk());

// Renames a checkpoint that no run should go on from, step-000123 to step-000123.<why>, so that it is neither found nor
// counted any more. `why` is a word, like "damaged". Returns its new path.
std::string set_aside(const std::string& path, std::string_view why, Disk& disk = trireme::disk());

// Makes root/<link> a link to the directory `name` beside it.
void link_to(const std::string& root, const std::string& link, const std::string& name, Disk& disk = trireme::disk());

}  // namespace trireme::ckpt
