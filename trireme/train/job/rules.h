// The rules in a job's file, written "pattern = what is asked" as lists of strings.
#pragma once

#include <memory>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/parallel/parallel.h"
#include "trireme/pass/passes.h"

namespace trireme {

// "tokens = [dp, sp]"
std::shared_ptr<const TextsOf> as_texts(std::vector<LayoutRule>* rules);
// "h.*.mlp.c_fc = [dp, -, -], [-, tp]"
std::shared_ptr<const TextsOf> as_texts(std::vector<OpRule>* rules);
// "layers.0.* = [tp, -]"; "layers.1.bias" alone: each rank's own
std::shared_ptr<const TextsOf> as_texts(std::vector<PieceRule>* rules);
// "h.0..5 = 0"
std::shared_ptr<const TextsOf> as_texts(std::vector<StageRule>* rules);
// "h.* = 2"
std::shared_ptr<const TextsOf> as_texts(std::vector<FusionRule>* rules);
// "h.*/state = host"
std::shared_ptr<const TextsOf> as_texts(std::vector<HomeRule>* rules);
// "wte = host", "h.*/gelu = host"
std::shared_ptr<const TextsOf> as_texts(std::vector<HostRule>* rules);
// "h.* = 2", "h.*/matmul = 1"
std::shared_ptr<const TextsOf> as_texts(std::vector<PrefetchRule>* rules);
// "h.* = again", "h.*/matmul = device", "h.* = slices"
std::shared_ptr<const TextsOf> as_texts(std::vector<Recompute::Rule>* rules);

}  // namespace trireme
