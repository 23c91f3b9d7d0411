// Several hosts on one machine: network namespaces, each with a network card, joined by one switch (a bridge in a
// namespace of its own). Takes root and the program `ip`; `tc` for a limited rate. Nothing of it is in this process's
// own network, and everything ends with the object; what a test that died has left, the next one removes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme::cli {

struct HostsOptions {
  int count = 2;
  int rate_mbit = 0;  // of each card, in both directions, by a token bucket (tbf); 0: as fast as the machine is
};

class Hosts {
 public:
  // Empty when hosts can be made here, else why not.
  static std::string why_not();

  explicit Hosts(const HostsOptions& options);  // throws kIo with what `ip` said
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  int count() const { return options_.count; }
  static std::string name(int host);     // "host0", which is the host's own name for itself
  static std::string address(int host);  // "10.66.0.10"
  // Puts the calling process, which has one thread, on the host.
  std::function<bool()> entry(int host) const;

  void cut_cable(int host) const;  // at the switch: the host itself sees no more than silence
  void plug_cable(int host) const;
  // Cuts the cable and ends all that runs there, so that nobody hears of it.
  void power_off(int host) const;
  std::vector<int> processes(int host) const;
  int64_t sent_bytes(int host) const;  // over its cable, since it was made

 private:
  std::string space(int host) const;
  std::string port(int host) const;
  void add_host(int host) const;
  void limit_rate(const std::string& of, const std::string& card) const;
  void remove() const;

  HostsOptions options_;
  std::string prefix_;
};

}  // namespace trireme::cli
