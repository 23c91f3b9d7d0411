// Addresses as users write them, and what they mean on this host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::launch {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "host:port", "host", "1.2.3.4:port", "[::1]:port"; without a port it is `default_port`. `what` names the option in
// errors.
HostPort parse_host_port(std::string_view text, uint16_t default_port, std::string_view what);
// The numeric address of a host name; kInvalidArgument with the system's reason when it has none.
std::string resolve(const std::string& host);
// Whether this host has the numeric address.
bool is_own_address(const std::string& numeric);
// The numeric address by which this host reaches the other; its loopback for its own.
std::string address_towards(const std::string& numeric, uint16_t port);
bool is_ipv6(const std::string& numeric);
// "1.2.3.4:5" or "[::1]:5".
std::string host_port_text(const std::string& host, uint16_t port);
std::string own_host_name();
// Why nobody can listen there now: the system's words, or "" when one can. Port 0 is any.
std::string trouble_listening(const std::string& numeric, uint16_t port);

}  // namespace trireme::launch
