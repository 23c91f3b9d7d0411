#include "trireme/launch/start/host_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme::launch {
namespace {

// Those of this host that others may reach, for who has to choose one.
std::vector<std::string> own_addresses() {
  std::vector<std::string> out;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return out;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(found, freeifaddrs);
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_LOOPBACK) != 0 || (at->ifa_flags & IFF_UP) == 0) continue;
    const bool is_v4 = at->ifa_addr->sa_family == AF_INET;
    if (!is_v4 && at->ifa_addr->sa_family != AF_INET6) continue;
    out.push_back(numeric_of(at->ifa_addr, static_cast<socklen_t>(is_v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6))));
  }
  return out;
}

}  // namespace

std::string numeric_of(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  require(status == 0, "host '{}' cannot be found ({}); give its address or a name that this machine knows", host,
          gai_strerror(status));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  std::vector<std::string> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    std::string numeric = numeric_of(at->ai_addr, at->ai_addrlen);
    if (std::ranges::find(out, numeric) == out.end()) out.push_back(std::move(numeric));
  }
  return out;
}

bool is_loopback(std::string_view numeric) {
  return numeric.starts_with("127.") || numeric == "::1" || numeric.starts_with("::ffff:127.");
}

std::string reachable_of(std::string_view host, const std::vector<std::string>& addresses) {
  if (host == "localhost" || is_loopback(host)) return addresses.at(0);
  const auto other = std::ranges::find_if_not(addresses, is_loopback);
  return other == addresses.end() ? "" : *other;
}

std::string address_for_others(const std::string& host, std::string_view what) {
  const std::vector<std::string> addresses = addresses_of(host);
  std::string out = reachable_of(host, addresses);
  if (!out.empty()) return out;
  const std::vector<std::string> own = own_addresses();
  fail(ErrorKind::kInvalidArgument,
       "{} '{}': this host knows it as {} only (/etc/hosts), where no other host reaches it; give an address of the "
       "network{} or correct /etc/hosts; for a job on this host alone give localhost",
       what, host, joined_text(addresses, ", "),
       own.empty() ? "" : fmt::format(" (this host has {})", joined_text(own, ", ")));
}

}  // namespace trireme::launch
