#include "trireme/launch/cluster/scheduler.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/launch/cluster/address.h"
#include "trireme/launch/cluster/gate.h"
#include "trireme/launch/cluster/grpc_impl.h"
#include "trireme/launch/cluster/handshake.h"
#include "trireme/launch/cluster/link.h"
#include "trireme/launch/cluster/message.h"
#include "trireme/launch/cluster/raw_stream_for_tests.h"

namespace trireme::launch::scheduler_test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

template <class Condition>
bool soon(Condition holds) {
  const Deadline deadline(std::chrono::seconds(60));
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

NodeReport node(int rank, int workers, int world) {
  return {.node_id = fmt::format("node{}", rank),
          .instance = static_cast<uint64_t>(rank) + 1,
          .node_rank = rank,
          .world = world,
          .workers = workers,
          .host = "here",
          .store_address = "127.0.0.1",
          .store_port = static_cast<uint16_t>(5000 + rank)};
}

NodeReport after(NodeReport report, const ClusterView& view, NodeState state) {
  report.job = view.job;
  report.first_rank = view.first_rank;
  report.state = state;
  return report;
}

class SchedulerTest : public testing::Test {
 protected:
  SchedulerOptions options(int world) const { return {.cluster = {.world = world}, .secret = secret_}; }
  LinkOptions link(const Scheduler& scheduler) const {
    return {.host = "127.0.0.1", .address = "127.0.0.1", .port = scheduler.port(), .secret = secret_};
  }
  static ClusterView wait_for(const SchedulerLink& link, Phase phase) {
    ClusterView view;
    EXPECT_TRUE(soon([&] {
      const auto news = link.news();
      if (news.view) view = *news.view;
      return news.view && news.view->phase == phase && news.connected;
    })) << link.news().trouble;
    return view;
  }
  comm::Secret secret_ = comm::random_secret();
};

TEST_F(SchedulerTest, NodesMeetAreToldTheirRanksAndThatTheJobIsOver) {
  Scheduler scheduler(options(3));
  SchedulerLink one(link(scheduler), node(1, 2, 3));
  EXPECT_TRUE(soon([&] { return one.news().view.has_value(); }));
  EXPECT_EQ(one.news().view->phase, Phase::kForming);
  SchedulerLink zero(link(scheduler), node(0, 1, 3));
  const ClusterView first = wait_for(zero, Phase::kRunning);
  const ClusterView second = wait_for(one, Phase::kRunning);
  EXPECT_EQ(first.first_rank, 0);
  EXPECT_EQ(second.first_rank, 1);
  EXPECT_EQ(second.store_port, 5000);
  zero.tell(after(node(0, 1, 3), first, NodeState::kEnded));
  one.tell(after(node(1, 2, 3), second, NodeState::kEnded));
  EXPECT_EQ(wait_for(zero, Phase::kOver).ending.exit_code, 0);
  EXPECT_EQ(scheduler.wait().exit_code, 0);
}

TEST_F(SchedulerTest, AnAgentWaitsForASchedulerThatIsNotThereYetAndOutlivesItsDeath) {
  auto scheduler = std::make_unique<Scheduler>(options(1));
  SchedulerOptions again = options(1);
  again.port = scheduler->port();
  const LinkOptions to = link(*scheduler);
  scheduler.reset();
  SchedulerLink agent(to, node(0, 1, 1));
  EXPECT_TRUE(soon([&] { return !agent.news().trouble.empty(); }));
  EXPECT_FALSE(agent.news().hopeless);

  scheduler = std::make_unique<Scheduler>(again);
  const ClusterView view = wait_for(agent, Phase::kRunning);
  agent.tell(after(node(0, 1, 1), view, NodeState::kRunning));
  scheduler.reset();
  EXPECT_TRUE(soon([&] { return !agent.news().connected; }));
  scheduler = std::make_unique<Scheduler>(again);
  EXPECT_EQ(wait_for(agent, Phase::kRunning).job, view.job);
  agent.tell(after(node(0, 1, 1), view, NodeState::kEnded));
  EXPECT_EQ(scheduler->wait().exit_code, 0);
}

TEST_F(SchedulerTest, AWrongSecretIsRefusedOnceAndForAll) {
  const Scheduler scheduler(options(1));
  LinkOptions wrong = link(scheduler);
  wrong.secret = comm::random_secret();
  const SchedulerLink agent(wrong, node(0, 1, 1));
  EXPECT_TRUE(soon([&] { return agent.news().hopeless; }));
  EXPECT_EQ(
      agent.news().trouble,
      "it has a different secret from this node's; give both the same --secret-file, or the same TRIREME_SECRET_FILE "
      "or TRIREME_SECRET");
  EXPECT_FALSE(agent.news().view);
  EXPECT_TRUE(soon([&] { return scheduler.counts().refused == 1; }));
  EXPECT_EQ(scheduler.counts().admitted, 0);
}

TEST_F(SchedulerTest, AReplayedProofIsRefused) {
  const Scheduler scheduler(options(1));
  ClientHandshake handshake(secret_);
  RawStream first(scheduler.port());
  const std::string answer = handshake.answer(first.read().value()).value();
  first.write(answer);
  EXPECT_TRUE(handshake.check(first.read().value()));
  RawStream second(scheduler.port());
  second.read();
  second.write(answer);
  EXPECT_FALSE(second.read());
  EXPECT_EQ(second.status().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(SchedulerTest, AReplayedReportIsRefused) {
  const Scheduler scheduler(options(1));
  ClientHandshake handshake(secret_);
  RawStream stream(scheduler.port());
  stream.write(handshake.answer(stream.read().value()).value());
  Seals seals = handshake.check(stream.read().value()).value();
  const std::string report = seals.seal(encode(node(0, 1, 1)));
  stream.write(report);
  const std::string answer = stream.read().value();
  EXPECT_EQ(decode_view(seals.open(answer).value()).phase, Phase::kRunning);
  stream.write(report);
  while (stream.read()) {
  }
  EXPECT_EQ(stream.status().error_message(), "a message is not sealed as the next of its connection");
}

TEST_F(SchedulerTest, ALongFirstMessageIsRefusedWhateverItSays) {
  const Scheduler scheduler(options(1));
  for (const size_t bytes :
       {size_t{0}, size_t{63}, size_t{65}, kMaxUnproven + 1, kMaxMessage, kMaxMessage + 1, size_t{1} << 20}) {
    RawStream stream(scheduler.port());
    stream.read();
    stream.write(std::string(bytes, 'x'));
    EXPECT_FALSE(stream.read());
    EXPECT_NE(stream.status().error_code(), grpc::StatusCode::OK);
  }
  EXPECT_EQ(scheduler.counts().admitted, 0);
}

TEST_F(SchedulerTest, SilentConnectionsAreEndedAndDoNotKeepNodesOut) {
  SchedulerOptions few = options(1);
  few.max_pending = 4;
  few.handshake_deadline = milliseconds(300);
  const Scheduler scheduler(few);
  std::vector<std::unique_ptr<RawStream>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<RawStream>(scheduler.port()));
  std::vector<int> sockets;
  for (int i = 0; i < 64; ++i) {
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(scheduler.port()),
                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(sockets.back(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)!::write(sockets.back(), "junk\r\n\r\n", 8);
  }
  const SchedulerLink agent(link(scheduler), node(0, 1, 1));
  wait_for(agent, Phase::kRunning);
  // Each of the eight by its own deadline, or with its connection.
  EXPECT_TRUE(soon([&] { return scheduler.counts().expired + scheduler.counts().refused >= 8; }))
      << scheduler.counts().expired;
  for (const int fd : sockets) close(fd);
}

// A connection on which HTTP/2 has begun and no stream does.
int streamless(uint16_t port, bool ipv6 = false) {
  const sockaddr_in four{
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  six.sin6_addr = in6addr_loopback;
  const int fd = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* address = ipv6 ? reinterpret_cast<const sockaddr*>(&six) : reinterpret_cast<const sockaddr*>(&four);
  EXPECT_EQ(connect(fd, address, ipv6 ? sizeof six : sizeof four), 0);
  const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  EXPECT_EQ(::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL), 33);
  return fd;
}

// Whether the other end closes it before the deadline.
bool ends(int fd) {
  for (const Deadline deadline(std::chrono::seconds(60)); !deadline.passed();) {
    char bytes[4096];
    pollfd polled{fd, POLLIN, 0};
    if (poll(&polled, 1, static_cast<int>(deadline.remaining().count())) > 0 && recv(fd, bytes, sizeof bytes, 0) <= 0)
      return true;
  }
  return false;
}

TEST_F(SchedulerTest, ConnectionsWithoutAStreamAreBoundedAndEnded) {
  SchedulerOptions few = options(1);
  few.max_pending = 4;
  few.handshake_deadline = milliseconds(300);
  const Scheduler scheduler(few);
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(streamless(scheduler.port()));
  for (const int fd : silent) {
    EXPECT_TRUE(ends(fd));
    close(fd);
  }
  EXPECT_EQ(scheduler.counts().unproven, 12);
  const SchedulerLink agent(link(scheduler), node(0, 1, 1));
  wait_for(agent, Phase::kRunning);
}

// What has proven the secret is not touched by the limits on what has not, by either protocol.
TEST_F(SchedulerTest, AProvenConnectionStays) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    SCOPED_TRACE(address);
    SchedulerOptions few = options(1);
    few.address = address;
    few.max_pending = 2;
    few.handshake_deadline = milliseconds(100);
    const Scheduler scheduler(few);
    LinkOptions to = link(scheduler);
    to.address = address;
    SchedulerLink agent(to, node(0, 1, 1));
    const ClusterView view = wait_for(agent, Phase::kRunning);
    for (int i = 0; i < 6; ++i) close(streamless(scheduler.port(), is_ipv6(address)));
    const int younger = streamless(scheduler.port(), is_ipv6(address));
    EXPECT_TRUE(ends(younger));  // when its time is over, the agent's would have been before
    close(younger);
    EXPECT_TRUE(agent.news().connected);
    EXPECT_EQ(scheduler.counts().admitted, 1);  // it did not come again
  }
}

TEST_F(SchedulerTest, AListenerThatFailsIsMadeAnew) {
  const Scheduler scheduler(options(1));
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    int listens = 0;
    socklen_t length = sizeof listens;
    const bool socket = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0;
    if (socket && getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        ntohs(address.sin_port) == scheduler.port()) {
      ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);
    }
  }
  const SchedulerLink agent(link(scheduler), node(0, 1, 1));
  wait_for(agent, Phase::kRunning);
}

TEST(Gate, ReadsPeersAsGrpcWritesThem) {
  EXPECT_EQ(host_port_of_peer("ipv4:127.0.0.1:4711"), "127.0.0.1 4711");
  EXPECT_EQ(host_port_of_peer("ipv6:%5B::1%5D:80"), "::1 80");
  EXPECT_EQ(host_port_of_peer("ipv6:[fe80::1%25eth0]:80"), "fe80::1%eth0 80");
  EXPECT_EQ(host_port_of_peer(""), "");
  EXPECT_EQ(host_port_of_peer("x%"), "x%");
}

TEST_F(SchedulerTest, APortInUseIsSaid) {
  const Scheduler scheduler(options(1));
  SchedulerOptions same = options(1);
  same.port = scheduler.port();
  try {
    const Scheduler second(same);
    FAIL() << "two schedulers at one port";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kIo);
    EXPECT_EQ(e.text(),
              fmt::format("scheduler: cannot listen at 127.0.0.1:{} (Address already in use); name another port, or "
                          "end what listens there",
                          same.port));
  }
}

TEST_F(SchedulerTest, ASurplusNodeIsRefusedAndToldWhy) {
  const Scheduler scheduler(options(1));
  const SchedulerLink first(link(scheduler), node(0, 1, 1));
  wait_for(first, Phase::kRunning);
  const SchedulerLink second(link(scheduler), node(1, 1, 1));
  EXPECT_TRUE(soon([&] { return second.news().view.has_value(); }));
  EXPECT_THAT(second.news().view->refused, HasSubstr("there is no place for 1 more"));
}

TEST(SchedulerAddress, HostAndPortAreReadInEveryForm) {
  const auto text = [](std::string_view what) {
    const HostPort at = parse_host_port(what, 8118, "--master");
    return host_port_text(at.host, at.port);
  };
  EXPECT_EQ(text("node1:81"), "node1:81");
  EXPECT_EQ(text("node1"), "node1:8118");
  EXPECT_EQ(text("[::1]:81"), "[::1]:81");
  EXPECT_EQ(text("[::1]"), "[::1]:8118");
  EXPECT_EQ(text("::1"), "[::1]:8118");
  for (const char* wrong : {"a:0", "a:65536", "a:x", "a:", ":81", "", "[::1]81", "a:1x", "a]:b]", "a b:1", "::1\n"}) {
    EXPECT_THROW(parse_host_port(wrong, 8118, "--master"), Error) << wrong;
  }
  EXPECT_EQ(resolve("localhost").substr(0, 4), is_ipv6(resolve("localhost")) ? "::1" : "127.");
  EXPECT_THROW(resolve("no-such-host.invalid"), Error);
  EXPECT_TRUE(is_own_address("127.0.0.1"));
  EXPECT_FALSE(is_own_address("192.0.2.1"));  // of no machine: RFC 5737
  EXPECT_EQ(address_towards("127.0.0.1", 80), "127.0.0.1");
}

}  // namespace
}  // namespace trireme::launch::scheduler_test
