// What `trireme checkpoint` prints: for people, or as JSON.
#pragma once

#include <string>

#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/difference.h"

namespace trireme::cli {

// The complete ones; as JSON, a line for each.
void print_list(const std::string& root, const ckpt::Listing& listing, bool json);
void print_checkpoint(const ckpt::Reader& reader, bool tensors, bool json);
void print_weights(const ckpt::TensorSource& weights, bool tensors, bool json);
int print_config(const ckpt::Reader& reader);  // returns the exit code; throws where there is none
void print_difference(const ckpt::TensorSource& first, const ckpt::TensorSource& second, const ckpt::Difference& found,
                      bool json);

}  // namespace trireme::cli
