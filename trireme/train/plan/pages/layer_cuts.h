// A strategy for people: how each weight and each op is cut, with equal numbered layers described once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

struct LayerCut {
  std::string name;   // "h.0..11.attn.c_attn.weight"
  int64_t count = 1;  // how many it stands for
  std::string cut;    // "[-, -, tp]", "n=tp"
  std::string type;   // of a weight
  std::string state;  // how its optimizer state is cut; "": it has none
};

// Of the parameters, in their order.
std::vector<LayerCut> weight_cuts(const Graph& graph, const Strategy& strategy);
// Of the forward ops that are cut, by factors of their sharding rules.
std::vector<LayerCut> op_cuts(const Graph& graph, const Strategy& strategy);
// Cuts of a model with one block of each kind, numbered in `container` from 0 on: has them name the blocks of the whole
// model that each kind stands for.
void name_all_blocks(std::string_view container, const std::vector<std::vector<int>>& blocks_of_kind,
                     std::vector<LayerCut>& cuts);
// Of a pipeline, with the stage as the cut; empty where there is none.
std::vector<LayerCut> stage_cuts(const Strategy& strategy);

}  // namespace trireme
