// Messages through MPI, for jobs that mpirun starts. The only file that knows MPI.
//
// MPI tells nobody that a peer is gone: its launcher ends the whole job. So a lost peer shows here
// as a deadline that passes, or not at all.
#include "trireme/base/error.h"
#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/transports/mpi_start.h"

#if TRIREME_HAVE_MPI

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <thread>

#include "trireme/comm/shm/pages.h"
#include "trireme/comm/transports/mpi_tags.h"

namespace trireme::comm {
namespace {

constexpr size_t kMessagePart = size_t{1} << 30;  // bytes of one MPI message, whose count is an int
constexpr auto kPollPause = std::chrono::microseconds(20);
constexpr auto kDraining = std::chrono::milliseconds(100);  // given to sends that nobody may take

void check(int status, std::string_view what) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(ErrorKind::kComm, "mpi: {}: {}", what, text);
}

// MPI can be started once in a process and is ended when the process exits. A process whose world
// broke does not end it, which would wait for all; the launcher sees that and ends the job.
class Runtime {
 public:
  static Runtime& get() {
    static Runtime runtime;
    return runtime;
  }
  int threads() const { return threads_; }
  void leave_open() { owned_ = false; }
  // MPI has messages under way whose bytes may be gone: from now on this process calls it no more.
  void abandon() { abandoned_ = true; }
  bool is_abandoned() const { return abandoned_; }

 private:
  Runtime() {
    int started = 0;
    MPI_Initialized(&started);
    if (started != 0) {
      MPI_Query_thread(&threads_);
    } else {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads_), "it cannot start");
      owned_ = true;
    }
  }
  ~Runtime() {
    int ended = 0;
    MPI_Finalized(&ended);
    if (owned_ && ended == 0) MPI_Finalize();
  }

  bool owned_ = false;
  std::atomic<bool> abandoned_{false};
  int threads_ = MPI_THREAD_SINGLE;
};

// The messages of a group: a communicator for each kind of them, since MPI has few tags. Ranks in it are those of the
// list that the group was made of.
struct Channel {
  std::array<MPI_Comm, kMpiKinds> of_kind;
  std::vector<int> ranks;  // by world rank, here; empty: they are those of the world
};

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    require(!Runtime::get().is_abandoned(),
            "mpi: a world of this process has ended with messages under way that no other rank took; start the process "
            "again");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &world_), "the communicator cannot be copied");
    MPI_Comm_rank(world_, &rank_);
    MPI_Comm_size(world_, &size_);
    int* most = nullptr;
    int is_known = 0;
    check(MPI_Comm_get_attr(world_, MPI_TAG_UB, &most, &is_known), "the largest tag is not known");
    if (is_known != 0) most_tag_ = *most;
    channels_.push_back(channel_of(world_, kMpiKinds));
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  // As in EngineOptions.
  std::vector<int> hosts() const {
    MPI_Comm host = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host), "ranks of this host");
    int lowest = rank_;
    check(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, host), "ranks of this host");
    MPI_Comm_free(&host);
    std::vector<int> out(static_cast<size_t>(size_));
    check(MPI_Allgather(&lowest, 1, MPI_INT, out.data(), 1, MPI_INT, world_), "ranks of all hosts");
    return out;
  }

  std::string_view name() const override { return "mpi"; }
  std::string describe(int peer) const override { return fmt::format("MPI rank {}", peer); }
  bool delivers_after_stop() const override { return false; }

  int open(const std::vector<int>& world_ranks, int number) override {
    MPI_Group everyone = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm communicator = MPI_COMM_NULL;
    MPI_Comm_group(world_, &everyone);
    MPI_Group_incl(everyone, static_cast<int>(world_ranks.size()), world_ranks.data(), &members);
    const int status =
        MPI_Comm_create_group(world_, members, mpi_turn(static_cast<uint32_t>(number), most_tag_), &communicator);
    MPI_Group_free(&members);
    MPI_Group_free(&everyone);
    check(status, "a group cannot be made");
    Channel made = channel_of(communicator, kMpiKinds - 1);  // notices are the world's
    made.ranks.assign(static_cast<size_t>(size_), -1);
    for (size_t i = 0; i < world_ranks.size(); ++i)
      made.ranks[static_cast<size_t>(world_ranks[i])] = static_cast<int>(i);
    const std::lock_guard lock(mutex_);
    const auto unused =
        std::ranges::find_if(channels_, [](const Channel& one) { return one.of_kind[0] == MPI_COMM_NULL; });
    const auto at = static_cast<size_t>(unused - channels_.begin());
    if (unused == channels_.end()) channels_.emplace_back();
    channels_[at] = std::move(made);
    return static_cast<int>(at);
  }

  void close(int channel) override {
    const std::lock_guard lock(mutex_);
    for (MPI_Comm& each : channels_[static_cast<size_t>(channel)].of_kind) {
      if (each != MPI_COMM_NULL) check(MPI_Comm_free(&each), "a group cannot be freed");
    }
  }

  void start_send(Transfer& transfer) override { start(transfer, true); }
  void receive(Transfer& transfer) override { start(transfer, false); }

  bool progress() override {
    if (requests_.empty()) return false;
    int count = 0;
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int status =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, done_.data(), statuses_.data());
    if (count == MPI_UNDEFINED || count == 0) return false;
    for (int i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(done_[static_cast<size_t>(i)]);
      const MPI_Status& result = statuses_[static_cast<size_t>(i)];
      end_part(parts_[at], result, status == MPI_ERR_IN_STATUS ? result.MPI_ERROR : status);
    }
    for (size_t i = requests_.size(); i-- > 0;) {
      if (requests_[i] != MPI_REQUEST_NULL) continue;
      requests_[i] = requests_.back();
      requests_.pop_back();
      parts_[i] = parts_.back();
      parts_.pop_back();
    }
    return true;
  }

  // MPI has nothing to sleep on.
  void rest(std::chrono::microseconds limit) override { std::this_thread::sleep_for(std::min(limit, kPollPause)); }
  void wake() override {}
  void find_lost(std::vector<int>&) override {}

  void stop(bool orderly) override {
    cancel_receipts([](const Part&) { return true; });
    const auto end = Clock::now() + kDraining;
    while (!requests_.empty() && Clock::now() < end) {
      if (!progress()) rest(kPollPause);
    }
    if (!orderly || !requests_.empty()) Runtime::get().leave_open();
    if (!requests_.empty()) Runtime::get().abandon();
  }

  std::span<std::byte> allocate(size_t bytes) override { return memory_.add(bytes); }

 private:
  struct Part {
    Transfer* transfer = nullptr;
    size_t begin = 0;
    size_t bytes = 0;
    bool is_send = false;
  };

  // The communicator itself, which is the first, and copies; collective over its ranks.
  static Channel channel_of(MPI_Comm communicator, size_t kinds) {
    Channel out;
    out.of_kind.fill(MPI_COMM_NULL);
    out.of_kind[0] = communicator;
    for (size_t kind = 1; kind < kinds; ++kind)
      check(MPI_Comm_dup(communicator, &out.of_kind[kind]), "the communicator cannot be copied");
    for (size_t kind = 0; kind < kinds; ++kind) MPI_Comm_set_errhandler(out.of_kind[kind], MPI_ERRORS_RETURN);
    return out;
  }

  void start(Transfer& transfer, bool is_send) {
    const auto [kind, tag] = mpi_tag(transfer.tag, most_tag_);
    MPI_Comm communicator = MPI_COMM_NULL;
    int peer = transfer.peer;
    {
      const std::lock_guard lock(mutex_);
      const Channel& channel = channels_[static_cast<size_t>(transfer.channel)];
      communicator = channel.of_kind[kind];
      if (!channel.ranks.empty()) peer = channel.ranks[static_cast<size_t>(transfer.peer)];
    }
    transfer.state = Transfer::State::kPending;
    transfer.problem.clear();
    transfer.wrong_size = false;
    uintptr_t parts = 0;
    size_t begin = 0;
    size_t bytes = 0;
    do {
      bytes = std::min(kMessagePart, transfer.bytes - begin);
      MPI_Request request = MPI_REQUEST_NULL;
      const auto count = static_cast<int>(bytes);
      check(is_send ? MPI_Isend(transfer.data + begin, count, MPI_BYTE, peer, tag, communicator, &request)
                    : MPI_Irecv(transfer.data + begin, count, MPI_BYTE, peer, tag, communicator, &request),
            "a message cannot be started");
      requests_.push_back(request);
      parts_.push_back({&transfer, begin, bytes, is_send});
      ++parts;
      begin += bytes;
    } while (bytes == kMessagePart);  // the last is short, so that a message with more of them does not pass for this
    transfer.native = reinterpret_cast<void*>(parts);  // those that are not done
  }

  // A message has failed when one of its parts has; but its bytes are used until none is left.
  void end_part(const Part& part, const MPI_Status& result, int error) {
    Transfer& transfer = *part.transfer;
    int count = static_cast<int>(part.bytes);
    int is_cancelled = 0;
    if (error == MPI_SUCCESS && !part.is_send) {
      MPI_Test_cancelled(&result, &is_cancelled);
      MPI_Get_count(&result, MPI_BYTE, &count);
    }
    const bool failed_before = !transfer.problem.empty();
    if (failed_before) {
      transfer.wrong_size = transfer.wrong_size && is_cancelled != 0;  // else it has taken a message after this one
    } else if (error != MPI_SUCCESS) {
      transfer.problem =
          fmt::format("sent more than the {} bytes expected, or failed (MPI error {})", transfer.bytes, error);
    } else if (is_cancelled != 0) {
      transfer.problem = "did not send before the end";
    } else if (static_cast<size_t>(count) != part.bytes) {
      const size_t all = part.begin + static_cast<size_t>(count);
      transfer.problem = fmt::format("sent {} bytes where {} were expected", all, transfer.bytes);
      transfer.wrong_size = has_all_after(part);
    }
    if (!failed_before && !transfer.problem.empty())
      cancel_receipts([&](const Part& one) { return one.transfer == &transfer; });
    const uintptr_t left = reinterpret_cast<uintptr_t>(transfer.native) - 1;
    transfer.native = reinterpret_cast<void*>(left);
    if (left > 0) return;
    transfer.state = transfer.problem.empty() ? Transfer::State::kDone : Transfer::State::kFailed;
    if (!part.is_send) took(transfer);
  }

  // Whether nothing has come for the parts of its message that follow.
  bool has_all_after(const Part& part) const {
    size_t pending = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const bool follows = parts_[i].transfer == part.transfer && parts_[i].begin > part.begin;
      if (follows && requests_[i] != MPI_REQUEST_NULL) ++pending;
    }
    return pending == part.transfer->bytes / kMessagePart - part.begin / kMessagePart;
  }

  template <class Which>
  void cancel_receipts(Which which) {
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (!parts_[i].is_send && requests_[i] != MPI_REQUEST_NULL && which(parts_[i])) MPI_Cancel(&requests_[i]);
    }
  }

  MPI_Comm world_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int most_tag_ = kMpiGuaranteedTag;
  std::mutex mutex_;  // groups are made beside the driving thread
  std::deque<Channel> channels_;
  std::vector<MPI_Request> requests_;  // and what each is a part of:
  std::vector<Part> parts_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  PrivatePages memory_;
};

}  // namespace

Backend mpi_backend(const WorldOptions& options, EngineOptions& engine) {
  auto transport = std::make_unique<MpiTransport>();
  const bool fits = options.size == 1 || (options.size == transport->size() && options.rank == transport->rank());
  require(fits,
          "connect: asked to be rank {} of {}, but MPI says rank {} of {}; leave rank and size to MPI: start the ranks "
          "by mpirun, without -n",
          options.rank, options.size, transport->rank(), transport->size());
  engine.rank = transport->rank();
  engine.size = transport->size();
  engine.hosts = transport->hosts();
  const int64_t on_host = std::ranges::count(engine.hosts, engine.hosts[static_cast<size_t>(engine.rank)]);
  engine.crowded = on_host > static_cast<int64_t>(std::thread::hardware_concurrency());
  // A thread in the background calls MPI too.
  engine.background = options.background && Runtime::get().threads() >= MPI_THREAD_MULTIPLE;
  return message_backend(std::move(transport));
}

bool has_mpi() {
  return true;
}

std::string from_rank_0_by_mpi(const std::string& text) {
  int started = 0;
  int ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  require(ended == 0,
          "mpi: this process has finalized MPI already; call MPI_Init before Job::init and MPI_Finalize last, or set "
          "MASTER_ADDR and MASTER_PORT");
  if (started == 0) check(MPI_Init(nullptr, nullptr), "it cannot start");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::string out = text;
  int size = static_cast<int>(out.size());
  check(MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD), "rank 0's address is not available");
  out.resize(static_cast<size_t>(size));
  check(MPI_Bcast(out.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD), "rank 0's address is not available");
  if (started == 0) MPI_Finalize();
  return rank == 0 ? text : out;
}

}  // namespace trireme::comm

#else

namespace trireme::comm {

bool has_mpi() {
  return false;
}

std::string from_rank_0_by_mpi(const std::string&) {
  fail(ErrorKind::kUnsupported, "mpi: this build has no MPI; install libopenmpi-dev and build again");
}

Backend mpi_backend(const WorldOptions&, EngineOptions&) {
  fail(ErrorKind::kUnsupported,
       "connect: this build has no MPI, so there is no transport 'mpi'; install libopenmpi-dev and "
       "build again, "
       "or give a store and use 'shm' or 'ucx'");
}

}  // namespace trireme::comm

#endif
