// Making a World: the choice of the transport, and the groups.
#include <algorithm>
#include <map>
#include <thread>

#include "trireme/comm/algorithms/backends.h"
#include "trireme/comm/engine/roster.h"
#include "trireme/comm/stores/memory_store.h"

namespace trireme::comm {
namespace {

constexpr int kMostChannels = 1024;  // of one list of ranks

std::string list_text(const std::vector<int>& ranks) {
  std::string out = "[";
  for (const int rank : ranks) out += (out.size() > 1 ? "," : "") + std::to_string(rank);
  return out + "]";
}

class ConnectedWorld final : public World {
 public:
  ConnectedWorld(const EngineOptions& options, Backend backend)
      : engine_(options, std::move(backend.transport)), make_group_(backend.make_group) {
    std::vector<int> everyone(static_cast<size_t>(options.size));
    for (int i = 0; i < options.size; ++i) everyone[static_cast<size_t>(i)] = i;
    all_ = &add_group("world", everyone, 0);
    all_->barrier().wait();
  }

  int rank() const override { return engine_.rank(); }
  int size() const override { return engine_.size(); }
  std::string_view transport() const override { return engine_.transport().name(); }
  bool is_in_memory() const override { return engine_.transport().is_in_memory(); }
  Group& all() override { return *all_; }

  Group& group(const std::vector<int>& world_ranks, int channel) override {
    const std::string name = list_text(world_ranks) + (channel == 0 ? "" : fmt::format(" channel {}", channel));
    require(channel >= 0 && channel < kMostChannels, "group {}: channels are 0 to {}", name, kMostChannels - 1);
    require(!world_ranks.empty(), "group {}: it has no members", name);
    std::vector<int> sorted = world_ranks;
    std::sort(sorted.begin(), sorted.end());
    require(sorted.front() >= 0 && sorted.back() < size(), "group {}: the job has ranks 0 to {} only", name,
            size() - 1);
    require(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "group {}: rank {} is named twice", name,
            *std::adjacent_find(sorted.begin(), sorted.end()));
    require(std::binary_search(sorted.begin(), sorted.end(), rank()),
            "group {}: rank {}, which asks for it, is not a member", name, rank());
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find({world_ranks, channel});
    return found != groups_.end() ? *found->second : add_group(name, world_ranks, channel);
  }

  void destroy(Group& group) override {
    require(&group != all_, "group world: it ends with the job and cannot be destroyed");
    {
      const std::lock_guard lock(mutex_);
      invariant(place_of(group) != groups_.end(), "group {} is not of this world", group.name());
    }
    // Comes after every collective that was started before it, and all members hear the same.
    int32_t busy = engine_.has_messages(group) ? rank() : -1;
    group.all_reduce({reinterpret_cast<std::byte*>(&busy), {DType::kI32, {1}}}, Reduce::kMax).wait();
    require(busy < 0, "group {}: rank {} has messages pending on it; wait for them before it is destroyed",
            group.name(), busy);
    const std::lock_guard lock(mutex_);
    const auto done = place_of(group);
    done->second->close();
    groups_.erase(done);
  }

  std::span<std::byte> allocate(size_t bytes) override { return engine_.transport().allocate(bytes); }
  std::vector<Traffic> traffic() const override { return engine_.traffic(); }

  void abort(std::string reason) { engine_.abort(std::move(reason)); }

 private:
  using Groups = std::map<std::pair<std::vector<int>, int>, std::unique_ptr<GroupBase>>;  // by ranks and channel

  Groups::iterator place_of(const Group& group) {
    return std::find_if(groups_.begin(), groups_.end(),
                        [&](const auto& entry) { return entry.second.get() == &group; });
  }

  GroupBase& add_group(const std::string& name, const std::vector<int>& ranks, int channel) {
    const auto at = std::find(ranks.begin(), ranks.end(), rank());
    GroupBase::Members members{name, ranks, static_cast<int>(at - ranks.begin()), channel};
    return *groups_.emplace(std::pair(ranks, channel), make_group_(engine_, std::move(members))).first->second;
  }

  Groups groups_;  // outlive the engine's operations
  Engine engine_;
  GroupMaker make_group_;
  std::mutex mutex_;
  GroupBase* all_ = nullptr;
};

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names{"auto", "threads", "shm", "ucx", "mpi"};
  return names;
}

void check(const WorldOptions& options) {
  const auto& names = transport_names();
  require(std::find(names.begin(), names.end(), options.transport) != names.end(),
          "connect: there is no transport '{}'.{}", options.transport, suggestion(options.transport, names));
  require(options.size >= 1 && options.rank >= 0 && options.rank < options.size,
          "connect: rank {} of {}; a job has 1 rank or more, and they are numbered from 0", options.rank, options.size);
  for (const auto deadline : {options.deadline, options.join_deadline}) {
    require(deadline.count() > 0, "connect: the deadline is {} ms; it must be positive", deadline.count());
  }
}

std::string choose(const WorldOptions& options, const Neighbours& neighbours) {
  if (options.transport != "auto") return options.transport;
  if (options.size == 1) return "threads";
  if (neighbours.can_share) return "shm";
  if (has_ucx()) return "ucx";
  fail(ErrorKind::kUnsupported,
       "[rank {} of {}] connect (job {}): only {} of the ranks share this host, and this build has "
       "no UCX to "
       "reach the others. Build with libucx-dev installed, or start under mpirun with transport "
       "'mpi'",
       options.rank, options.size, options.job, neighbours.on_host);
}

}  // namespace

std::unique_ptr<World> connect(const WorldOptions& asked) {
  check(asked);
  WorldOptions options = asked;
  if (options.transport == "mpi" || (options.transport == "auto" && options.size > 1 && !options.store)) {
    EngineOptions engine{0, 1, options.deadline, options.background, false, options.on_wait, options.watch};
    engine.rest = options.rest;
    Backend backend = mpi_backend(options, engine);
    return std::make_unique<ConnectedWorld>(engine, std::move(backend));
  }
  require(options.store || options.size == 1, "connect: {} ranks need a store to find each other by (transport '{}')",
          options.size, options.transport);
  if (!options.store) options.store = memory_store();
  if (options.size > 1) claim_rank(options);
  const Neighbours neighbours = options.size == 1 ? Neighbours{} : count_neighbours(options);
  const bool crowded = neighbours.on_host > static_cast<int>(std::thread::hardware_concurrency());
  EngineOptions engine{options.rank,    options.size,  options.deadline, options.background, crowded,
                       options.on_wait, options.watch, neighbours.peers, neighbours.hosts};
  engine.rest = options.rest;
  const std::string transport = choose(options, neighbours);
  Backend backend = transport == "shm"   ? shm_backend(options)
                    : transport == "ucx" ? ucx_backend(options, neighbours.on_host == options.size)
                                         : threads_backend(options);
  return std::make_unique<ConnectedWorld>(engine, std::move(backend));
}

const std::vector<std::string>& transports_of_threads() {
  static const std::vector<std::string> names =
      has_ucx() ? std::vector<std::string>{"threads", "shm", "ucx"} : std::vector<std::string>{"threads", "shm"};
  return names;
}

// The first error is told to every rank that still runs, which ends what it waits for.
void spawn_ranks(int size, const std::string& transport, const std::function<void(World&)>& body, int ranks_on_host,
                 const std::function<void(WorldOptions&)>& change) {
  require(transport != "mpi", "spawn_ranks: ranks of 'mpi' are processes started by mpirun, not threads");
  const auto store = std::make_shared<MemoryStore>();
  std::mutex mutex;
  std::vector<ConnectedWorld*> worlds(static_cast<size_t>(size));
  std::exception_ptr first;
  std::string reason;
  const auto run = [&](int rank) {
    WorldOptions options{.rank = rank, .size = size, .transport = transport, .store = store};
    options.deadline = options.join_deadline = std::chrono::seconds(60);
    if (ranks_on_host > 0) options.host = fmt::format("host {}", rank / ranks_on_host);
    if (change) change(options);
    std::unique_ptr<World> world;
    try {
      world = connect(options);
      auto* const connected = static_cast<ConnectedWorld*>(world.get());
      {
        const std::lock_guard lock(mutex);
        worlds[static_cast<size_t>(rank)] = connected;
        if (first) connected->abort(reason);
      }
      body(*world);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) {
        first = std::current_exception();
        reason = fmt::format("rank {} ended with an error", rank);
        store->abort(reason);
        for (ConnectedWorld* other : worlds) {
          if (other != nullptr) other->abort(reason);
        }
      }
    }
    const std::lock_guard lock(mutex);
    worlds[static_cast<size_t>(rank)] = nullptr;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme::comm
