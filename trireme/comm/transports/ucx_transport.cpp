// Messages through UCX, which chooses TCP, InfiniBand or shared memory itself. The only file that
// knows UCX.
#include "trireme/base/error.h"
#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/transports/hangup.h"

#if TRIREME_HAVE_UCX

#include <dlfcn.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <ucp/api/ucp.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <unordered_set>

#include "trireme/base/flags.h"
#include "trireme/base/log.h"
#include "trireme/comm/engine/block_pool.h"
#include "trireme/comm/engine/roster.h"
#include "trireme/comm/shm/pages.h"
#include "trireme/comm/shm/shm_mesh.h"
#include "trireme/comm/stores/hmac.h"
#include "trireme/comm/transports/tag_cipher.h"

namespace trireme::comm {
namespace {

constexpr int kMaxRanks = 1 << 16;
constexpr int kMaxChannels = 1 << 16;
constexpr auto kClosing = std::chrono::seconds(1);  // spent at most on closing connections in good order
constexpr size_t kRandomDigits = 2 * sizeof(Secret);
constexpr auto kMoment = std::chrono::milliseconds(10);
constexpr const char* kKeepalive = "20ms";  // how often UCX looks whether idle peers still live

void check(ucs_status_t status, std::string_view what) {
  if (status != UCS_OK) fail(ErrorKind::kComm, "ucx: {}: {}", what, ucs_status_string(status));
}

// UCX prints; the library does not. Its lines are there under TRIREME_LOG=comm=debug.
ucs_log_func_rc_t log_line_of_ucx(const char*, unsigned, const char*, ucs_log_level_t,
                                  const ucs_log_component_config_t*, const char* format, va_list arguments) {
  char line[512];
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(line, sizeof(line), format, copy);
  va_end(copy);
  TRIREME_LOG(kDebug, "comm", "ucx: {}", line);
  return UCS_LOG_FUNC_RC_STOP;
}

void quiet_ucx() {
  static const bool done = [] {
    ucs_log_push_handler(log_line_of_ucx);
    return true;
  }();
  static_cast<void>(done);
}

// A large message waits by default until its receiver has answered, so that a network card can write into the
// receiver's memory. TCP has nothing to gain from that, and the cable stands still meanwhile: between hosts without
// such a card messages are sent at once.
bool has_rdma() {
  std::error_code error;
  const std::filesystem::directory_iterator cards("/sys/class/infiniband", error);
  return !error && cards != std::filesystem::directory_iterator();
}

class UcxTransport final : public Transport {
 public:
  UcxTransport(const WorldOptions& options, bool on_one_host)
      : options_(options), on_one_host_(on_one_host), peers_(static_cast<size_t>(options.size)) {
    require(options.size <= kMaxRanks, "ucx: {} ranks; at most {} are possible", options.size, kMaxRanks);
    quiet_ucx();
    try {
      open_worker();
      connect_all();
    } catch (...) {
      close_all();
      throw;
    }
  }

  ~UcxTransport() override { close_all(); }

  std::string_view name() const override { return "ucx"; }
  std::string describe(int peer) const override { return peers_[static_cast<size_t>(peer)].name; }
  bool delivers_after_stop() const override { return false; }

  int open(const std::vector<int>& world_ranks, int number) override {
    const int channel = agree_on_channel(options_, world_ranks, number);
    require(channel < kMaxChannels, "ucx: group number {}; a job may make at most {} groups", channel, kMaxChannels);
    return channel;
  }

  void start_send(Transfer& transfer) override {
    ucp_request_param_t param = param_for(transfer);
    param.cb.send = [](void* request, ucs_status_t status, void* data) {
      finish(*static_cast<Transfer*>(data), request, status);
    };
    const Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
    if (peer.endpoint == nullptr) return fail_transfer(transfer, UCS_ERR_CONNECTION_RESET);
    started(transfer,
            ucp_tag_send_nbx(peer.endpoint, transfer.data, transfer.bytes, tag_of(transfer, options_.rank), &param));
  }

  void receive(Transfer& transfer) override {
    ucp_request_param_t param = param_for(transfer);
    // Always by the callback, which alone tells how much has come.
    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    param.cb.recv = [](void* request, ucs_status_t status, const ucp_tag_recv_info_t* got, void* data) {
      auto& done = *static_cast<Transfer*>(data);
      finish(done, request, status);
      static_cast<UcxTransport*>(done.owner)->took(done);
      if (done.state != Transfer::State::kDone || got->length == done.bytes) return;
      done.state = Transfer::State::kFailed;
      done.problem = fmt::format("sent {} bytes where {} were expected", got->length, done.bytes);
      done.wrong_size = true;
    };
    transfer.state = Transfer::State::kIdle;
    const ucs_status_ptr_t request = ucp_tag_recv_nbx(worker_, transfer.data, transfer.bytes,
                                                      tag_of(transfer, transfer.peer), ~ucp_tag_t{0}, &param);
    if (transfer.state == Transfer::State::kIdle) started(transfer, request);
  }

  bool progress() override {
    bool moved = false;
    for (int i = 0; i < 16 && ucp_worker_progress(worker_) != 0; ++i) moved = true;
    return moved;
  }

  void rest(std::chrono::microseconds limit) override {
    if (ucp_worker_arm(worker_) != UCS_OK) return;  // something has come
    pollfd entries[2] = {{event_fd_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit);
    if (poll(entries, 2, static_cast<int>(ms.count())) > 0 && entries[1].revents != 0) {
      uint64_t count = 0;
      if (read(wake_.get(), &count, sizeof(count)) < 0) return;  // another wake follows
    }
  }

  void wake() override {
    const uint64_t one = 1;
    if (write(wake_.get(), &one, sizeof(one)) < 0) return;  // full: it is awake
  }

  void find_lost(std::vector<int>& lost) override {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i].failed || peers_[i].reported) continue;
      peers_[i].reported = true;
      lost.push_back(static_cast<int>(i));
    }
  }

  void stop(bool orderly) override {
    const std::vector<Transfer*> pending(pending_.begin(), pending_.end());
    for (const Transfer* transfer : pending) {
      if (transfer->state == Transfer::State::kPending) ucp_request_cancel(worker_, transfer->native);
    }
    // Only sends are left now. Those that no peer takes end when the connection is cut; what is
    // small, such as a notice, is gone in a moment.
    const auto sent = [&] { return pending_.empty(); };
    orderly = run_until(sent, kMoment) && orderly;
    close_endpoints(orderly);
    // UCX may read from a buffer until it reports that the transfer has ended.
    run_until(sent, kClosing);
  }

  std::span<std::byte> allocate(size_t bytes) override { return memory_.add(bytes); }

 private:
  struct Peer {
    UcxTransport* transport = nullptr;
    ucp_ep_h endpoint = nullptr;
    std::string name;
    bool failed = false;
    bool reported = false;
  };

  // channel | rank of the sender | tag
  ucp_tag_t tag_of(const Transfer& transfer, int from) const {
    return encipher(static_cast<uint64_t>(transfer.channel) << 48 | static_cast<uint64_t>(from) << 32 | transfer.tag,
                    tag_key_);
  }

  ucp_request_param_t param_for(Transfer& transfer) {
    transfer.owner = this;
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.user_data = &transfer;
    return param;
  }

  static void fail_transfer(Transfer& transfer, ucs_status_t status) {
    transfer.state = Transfer::State::kFailed;
    transfer.wrong_size = status == UCS_ERR_MESSAGE_TRUNCATED;
    transfer.problem = status == UCS_ERR_MESSAGE_TRUNCATED
                           ? fmt::format("sent more than the {} bytes expected", transfer.bytes)
                           : std::string(ucs_status_string(status));
  }

  // What UCX says of a transfer at its start: done, failed, or on its way.
  void started(Transfer& transfer, ucs_status_ptr_t request) {
    transfer.native = nullptr;
    if (request == nullptr) {
      transfer.state = Transfer::State::kDone;
    } else if (UCS_PTR_IS_ERR(request)) {
      fail_transfer(transfer, UCS_PTR_STATUS(request));
    } else {
      transfer.state = Transfer::State::kPending;
      transfer.native = request;
      pending_.insert(&transfer);
    }
  }

  static void finish(Transfer& transfer, void* request, ucs_status_t status) {
    ucp_request_free(request);
    transfer.native = nullptr;
    static_cast<UcxTransport*>(transfer.owner)->pending_.erase(&transfer);
    if (status == UCS_OK) {
      transfer.state = Transfer::State::kDone;
    } else {
      fail_transfer(transfer, status);
    }
  }

  void open_worker() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "its settings cannot be read");
    ucp_config_modify(config, "KEEPALIVE_INTERVAL", kKeepalive);  // absent before 1.11
    if (!on_one_host_ && !has_rdma() && !flag_text("UCX_RNDV_THRESH")) {
      ucp_config_modify(config, "RNDV_THRESH", "inf");
    }
    // What goes into a socket in one call: as much as is taken out in one, and not 8 KiB, whose many calls take the
    // core from a step.
    if (!flag_text("UCX_TCP_TX_SEG_SIZE"))
      check(ucp_config_modify(config, "TCP_TX_SEG_SIZE", "64k"), "the size of what is sent at once cannot be set");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    params.estimated_num_eps = static_cast<size_t>(options_.size);
    const ucs_status_t status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    check(status, "it cannot start");
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    check(ucp_worker_create(context_, &worker, &worker_), "no worker");
    check(ucp_worker_get_efd(worker_, &event_fd_), "no event descriptor");
    wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_.get() < 0) fail(ErrorKind::kIo, "ucx: no event descriptor: {}", std::strerror(errno));
  }

  void connect_all() {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    check(ucp_worker_get_address(worker_, &address, &length), "no address");
    const std::string name = fmt::format("pid {}", getpid());
    // The random digits make the key: the store shows them to nobody who has not proven the job's secret.
    std::string value = fmt::format("{}{:04x}{}", to_hex(random_secret()), name.size(), name);
    value.append(reinterpret_cast<const char*>(address), length);
    ucp_worker_release_address(worker_, address);
    const std::vector<std::string> values = exchange(options_, "ucx", value);
    take_key(values);
    for (size_t i = 0; i < values.size(); ++i) {
      Peer& peer = peers_[i];
      peer.transport = this;
      const size_t name_begin = kRandomDigits + 4;
      const size_t name_end = name_begin + std::stoul(values[i].substr(kRandomDigits, 4), nullptr, 16);
      peer.name = values[i].substr(name_begin, name_end - name_begin);
      ucp_ep_params_t params{};
      params.field_mask =
          UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.address = reinterpret_cast<const ucp_address_t*>(values[i].data() + name_end);
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler.arg = &peer;
      params.err_handler.cb = [](void* arg, ucp_ep_h, ucs_status_t) { static_cast<Peer*>(arg)->failed = true; };
      check(ucp_ep_create(worker_, &params, &peer.endpoint), fmt::format("rank {} cannot be reached", i));
    }
    greet_all();
  }

  // All ranks see the same values, and nobody else.
  void take_key(const std::vector<std::string>& values) {
    std::string all;
    for (const std::string& value : values) all += value;
    const Digest digest = sha256(all);
    std::memcpy(tag_key_.data(), digest.data(), sizeof(tag_key_));
  }

  // A message to and from every peer, which none but a rank of the job can send: connections are made on first use, and
  // only one that is made can tell that its peer is gone.
  void greet_all() {
    const auto count = static_cast<size_t>(options_.size);
    std::vector<Transfer> transfers(2 * count);
    std::vector<std::byte> bytes(2 * count);
    for (size_t i = 0; i < 2 * count; ++i) {
      transfers[i].peer = static_cast<int>(i / 2);
      transfers[i].data = &bytes[i];
      transfers[i].bytes = 1;
      i % 2 == 0 ? receive(transfers[i]) : send(transfers[i]);
    }
    const auto end = Clock::now() + options_.deadline;
    for (size_t i = 0; i < 2 * count; ++i) {
      const Transfer& transfer = transfers[i];
      while (transfer.state == Transfer::State::kPending && Clock::now() < end && !peers_[i / 2].failed) {
        if (!progress()) rest(std::chrono::milliseconds(1));
      }
      if (transfer.state == Transfer::State::kDone) continue;
      const bool late = transfer.state == Transfer::State::kPending && !peers_[i / 2].failed;
      stop(false);
      fail(late ? ErrorKind::kTimeout : ErrorKind::kComm, "[rank {} of {}] ucx (job {}): rank {} ({}) {}",
           options_.rank, options_.size, options_.job, i / 2, peers_[i / 2].name,
           late ? "did not answer in time" : "cannot be reached");
    }
  }

  bool run_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
    const auto end = Clock::now() + limit;
    while (!done() && Clock::now() < end) ucp_worker_progress(worker_);
    return done();
  }

  void close_endpoints(bool orderly) {
    std::vector<ucs_status_ptr_t> closing;
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr) continue;
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = orderly && !peer.failed ? 0U : static_cast<uint32_t>(UCP_EP_CLOSE_FLAG_FORCE);
      const ucs_status_ptr_t request = ucp_ep_close_nbx(peer.endpoint, &param);
      if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
      peer.endpoint = nullptr;
    }
    run_until(
        [&] {
          return std::none_of(closing.begin(), closing.end(), [](ucs_status_ptr_t request) {
            return ucp_request_check_status(request) == UCS_INPROGRESS;
          });
        },
        kClosing);
    for (const ucs_status_ptr_t request : closing) ucp_request_free(request);
  }

  void close_all() {
    if (worker_ != nullptr) {
      close_endpoints(true);
      ucp_worker_destroy(worker_);
      worker_ = nullptr;
    }
    if (context_ != nullptr) ucp_cleanup(context_);
    context_ = nullptr;
  }

  WorldOptions options_;
  bool on_one_host_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // the worker's
  Fd wake_;
  std::vector<Peer> peers_;
  TagKey tag_key_{};
  BlockPool pool_;
  std::pmr::unordered_set<Transfer*> pending_{&pool_};  // started and not yet done
  PrivatePages memory_;
};

}  // namespace

bool has_ucx() {
  return true;
}

void take_hangup_from_ucx() {
  struct sigaction now {};
  Dl_info owner{};
  if (sigaction(SIGHUP, nullptr, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) return;
  if (dladdr(reinterpret_cast<void*>(now.sa_handler), &owner) == 0 || owner.dli_fname == nullptr) return;
  if (std::string_view(owner.dli_fname).find("libucs") != std::string_view::npos) ucs_debug_disable_signal(SIGHUP);
}

Backend ucx_backend(const WorldOptions& options, bool on_one_host) {
  return message_backend(std::make_unique<UcxTransport>(options, on_one_host));
}

}  // namespace trireme::comm

#else

namespace trireme::comm {

bool has_ucx() {
  return false;
}

void take_hangup_from_ucx() {}

Backend ucx_backend(const WorldOptions&, bool) {
  fail(ErrorKind::kUnsupported,
       "connect: this build has no UCX, so there is no transport 'ucx'; install libucx-dev and "
       "build again, or "
       "use 'shm' on one host and 'mpi' under mpirun");
}

}  // namespace trireme::comm

#endif
