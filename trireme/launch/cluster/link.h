// An agent's end of the connection to the scheduler. It keeps trying: when a scheduler that has not started yet, or has
// died, comes up, the agent connects to it and tells it everything again. A thread of its own does this; nothing here
// waits for the network.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/stores/hmac.h"
#include "trireme/launch/cluster/cluster.h"
#include "trireme/launch/cluster/tls.h"

namespace trireme::launch {

struct LinkOptions {
  std::string host;     // as the user named it, for the certificate
  std::string address;  // its numeric address
  uint16_t port = 0;
  comm::Secret secret{};
  std::optional<TlsTexts> tls;
  std::chrono::milliseconds silence{
      10'000};  // of a scheduler that answers every report: then the connection is no more
};

class SchedulerLink {
 public:
  SchedulerLink(const LinkOptions& options, const NodeReport& report);
  ~SchedulerLink();  // closes the connection
  SchedulerLink(const SchedulerLink&) = delete;
  SchedulerLink& operator=(const SchedulerLink&) = delete;

  // What is reported from now on: at once, and again as often as the scheduler wants. `seen` is filled in.
  void tell(const NodeReport& report);

  struct News {
    std::optional<ClusterView> view;  // the newest
    bool connected = false;           // now, and the secret proven on both sides
    std::string trouble;              // of the last attempt to connect; empty after one that went well
    bool host_answers = false;        // after the last attempt: its host answers, but nobody listens at the port
    bool hopeless = false;            // the other end refuses: trying again would not help
  };
  News news() const;
  int fd() const;  // readable when there may be news; read by news()

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trireme::launch
