// Selects tensors of a source, and the names under which they are used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/ckpt/tensor_source.h"

namespace trireme::ckpt {

// "transformer.*=*": what the first star stands for is put where the star of the new name is.
struct Rename {
  std::string from;
  std::string to;
};
// Throws kInvalidArgument, with the text, unless it is two names or patterns, with as many stars each: none, or one.
Rename parse_rename(std::string_view text);

struct Selection {
  std::vector<std::string> only = {};    // patterns (base/words.h) of names; none: all
  std::vector<std::string> except = {};  // taken away from these
  bool state = false;                    // the optimizer's too
  std::vector<Rename> renames = {};      // the first that fits a name counts
};

struct Selected {
  std::string name;     // in the source
  std::string renamed;  // what it is to be called
};

// Sorted by the names in the source. Throws kInvalidArgument for a pattern or a rename that fits no tensor, for two
// tensors that would have one name, and when nothing is left.
std::vector<Selected> select(const TensorSource& source, const Selection& selection);

}  // namespace trireme::ckpt
