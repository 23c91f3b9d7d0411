#include "trireme/launch/cluster/message.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/launch/cluster/handshake.h"

namespace trireme::launch::message_test {
namespace {

NodeReport report() {
  return {.node_id = "node1",
          .instance = 0xfedcba9876543210,
          .node_rank = 1,
          .nodes = 2,
          .world = 8,
          .workers = 4,
          .host = "b",
          .store_address = "10.0.0.2",
          .store_port = 65'535,
          .job = 1,
          .first_rank = 4,
          .state = NodeState::kFailed,
          .interrupt = 15,
          .ending = {.exit_code = 7, .rank = 5, .interrupt = 2, .may_be_consequence = true, .text = "rank 5: why"},
          .seen = 9,
          .name = 10};
}

TEST(SchedulerMessage, AReportReadsBackAsItWas) {
  const NodeReport read = decode_report(encode(report()));
  EXPECT_EQ(read.node_id, "node1");
  EXPECT_EQ(read.instance, 0xfedcba9876543210);
  EXPECT_EQ(read.first_rank, 4);
  EXPECT_EQ(read.state, NodeState::kFailed);
  EXPECT_EQ(read.ending.text, "rank 5: why");
  EXPECT_EQ(read.name, 10U);
  EXPECT_TRUE(read.ending.may_be_consequence);
  EXPECT_EQ(encode(read), encode(report()));
}

TEST(SchedulerMessage, AViewReadsBackAsItWas) {
  const ClusterView view{.version = 3,
                         .phase = Phase::kOver,
                         .refused = "no",
                         .job = 4,
                         .registered = 8,
                         .first_rank = 4,
                         .node_index = 1,
                         .nodes = 2,
                         .first_local = 1,
                         .local_world = 5,
                         .store_address = "h",
                         .store_port = 1,
                         .interrupt = 2,
                         .ending = {.exit_code = 130, .text = "x"},
                         .name = 11};
  EXPECT_EQ(encode(decode_view(encode(view))), encode(view));
  EXPECT_EQ(decode_view(encode(view)).ending.exit_code, 130);
  EXPECT_EQ(decode_view(encode(view)).name, 11U);
}

TEST(SchedulerMessage, LongTextsAreCutSoThatAMessageFits) {
  NodeReport long_one = report();
  long_one.node_id = std::string(10'000, 'i');
  long_one.host = std::string(10'000, 'h');
  long_one.ending.text = std::string(100'000, 't');
  const std::string bytes = encode(long_one);
  EXPECT_LE(bytes.size() + 32, kMaxMessage);
  EXPECT_EQ(decode_report(bytes).node_id.size(), 255U);
}

TEST(SchedulerMessage, DamagedBytesAreRefusedOrReadAndNeverMore) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::string whole = encode(report());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_THROW(decode_report(whole.substr(0, length)), Error);
  EXPECT_THROW(decode_report(whole + "x"), Error);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = whole;
    for (int change = 0; change < 1 + i % 4; ++change) bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      const NodeReport read = decode_report(bytes);
      EXPECT_LE(read.world, 65'536);
    } catch (const Error& e) {
      ASSERT_EQ(e.kind(), ErrorKind::kCorrupt);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

struct Ends {
  Seals server;
  Seals client;
};

Ends shake_hands(const comm::Secret& secret) {
  const ServerHandshake server(secret);
  ClientHandshake client(secret);
  const auto answer = client.answer(server.challenge());
  const auto outcome = server.check(answer.value());
  return {outcome.value().seals, client.check(outcome.value().proof).value()};
}

TEST(SchedulerSession, BothEndsOfOneSecretUnderstandEachOther) {
  Ends ends = shake_hands(comm::random_secret());
  for (const std::string text : {"first", "", "third"}) {
    EXPECT_EQ(ends.server.open(ends.client.seal(text)), text);
    EXPECT_EQ(ends.client.open(ends.server.seal(text)), text);
  }
}

TEST(SchedulerSession, AnotherSecretIsRefusedByBothEnds) {
  const ServerHandshake server(comm::random_secret());
  ClientHandshake client(comm::random_secret());
  const auto answer = client.answer(server.challenge());
  EXPECT_FALSE(server.check(answer.value()));
  EXPECT_FALSE(client.check(std::string(32, '\0')));
  EXPECT_FALSE(client.check(answer->substr(32)));  // the client's own proof sent back
}

TEST(SchedulerSession, ARecordedAnswerDoesNotServeAnotherConnection) {
  const comm::Secret secret = comm::random_secret();
  ClientHandshake client(secret);
  const ServerHandshake first(secret);
  const auto answer = client.answer(first.challenge());
  EXPECT_TRUE(first.check(answer.value()));
  EXPECT_FALSE(ServerHandshake(secret).check(answer.value()));
}

TEST(SchedulerSession, MessagesCannotBeRepeatedReorderedSentBackOrChanged) {
  Ends ends = shake_hands(comm::random_secret());
  const std::string one = ends.client.seal("one");
  const std::string two = ends.client.seal("two");
  EXPECT_FALSE(ends.server.open(two));
  EXPECT_EQ(ends.server.open(one), "one");
  EXPECT_FALSE(ends.server.open(one));
  EXPECT_FALSE(ends.client.open(one));
  std::string changed = two;
  changed.back() = 'x';
  EXPECT_FALSE(ends.server.open(changed));
  EXPECT_EQ(ends.server.open(two), "two");
}

// Section 5.6 X1 of the runtime's goals, in small: nothing but the answer to this very challenge is let in.
TEST(SchedulerSession, RandomAndMutatedAnswersAreAllRefused) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const comm::Secret secret = comm::random_secret();
  const ServerHandshake server(secret);
  const std::string good = ClientHandshake(secret).answer(server.challenge()).value();
  for (int i = 0; i < 20'000; ++i) {
    std::string answer = good;
    if (i % 3 == 0) answer.resize(random() % 256);
    answer.resize(std::max<size_t>(answer.size(), 1));
    const size_t at = random() % answer.size();
    answer[at] = static_cast<char>(answer[at] ^ static_cast<char>(1 + random() % 255));
    ASSERT_FALSE(server.check(answer));
  }
}

}  // namespace
}  // namespace trireme::launch::message_test
