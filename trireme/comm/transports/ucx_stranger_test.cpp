// A stranger that has the address of a rank's UCX worker, knows how tags are made up, but not the key of the job.
#include <gtest/gtest.h>

#if TRIREME_HAVE_UCX

#include <ucp/api/ucp.h>

#include <latch>
#include <thread>

#include "trireme/comm/comm.h"
#include "trireme/comm/stores/hmac.h"
#include "trireme/comm/stores/memory_store.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::comm::ucx_stranger_test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kElements = 1000;
constexpr int kTag = 5;

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    EXPECT_EQ(ucp_init(&params, nullptr, &context_), UCS_OK);
    ucp_worker_params_t worker{};
    EXPECT_EQ(ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    endpoint.address = reinterpret_cast<const ucp_address_t*>(address.data());
    EXPECT_EQ(ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  ~Stranger() {
    ucp_request_param_t param{};
    finish(ucp_ep_close_nbx(endpoint_, &param));
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // Returns when they are there.
  void send(const std::vector<uint64_t>& tags, std::span<const float> values) {
    ucp_request_param_t param{};
    for (const uint64_t tag : tags)
      finish(ucp_tag_send_nbx(endpoint_, values.data(), values.size_bytes(), tag, &param));
    finish(ucp_ep_flush_nbx(endpoint_, &param));
  }

 private:
  void finish(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && std::chrono::steady_clock::now() < end)
      ucp_worker_progress(worker_);
    EXPECT_EQ(ucp_request_check_status(request), UCS_OK);
    ucp_request_free(request);
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

std::string address_of(Store& store, int rank) {
  const std::string value = store.get(fmt::format("job/ucx/{}", rank), 10s);
  const size_t digits = 2 * sizeof(Secret);
  return value.substr(digits + 4 + std::stoul(value.substr(digits, 4), nullptr, 16));
}

// Whatever channel and sender it might be taken for: channel, rank of the sender, tag.
std::vector<uint64_t> plain_tags() {
  std::vector<uint64_t> out;
  for (uint64_t channel = 0; channel < 4; ++channel) {
    for (uint64_t from = 0; from < 2; ++from) {
      for (const uint64_t tag : {0U, static_cast<unsigned>(kTag), 1U << 30, (1U << 30) + 1})
        out.push_back(channel << 48 | from << 32 | tag);
    }
  }
  return out;
}

TEST(UcxStranger, ItsMessagesAreNotTakenForThoseOfARank) {
  const auto store = std::make_shared<MemoryStore>();
  std::latch posted(2);
  std::latch thrown(2);
  HostTensor got(TensorType{DType::kF32, Shape{kElements}});
  std::vector<float> sums(2);
  const auto run = [&](int rank) {
    const auto world = connect({.rank = rank, .size = 2, .transport = "ucx", .store = store, .deadline = 60s});
    const HostTensor own(TensorType{DType::kF32, Shape{kElements}});
    for (float& x : own.as<float>()) x = 1;
    if (rank == 0) {
      Work work = world->all().recv(got.view(), 1, kTag);
      posted.count_down();
      work.wait();
    } else {
      thrown.arrive_and_wait();
      world->all().send(own.view(), 0, kTag).wait();
    }
    for (int i = 0; i < 10; ++i) world->all().all_reduce(own.view(), Reduce::kSum).wait();
    sums[static_cast<size_t>(rank)] = own.as<float>()[kElements - 1];
    world->all().barrier().wait();
  };
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) ranks.emplace_back(run, rank);
  posted.arrive_and_wait();
  {
    Stranger stranger(address_of(*store, 0));
    stranger.send(plain_tags(), std::vector<float>(kElements, 666));
    thrown.arrive_and_wait();
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(got.as<float>()[0], 1);
  EXPECT_EQ(got.as<float>()[kElements - 1], 1);
  EXPECT_EQ(sums, (std::vector<float>{1024, 1024}));
}

}  // namespace
}  // namespace trireme::comm::ucx_stranger_test

#endif
