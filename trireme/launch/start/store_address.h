// Where rank 0 serves the job's store: the line of text by which it tells the others, in a file or by MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/stores/hmac.h"

namespace trireme::launch {

struct StoreAddress {
  std::string host;
  uint16_t port = 0;
  std::optional<comm::Secret> secret;  // none: every rank has been given it
};

std::string to_string(const StoreAddress& address);
// Nothing when it is no such line; kInvalidArgument, which never shows the text, when what stands for its secret is
// neither one nor "-".
std::optional<StoreAddress> parse_store_address(std::string_view text);

}  // namespace trireme::launch
