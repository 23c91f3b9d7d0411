#include "trireme/launch/start/site.h"

#include <charconv>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kSiteMagic = "trireme-rendezvous-1";
constexpr const char* kNoSecret = "-";
constexpr size_t kLongest = 1000;

}  // namespace

std::string to_string(const Site& site) {
  return fmt::format("{} {} {} {}\n", kSiteMagic, site.address, site.port,
                     site.secret ? comm::to_hex(*site.secret) : kNoSecret);
}

std::optional<Site> parse_site(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text.substr(0, kLongest)) {
    if (c == ' ' || c == '\n') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  if (words.size() != 5 || words[0] != kSiteMagic || words[1].empty() || !words[4].empty()) return std::nullopt;
  Site site{.address = words[1]};
  const char* end = words[2].data() + words[2].size();
  const auto [stop, status] = std::from_chars(words[2].data(), end, site.port);
  if (status != std::errc() || stop != end) return std::nullopt;
  if (words[3] != kNoSecret) site.secret = comm::secret_from_hex(words[3]);
  return site;
}

}  // namespace trireme::launch
