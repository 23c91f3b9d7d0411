#include "trireme/launch/cluster/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/launch/start/host_address.h"

namespace trireme::launch {
namespace {

constexpr std::string_view kMarks = ".-_:%";  // of host names and addresses, besides letters and digits
constexpr size_t kShown = 200;                // characters of what was given, in an error

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

SocketAddress socket_address(const std::string& numeric, uint16_t port) {
  SocketAddress out;
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(numeric.c_str(), std::to_string(port).c_str(), &hints, &found);
  require(status == 0, "address '{}' is not numeric ({})", numeric, gai_strerror(status));
  std::memcpy(&out.storage, found->ai_addr, found->ai_addrlen);
  out.length = found->ai_addrlen;
  freeaddrinfo(found);
  return out;
}

}  // namespace

HostPort parse_host_port(std::string_view text, uint16_t default_port, std::string_view what) {
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[') && text.find(']') != std::string_view::npos) {
    const size_t end = text.find(']');
    host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    has_port = !rest.empty();
    require(!has_port || rest.starts_with(':'), "{} '{}': after ']' only ':' and the port may follow", what, text);
    if (has_port) port = rest.substr(1);
  } else if (const size_t colon = text.find(':');
             colon != std::string_view::npos && text.find(':', colon + 1) == std::string_view::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  }
  int number = default_port;
  if (has_port) {
    const auto [stop, status] = std::from_chars(port.data(), port.data() + port.size(), number);
    require(status == std::errc() && stop == port.data() + port.size() && number >= 1 && number <= 65'535,
            "{} '{}': the port must be a number from 1 to 65535", what, text);
  }
  const bool is_host = std::ranges::all_of(host, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kMarks.find(c) != std::string_view::npos;
  });
  require(is_host,
          "{} '{}': a host is a name or an address, of letters, digits and {}; write HOST:PORT, as in 10.0.0.5:8118",
          what, text.substr(0, kShown), kMarks);
  require(!host.empty(), "{} '{}': it has no host; write HOST:PORT, as in 10.0.0.5:8118 or [fe80::5]:8118", what, text);
  return {.host = std::string(host), .port = static_cast<uint16_t>(number)};
}

std::string resolve(const std::string& host) {
  return addresses_of(host).front();
}

bool is_own_address(const std::string& numeric) {
  const SocketAddress address = socket_address(numeric, 0);
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool own = fd >= 0 && bind(fd, address.get(), address.length) == 0;
  if (fd >= 0) close(fd);
  return own;
}

std::string address_towards(const std::string& numeric, uint16_t port) {
  const SocketAddress address = socket_address(numeric, port);
  const int fd = socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Connecting a datagram socket sends nothing; it asks the routing table.
  const bool ok = fd >= 0 && connect(fd, address.get(), address.length) == 0 &&
                  getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) fail(ErrorKind::kIo, "this host has no route to {} ({})", numeric, std::strerror(error));
  return numeric_of(reinterpret_cast<const sockaddr*>(&own), length);
}

bool is_ipv6(const std::string& numeric) {
  return numeric.find(':') != std::string::npos;
}

std::string host_port_text(const std::string& host, uint16_t port) {
  return is_ipv6(host) ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string own_host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string trouble_listening(const std::string& numeric, uint16_t port) {
  const SocketAddress address = socket_address(numeric, port);
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool ok = fd >= 0 && bind(fd, address.get(), address.length) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return ok ? "" : std::strerror(error);
}

}  // namespace trireme::launch
