// Names of hosts as addresses that other hosts can use.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

std::string numeric_of(const sockaddr* address, socklen_t length);  // "10.0.0.5"

// The numeric addresses of a host's name, in the system's order, each once; kInvalidArgument with the system's reason
// when it has none.
std::vector<std::string> addresses_of(const std::string& host);

bool is_loopback(std::string_view numeric);

// Of a host's addresses the first that other hosts reach. "": there is none but loopback, which is what many systems
// give a host for its own name (127.0.1.1 in Debian's /etc/hosts). Who writes a loopback address or 'localhost' means
// it.
std::string reachable_of(std::string_view host, const std::vector<std::string>& addresses);

// The same, where there is none kInvalidArgument that says what to do. `what` names the option.
std::string address_for_others(const std::string& host, std::string_view what);

}  // namespace trireme::launch
