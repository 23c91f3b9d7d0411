#include "tests/hosts/hosts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "trireme-";  // and the process that made the namespace
constexpr const char* kFolder = "/run/netns/";

struct Said {
  int code = 0;
  std::string text;
};

Said shell(const std::string& command) {
  Said said;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {127, "no shell"};
  char part[512];
  while (std::fgets(part, sizeof part, pipe) != nullptr) said.text += part;
  const int status = ::pclose(pipe);
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return said;
}

void must(const std::string& command) {
  const Said said = shell(command);
  if (said.code != 0) fail(ErrorKind::kIo, "'{}' ended with {}: {}", command, said.code, said.text);
}

std::vector<int> processes_of(const std::string& space) {
  std::stringstream text(shell("ip netns pids " + space).text);
  std::vector<int> out;
  for (int process = 0; text >> process;) out.push_back(process);
  return out;
}

void remove_space(const std::string& space) {
  for (const int process : processes_of(space)) ::kill(process, SIGKILL);
  shell("ip netns del " + space);
}

// What tests that died have left.
void sweep() {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder, none)) {
    const std::string space = entry.path().filename().string();
    if (!space.starts_with(kMark)) continue;
    const int maker = std::atoi(space.c_str() + std::char_traits<char>::length(kMark));
    if (maker > 0 && ::kill(maker, 0) != 0) remove_space(space);
  }
}

}  // namespace

std::string Hosts::why_not() {
  if (::geteuid() != 0) return "network namespaces take root";
  if (const Said said = shell("ip -V"); said.code != 0) return "there is no program 'ip' (Debian's iproute2)";
  sweep();
  const std::string space = fmt::format("{}{}-try", kMark, ::getpid());
  const Said made =
      shell(fmt::format("ip netns add {0} && ip link add name t0 netns {0} type veth peer name t1 netns {0} && "
                        "ip link add name br0 netns {0} type bridge",
                        space));
  shell("ip netns del " + space);
  return made.code == 0 ? "" : "a network namespace with a veth pair and a bridge cannot be made: " + made.text;
}

Hosts::Hosts(const HostsOptions& options) : options_(options), prefix_(fmt::format("{}{}-", kMark, ::getpid())) {
  try {
    must(fmt::format("ip netns add {}switch", prefix_));
    must(fmt::format("ip -n {}switch link add br0 type bridge", prefix_));
    must(fmt::format("ip -n {}switch link set br0 up", prefix_));
    for (int host = 0; host < options_.count; ++host) add_host(host);
  } catch (...) {
    remove();
    throw;
  }
}

Hosts::~Hosts() {
  remove();
}

void Hosts::remove() const {
  for (int host = 0; host < options_.count; ++host) remove_space(space(host));
  remove_space(prefix_ + "switch");
}

std::string Hosts::name(int host) {
  return fmt::format("host{}", host);
}
std::string Hosts::address(int host) {
  return fmt::format("10.66.0.{}", 10 + host);
}
std::string Hosts::space(int host) const {
  return prefix_ + name(host);
}
std::string Hosts::port(int host) const {
  return fmt::format("port{}", host);
}

void Hosts::add_host(int host) const {
  must("ip netns add " + space(host));
  must(
      fmt::format("ip link add {} netns {}switch type veth peer name eth0 netns {}", port(host), prefix_, space(host)));
  must(fmt::format("ip -n {0}switch link set {1} master br0 && ip -n {0}switch link set {1} up", prefix_, port(host)));
  must(fmt::format("ip -n {0} addr add {1}/24 dev eth0 && ip -n {0} link set eth0 up && ip -n {0} link set lo up",
                   space(host), address(host)));
  if (options_.rate_mbit == 0) return;
  limit_rate(space(host), "eth0");
  limit_rate(prefix_ + "switch", port(host));
}

void Hosts::limit_rate(const std::string& of, const std::string& card) const {
  must(fmt::format("ip netns exec {} tc qdisc add dev {} root tbf rate {}mbit burst 256kb latency 100ms", of, card,
                   options_.rate_mbit));
}

std::function<bool()> Hosts::entry(int host) const {
  return [path = kFolder + space(host), own = name(host)] {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    return fd >= 0 && ::setns(fd, CLONE_NEWNET) == 0 && ::unshare(CLONE_NEWUTS) == 0 &&
           ::sethostname(own.c_str(), own.size()) == 0;
  };
}

void Hosts::cut_cable(int host) const {
  must(fmt::format("ip -n {}switch link set {} nomaster", prefix_, port(host)));
}
void Hosts::plug_cable(int host) const {
  must(fmt::format("ip -n {}switch link set {} master br0", prefix_, port(host)));
}

void Hosts::power_off(int host) const {
  must(fmt::format("ip -n {}switch link set {} down", prefix_, port(host)));
  for (const int process : processes(host)) ::kill(process, SIGKILL);
}

std::vector<int> Hosts::processes(int host) const {
  return processes_of(space(host));
}

int64_t Hosts::sent_bytes(int host) const {
  return std::atoll(
      shell(fmt::format("ip netns exec {} cat /sys/class/net/eth0/statistics/tx_bytes", space(host))).text.c_str());
}

}  // namespace trireme::cli
