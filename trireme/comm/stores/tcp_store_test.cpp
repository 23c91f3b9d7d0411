#include "trireme/comm/stores/tcp_store.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/stores/tcp_store_wire.h"

namespace {
constexpr const char* kTwoAddresses = "two-addresses.invalid";
}

// Called in place of the system's, which it calls: of one name it makes a host of two addresses.
extern "C" int getaddrinfo(const char* name, const char* port, const addrinfo* hints, addrinfo** found) {
  static const auto real =
      reinterpret_cast<int (*)(const char*, const char*, const addrinfo*, addrinfo**)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name == nullptr || std::strcmp(name, kTwoAddresses) != 0) return real(name, port, hints, found);
  const int status = real("127.0.0.2", port, hints, found);
  return status != 0 ? status : real("127.0.0.1", port, hints, &(*found)->ai_next);
}

namespace trireme::comm::tcp_store_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kSoon{20};
constexpr milliseconds kLong{60'000};

std::string hex(const Digest& digest) {
  return to_hex(digest);
}

// Catches the error and returns its kind and text.
template <class Body>
std::pair<ErrorKind, std::string> error_of(Body body) {
  try {
    body();
  } catch (const Error& e) {
    return {e.kind(), e.text()};
  }
  return {ErrorKind::kInternal, "no error"};
}

// A connection that speaks as it likes.
class Raw {
 public:
  explicit Raw(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Raw() { close(fd_); }
  void say(std::string_view bytes) { (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Reads up to `bytes`, fewer when the other side ends the connection.
  std::string hear(size_t bytes) {
    std::string all;
    while (all.size() < bytes) {
      char buffer[4096];
      pollfd polled{fd_, POLLIN, 0};
      if (poll(&polled, 1, static_cast<int>(kLong.count())) <= 0) return all + "<silence>";
      const ssize_t n = recv(fd_, buffer, std::min(bytes - all.size(), sizeof buffer), 0);
      if (n <= 0) return all;
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }
  bool ended() { return hear(1).empty(); }
  // Proves the secret; returns the server's proof.
  std::string shake_hands(const Secret& secret) {
    const std::string nonce = hear(wire::kHelloBytes).substr(8);
    const std::string mine(32, 'n');
    say(mine + wire::bytes_of(wire::proof(secret, "client", nonce, mine)));
    return hear(wire::kProofBytes);
  }

 private:
  int fd_;
};

class TcpStoreTest : public testing::Test {
 protected:
  TcpStoreTest() {
    set_log_sink([](std::string_view) {});
  }
  ~TcpStoreTest() override { set_log_sink({}); }
  std::shared_ptr<Store> client(const TcpStoreServer& server) {
    return tcp_store({.port = server.port(), .secret = secret_});
  }
  Secret secret_ = random_secret();
};

TEST(Hmac, Sha256AgreesWithThePublishedVectors) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hmac, AgreesWithRfc4231) {
  Secret key{};  // shorter keys are padded with zeros, so the cases with 20 and 4 bytes apply
  for (size_t i = 0; i < 20; ++i) key[i] = 0x0b;
  EXPECT_EQ(hex(hmac_sha256(key, "Hi There")), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  Secret jefe{'J', 'e', 'f', 'e'};
  EXPECT_EQ(hex(hmac_sha256(jefe, "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Hmac, SecretsSurviveHexAndBadTextIsRefusedWithoutShowingIt) {
  const Secret secret = random_secret();
  EXPECT_EQ(secret_from_hex(to_hex(secret)), secret);
  EXPECT_NE(secret, random_secret());
  EXPECT_EQ(error_of([] { (void)secret_from_hex("abc"); }).second,
            "job secret: it has 3 characters; it must have 64 hexadecimal digits");
  EXPECT_EQ(error_of([] { (void)secret_from_hex(std::string(63, '0') + "G"); }).second,
            "job secret: character 63 is not one of the digits 0-9 and a-f");
}

TEST_F(TcpStoreTest, ValuesOfOneClientAreSeenByAnother) {
  const TcpStoreServer server({.secret = secret_});
  const auto a = client(server);
  const auto b = client(server);

  a->set("address/0", std::string("10.0.0.6:\0\x01", 11));

  EXPECT_EQ(b->get("address/0", kLong), std::string("10.0.0.6:\0\x01", 11));
  b->set("address/0", "");
  EXPECT_EQ(a->get("address/0", kLong), "");
  EXPECT_EQ(server.counts().admitted, 2);
}

TEST_F(TcpStoreTest, OfAHostOfSeveralAddressesTheOneIsFoundAtWhichSomebodyListens) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = tcp_store({.address = kTwoAddresses, .port = server.port(), .secret = secret_});
  store->set("k", "v");
  EXPECT_EQ(store->get("k", kLong), "v");
}

TEST_F(TcpStoreTest, GetWaitsForTheKey) {
  const TcpStoreServer server({.secret = secret_});
  const auto a = client(server);
  const auto b = client(server);
  auto waiting = std::async(std::launch::async, [&] { return a->get("late", kLong); });

  EXPECT_EQ(waiting.wait_for(kSoon), std::future_status::timeout);
  b->set("late", "here");

  EXPECT_EQ(waiting.get(), "here");
}

TEST_F(TcpStoreTest, AWaitInOneThreadDoesNotHoldUpAnotherOfTheSameStore) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = client(server);
  auto waiting = std::async(std::launch::async, [&] { return store->get("late", kLong); });

  store->set("other", "1");
  EXPECT_EQ(store->get("other", kLong), "1");
  store->set("late", "2");

  EXPECT_EQ(waiting.get(), "2");
}

TEST_F(TcpStoreTest, AKeyThatNeverComesIsNamed) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = client(server);

  const auto [kind, text] = error_of([&] { (void)store->get("rank/7", kSoon); });

  EXPECT_EQ(kind, ErrorKind::kTimeout);
  EXPECT_EQ(text, fmt::format("tcp store 127.0.0.1:{}: nobody set key 'rank/7' within 20.0 ms", server.port()));
  store->set("rank/7", "x");  // the connection is still good
  EXPECT_EQ(store->get("rank/7", kSoon), "x");
}

TEST_F(TcpStoreTest, CountersOfManyClientsAddUp) {
  constexpr int kClients = 16;
  constexpr int kRounds = 50;
  const TcpStoreServer server({.secret = secret_});
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      const auto store = client(server);
      for (int round = 0; round < kRounds; ++round) store->add("count", i + 1);
      store->set(fmt::format("done/{}", i), "1");
      for (int peer = 0; peer < kClients; ++peer) (void)store->get(fmt::format("done/{}", peer), kLong);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(client(server)->add("count", -1), kRounds * kClients * (kClients + 1) / 2 - 1);
  EXPECT_EQ(client(server)->get("count", kLong), "6799");
}

TEST_F(TcpStoreTest, AddingToWhatIsNoNumberIsRefused) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = client(server);
  store->set("address", "10.0.0.6");

  EXPECT_EQ(error_of([&] { store->add("address", 1); }).second,
            "store: key 'address' holds '10.0.0.6', which is not a number to add to");
  store->set("count", "41");
  EXPECT_EQ(store->add("count", 1), 42);
  store->set("count", "9223372036854775807");
  EXPECT_EQ(error_of([&] { store->add("count", 1); }).second,
            "store: key 'count' holds '9223372036854775807'; with what is added it is more than an int64 holds");
  EXPECT_EQ(store->get("count", kSoon), "9223372036854775807");
}

TEST_F(TcpStoreTest, AMebibyteTravelsWholeAndOneByteMoreIsRefused) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = client(server);
  std::string value(kMaxStoreValue, '\0');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(i * 2654435761u >> 13);

  store->set("big", value);

  EXPECT_EQ(store->get("big", kLong), value);
  EXPECT_EQ(error_of([&] { store->set("big", value + "x"); }).second,
            "store: value of 'big' has 1048577 bytes; at most 1048576 are allowed");
  EXPECT_EQ(error_of([&] { store->set(std::string(1025, 'k'), "x"); }).second,
            "store: key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...' has 1025 bytes; at most 1024 are allowed");
}

TEST_F(TcpStoreTest, AWrongSecretIsRefusedAndNamed) {
  const TcpStoreServer server({.secret = secret_});

  const auto [kind, text] = error_of([&] { (void)tcp_store({.port = server.port(), .secret = random_secret()}); });

  EXPECT_EQ(kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(text, fmt::format("tcp store 127.0.0.1:{}: it refused the job secret of this process; every rank "
                              "needs the same, that of rank 0 or of the launcher",
                              server.port()));
  EXPECT_EQ(server.counts().refused, 1);
  EXPECT_EQ(server.counts().admitted, 0);
}

TEST_F(TcpStoreTest, AServerThatDoesNotKnowTheSecretIsNotTrusted) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread impostor([fd] {
    const int peer = accept(fd, nullptr, nullptr);
    const std::string hello = std::string(wire::kStoreMagic) + std::string(32, 'a');
    (void)!send(peer, hello.data(), hello.size(), MSG_NOSIGNAL);
    char answer[wire::kAnswerBytes];
    (void)!recv(peer, answer, sizeof answer, MSG_WAITALL);
    (void)!send(peer, answer + 32, wire::kProofBytes,
                MSG_NOSIGNAL);  // the client's own proof, sent back
    char end;
    (void)!recv(peer, &end, 1, 0);
    close(peer);
  });

  const uint16_t port = ntohs(address.sin_port);
  const auto [kind, text] = error_of([&] { (void)tcp_store({.port = port, .secret = secret_}); });
  impostor.join();
  close(fd);

  EXPECT_EQ(kind, ErrorKind::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr("what listens there does not know the job secret; is the address right?"));
}

TEST_F(TcpStoreTest, ARequestWithoutAProofIsNotRead) {
  const TcpStoreServer server({.secret = secret_});
  Raw raw(server.port());

  (void)raw.hear(wire::kHelloBytes);
  raw.say(wire::message(wire::Kind::kSet, "stolen", std::string(100, 'v'), 0));

  EXPECT_EQ(raw.hear(wire::kProofBytes), std::string(wire::kProofBytes, '\0'));
  EXPECT_TRUE(raw.ended());
  EXPECT_EQ(error_of([&] { (void)client(server)->get("stolen", milliseconds(0)); }).first, ErrorKind::kTimeout);
}

TEST_F(TcpStoreTest, AnOldProofDoesNotOpenASecondConnection) {
  const TcpStoreServer server({.secret = secret_});
  const std::string mine(32, 'n');
  std::string proof;
  {
    Raw first(server.port());
    const std::string nonce = first.hear(wire::kHelloBytes).substr(8);
    proof = mine + wire::bytes_of(wire::proof(secret_, "client", nonce, mine));
    first.say(proof);
    EXPECT_EQ(first.hear(32), wire::bytes_of(wire::proof(secret_, "server", nonce, mine)));
  }

  Raw second(server.port());
  (void)second.hear(wire::kHelloBytes);
  second.say(proof);

  EXPECT_EQ(second.hear(wire::kProofBytes), std::string(wire::kProofBytes, '\0'));
}

TEST_F(TcpStoreTest, GarbageAndHalfOpenConnectionsDoNotStopTheServer) {
  const TcpStoreServer server({.secret = secret_, .handshake_deadline = kSoon});
  std::vector<std::unique_ptr<Raw>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Raw>(server.port()));
  for (int i = 0; i < 20; ++i) Raw(server.port()).say(std::string(10'000, static_cast<char>(i * 13)));

  const auto store = client(server);
  store->set("alive", "yes");

  EXPECT_EQ(store->get("alive", kLong), "yes");
  for (auto& raw : silent) {
    (void)raw->hear(wire::kHelloBytes);
    EXPECT_TRUE(raw->ended());  // by the handshake's deadline
  }
  EXPECT_GE(server.counts().expired, 20);
}

TEST_F(TcpStoreTest, MoreOpenHandshakesThanAllowedEndTheOldest) {
  const TcpStoreServer server({.secret = secret_, .handshake_deadline = kLong, .max_pending = 4});
  Raw oldest(server.port());
  (void)oldest.hear(wire::kHelloBytes);
  std::vector<std::unique_ptr<Raw>> others;
  for (int i = 0; i < 4; ++i) others.push_back(std::make_unique<Raw>(server.port()));

  EXPECT_TRUE(oldest.ended());
  client(server)->set("alive", "yes");
  EXPECT_GE(server.counts().expired, 1);
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

// What has failed to prove the secret counts as long as it holds a descriptor.
TEST_F(TcpStoreTest, WrongProofsDoNotPassTheLimitOfUnprovenConnections) {
  constexpr int kStrangers = 200;
  const TcpStoreServer server({.secret = secret_, .handshake_deadline = kLong, .max_pending = 4});
  const int before = open_descriptors();
  std::vector<std::unique_ptr<Raw>> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(std::make_unique<Raw>(server.port()));
    EXPECT_EQ(strangers.back()->shake_hands(random_secret()), std::string(wire::kProofBytes, '\0'));
    EXPECT_LE(open_descriptors() - before - (i + 1), 5);  // of the server: the four, and one that it is about to end
  }
  EXPECT_EQ(server.counts().refused, kStrangers);
  client(server)->set("alive", "yes");
}

TEST_F(TcpStoreTest, WithoutFreeDescriptorsTheOldestUnprovenConnectionMakesRoom) {
  const TcpStoreServer server({.secret = secret_, .handshake_deadline = kLong});
  std::vector<std::unique_ptr<Raw>> strangers;
  for (int i = 0; i < 8; ++i) strangers.push_back(std::make_unique<Raw>(server.port()));
  for (auto& one : strangers) (void)one->hear(wire::kHelloBytes);
  const std::unique_ptr<Raw> late = std::make_unique<Raw>(server.port());
  (void)late->hear(wire::kHelloBytes);
  const int own = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = static_cast<rlim_t>(own) + 1;  // none is free above it, and all below are taken
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(own, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(strangers.front()->ended());
  pollfd polled{own, POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, static_cast<int>(kLong.count())), 1);  // the newcomer is greeted
  setrlimit(RLIMIT_NOFILE, &limit);
  close(own);
}

TEST_F(TcpStoreTest, OversizeAndUnknownRequestsEndOnlyTheirConnection) {
  const TcpStoreServer server({.secret = secret_});
  const auto store = client(server);
  for (const wire::Kind kind : {wire::Kind::kSet, static_cast<wire::Kind>(99)}) {
    Raw raw(server.port());
    (void)raw.shake_hands(secret_);
    std::string head = wire::message(kind, "", "", 0);
    if (kind == wire::Kind::kSet) head.replace(8, 4, "\xff\xff\xff\x7f");
    raw.say(head);
    EXPECT_TRUE(raw.ended());
  }

  EXPECT_EQ(server.counts().broken, 2);
  store->set("alive", "yes");
  EXPECT_EQ(store->get("alive", kLong), "yes");
}

TEST_F(TcpStoreTest, AServerThatEndsIsReportedWithTheOperationAndKey) {
  auto server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.secret = secret_});
  const auto store = client(*server);
  auto waiting = std::async(std::launch::async, [&] { return error_of([&] { (void)store->get("never", kLong); }); });
  ASSERT_EQ(waiting.wait_for(kSoon), std::future_status::timeout);

  server.reset();

  const auto [kind, text] = waiting.get();
  EXPECT_EQ(kind, ErrorKind::kComm);
  EXPECT_THAT(text, HasSubstr("it closed the connection during get 'never'"));
}

TEST_F(TcpStoreTest, NobodyListeningIsNamedWithTheSystemsReason) {
  uint16_t port = 0;
  {
    const TcpStoreServer server({.secret = secret_});
    port = server.port();
  }

  const auto [kind, text] =
      error_of([&] { (void)tcp_store({.port = port, .secret = secret_, .connect_deadline = kSoon}); });

  EXPECT_EQ(kind, ErrorKind::kComm);
  EXPECT_EQ(text, fmt::format("tcp store 127.0.0.1:{}: cannot connect within 20.0 ms (Connection refused); is "
                              "the launcher running there?",
                              port));
}

TEST_F(TcpStoreTest, AnAddressThatIsNoneIsRefused) {
  EXPECT_EQ(error_of([] { const TcpStoreServer server({.address = "nowhere"}); }).second,
            "tcp store: 'nowhere' is not an address to listen on; give a numeric one such as 127.0.0.1");
}

TEST_F(TcpStoreTest, ServersGetPortsOfTheirOwn) {
  const TcpStoreServer a({.secret = secret_});
  const TcpStoreServer b({.secret = secret_});

  EXPECT_NE(a.port(), 0);
  EXPECT_NE(a.port(), b.port());
}

}  // namespace
}  // namespace trireme::comm::tcp_store_test
