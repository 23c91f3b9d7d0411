#include "trireme/launch/start/store_address.h"

#include <charconv>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kStoreAddressMagic = "trireme-rendezvous-1";
constexpr const char* kNoSecret = "-";
constexpr size_t kLongest = 1000;

}  // namespace

std::string to_string(const StoreAddress& address) {
  return fmt::format("{} {} {} {}\n", kStoreAddressMagic, address.host, address.port,
                     address.secret ? comm::to_hex(*address.secret) : kNoSecret);
}

std::optional<StoreAddress> parse_store_address(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text.substr(0, kLongest)) {
    if (c == ' ' || c == '\n') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() != 5 || words[0] != kStoreAddressMagic || words[1].empty() || !words[4].empty()) return std::nullopt;
  StoreAddress address{.host = words[1]};
  const char* end = words[2].data() + words[2].size();
  const auto [stop, status] = std::from_chars(words[2].data(), end, address.port);
  if (status != std::errc() || stop != end) return std::nullopt;
  if (words[3] != kNoSecret) address.secret = comm::secret_from_hex(words[3]);
  return address;
}

}  // namespace trireme::launch
