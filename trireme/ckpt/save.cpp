// A checkpoint written by all ranks (checkpoint.h).
#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/retention.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt {
namespace {

// What the ranks tell each other begins with one of these.
constexpr std::string_view kOk = "ok ";
constexpr std::string_view kBad = "error ";

// One save on one rank: each phase's failures are kept, told to all, and thrown on all.
class Save {
 public:
  Save(const std::string& root, std::span<const Piece> mine, const SaveInfo& info, const Peers& peers, Disk& disk)
      : root_(root), mine_(mine), info_(info), peers_(peers), disk_(disk) {}

  Saved run() {
    phase("check its pieces", [&] {
      check_pieces();
      return std::string();
    });
    const auto names = phase("make the directory", [&] { return is_first() ? prepare() : std::string(); });
    directory_ = join_path(root_, names.front());
    const auto parts = phase("write its pieces", [&] { return print_index(write_mine()); });
    Saved out{directory_, {}};
    phase("commit the checkpoint", [&] {
      if (is_first()) {
        commit(parts);
        out.notes = tidy(names.front());
      }
      return std::string();
    });
    return out;
  }

 private:
  bool is_first() const { return peers_.rank == 0; }

  template <class F>
  std::vector<std::string> phase(std::string_view what, F work) {
    std::exception_ptr error;
    std::string text;
    try {
      text = std::string(kOk) + work();
    } catch (const Error& e) {
      error = std::current_exception();
      text = fmt::format("{}{} {}", kBad, static_cast<int>(e.kind()), e.text());
    } catch (const std::exception& e) {
      error = std::current_exception();
      text = fmt::format("{}{} {}", kBad, static_cast<int>(ErrorKind::kIo), e.what());
    }
    auto all = peers_.world > 1 ? peers_.all_gather(text) : std::vector<std::string>{text};
    invariant(all.size() == static_cast<size_t>(peers_.world), "all_gather gave {} texts of {} ranks", all.size(),
              peers_.world);
    for (const std::string& other : all) {
      if (other.starts_with(kOk)) continue;
      if (is_first()) abandon();
      if (error) std::rethrow_exception(error);
      fail_for(all, what);
    }
    for (std::string& other : all) other.erase(0, kOk.size());
    return all;
  }

  [[noreturn]] void fail_for(const std::vector<std::string>& all, std::string_view what) const {
    size_t rank = 0;
    while (all[rank].starts_with(kOk)) ++rank;
    std::string_view text = std::string_view(all[rank]).substr(std::min(kBad.size(), all[rank].size()));
    int kind = static_cast<int>(ErrorKind::kInternal);
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), kind);
    if (code == std::errc()) text.remove_prefix(static_cast<size_t>(end - text.data()));
    kind = std::clamp(kind, 0, static_cast<int>(ErrorKind::kInternal));
    fail(static_cast<ErrorKind>(kind), "checkpoint of step {} is not saved: rank {} could not {}:{}", info_.step, rank,
         what, text);
  }

  void check_pieces() const {
    require(info_.step >= 0 && info_.data_position >= 0, "step {} and data position {} must not be negative",
            info_.step, info_.data_position);
    for (const Piece& piece : mine_) {
      const Box whole = Box::whole(piece.whole);
      require(piece.box.size.rank() == whole.size.rank() && piece.box.start.rank() == whole.size.rank() &&
                  (piece.box.elements() == 0 || intersect(whole, piece.box) == piece.box),
              "piece {} of '{}' is not inside {}", trireme::to_string(piece.box), piece.name,
              trireme::to_string(piece.whole));
      require(piece.data.type.shape == piece.box.size, "piece {} of '{}' has data of {}", trireme::to_string(piece.box),
              piece.name, trireme::to_string(piece.data.type));
    }
  }

  // Chooses the directory's name: never that of a complete checkpoint, which stays until this one
  // is whole.
  std::string prepare() {
    disk_.make_directory(root_);
    StepName name{info_.step, 0};
    for (const std::string& text : list_directory(root_)) {
      const auto other = parse_step_name(text);
      const bool is_taken = other && other->step == name.step && other->attempt >= name.attempt &&
                            is_file(join_path(join_path(root_, text), kCommitName));
      if (is_taken) name.attempt = other->attempt + 1;
    }
    directory_ = join_path(root_, to_string(name));
    remove_tree(directory_, disk_);
    disk_.make_directory(directory_);
    disk_.sync_directory(root_);
    return to_string(name);
  }

  Manifest header_manifest() const {
    Manifest out;
    out.step = info_.step;
    out.seed = info_.seed;
    out.world = peers_.world;
    out.mesh = info_.mesh;
    out.data_position = info_.data_position;
    out.meta = info_.meta;
    return out;
  }

  Manifest write_mine() {
    Manifest out = header_manifest();
    const std::string file_name = fmt::format("data-{:05}.safetensors", peers_.rank);
    std::vector<Entry> entries;
    std::vector<const Piece*> pieces;
    for (const Piece& piece : mine_) {
      auto& tensor = out.tensors[piece.name];
      const TensorType type{piece.data.type.dtype, piece.whole};
      require(tensor.role.empty() || (tensor.type == type && tensor.role == piece.role),
              "two pieces of '{}' disagree: {} ({}) and {} ({})", piece.name, trireme::to_string(tensor.type),
              tensor.role, trireme::to_string(type), piece.role);
      tensor.type = type;
      tensor.role = piece.role;
      if (piece.box.elements() == 0) continue;
      const bool is_all = piece.box == Box::whole(piece.whole);
      entries.push_back({is_all ? piece.name : piece.name + "@" + trireme::to_string(piece.box), piece.data.type, 0});
      pieces.push_back(&piece);
    }
    if (pieces.empty()) return out;
    const Plan plan = plan_file(entries, {{"format", "pt"}, {"trireme_step", std::to_string(info_.step)}});
    check_space(plan.file_bytes);
    OutputFile file(join_path(directory_, file_name), disk_);
    file.write(plan.header);
    for (const size_t i : plan.order) {
      Chunk chunk{file_name, entries[i].name, pieces[i]->box, {}};
      const ReadBytes come = pieces[i]->read ? pieces[i]->read() : ReadBytes{pieces[i]->data};
      const View data = come.view;
      invariant(data.bytes() == pieces[i]->data.bytes(), "{} bytes are read of a piece of '{}', which has {}",
                data.bytes(), pieces[i]->name, pieces[i]->data.bytes());
      auto rest = std::span<const std::byte>(data.raw());
      while (!rest.empty()) {
        const auto block = rest.first(std::min(rest.size(), static_cast<size_t>(kBlockBytes)));
        chunk.crc32c.push_back(crc32c(block));
        file.write(block);
        rest = rest.subspan(block.size());
      }
      out.tensors[pieces[i]->name].chunks.push_back(std::move(chunk));
    }
    file.commit();
    out.files[file_name] = {file.bytes(), static_cast<int64_t>(plan.header.size()),
                            crc32c(std::as_bytes(std::span(plan.header)))};
    return out;
  }

  void check_space(int64_t bytes) const {
    const int64_t available = free_bytes(directory_);
    if (available < bytes) {
      fail(ErrorKind::kIo,
           "cannot write {} bytes to '{}': {} are free; free space there or choose another "
           "directory",
           bytes, directory_, available);
    }
  }

  void commit(const std::vector<std::string>& parts) {
    Manifest manifest = header_manifest();
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      merge(manifest, parse_index(parts[rank], fmt::format("the part of rank {}", rank), false));
    }
    check_complete(manifest);
    const std::string index = print_index(manifest);
    Commit commit;
    commit.index_sha256 = sha256_hex(index);
    commit.files[kIndexName] = static_cast<int64_t>(index.size());
    for (const auto& [name, file] : manifest.files) commit.files[name] = file.bytes;
    // What a shared file system shows here may lag or be another one: look before promising.
    for (const auto& [name, file] : manifest.files) {
      const int64_t found = file_bytes(join_path(directory_, name));
      if (found != file.bytes) {
        fail(ErrorKind::kIo, "'{}' has {} bytes here but {} were written; do all ranks see the same '{}'?",
             join_path(directory_, name), found, file.bytes, root_);
      }
    }
    atomic_write(join_path(directory_, kIndexName), index, disk_);
    atomic_write(join_path(directory_, kCommitName), print_commit(commit), disk_);
    is_committed_ = true;
  }

  // The checkpoint is safe by now: what fails here is a note.
  std::vector<std::string> tidy(const std::string& name) {
    std::vector<std::string> notes;
    const auto attempt = [&](auto work) {
      try {
        work();
      } catch (const Error& e) {
        notes.push_back(e.text());
      }
    };
    attempt([&] { link_to(root_, "latest", name, disk_); });
    attempt([&] { remove_old(*parse_step_name(name), attempt); });
    return notes;
  }

  template <class F>
  void remove_old(const StepName& mine, const F& attempt) {
    std::vector<StepName> complete;
    std::vector<StepName> stale;
    for (const std::string& text : list_directory(root_)) {
      const auto name = parse_step_name(text);
      if (!name || *name == mine) continue;
      const bool is_whole = is_file(join_path(join_path(root_, text), kCommitName));
      const bool is_replaced = name->step == mine.step;
      if (is_whole && !is_replaced) complete.push_back(*name);
      if (is_replaced || (!is_whole && name->step < mine.step)) stale.push_back(*name);
    }
    std::sort(complete.begin(), complete.end());
    complete.push_back(mine);  // the newest, whatever step the others are of
    const std::vector<StepName> old = superfluous(std::move(complete), {info_.keep_last, info_.keep_steps});
    stale.insert(stale.end(), old.begin(), old.end());
    for (const StepName& name : stale) {
      attempt([&] { remove_checkpoint(join_path(root_, to_string(name)), disk_); });
    }
  }

  void abandon() noexcept {
    if (directory_.empty() || is_committed_) return;
    try {
      remove_tree(directory_, disk_);
    } catch (const std::exception&) {
      return;  // without COMMIT it means nothing; the next save tidies it away
    }
  }

  const std::string& root_;
  std::span<const Piece> mine_;
  const SaveInfo& info_;
  const Peers& peers_;
  Disk& disk_;
  std::string directory_;
  bool is_committed_ = false;
};

}  // namespace

Saved save(const std::string& root, std::span<const Piece> mine, const SaveInfo& info, const Peers& peers, Disk& disk) {
  require(peers.world >= 1 && peers.rank >= 0 && peers.rank < peers.world, "rank {} of a world of {}", peers.rank,
          peers.world);
  require(peers.world == 1 || peers.all_gather != nullptr, "a world of {} needs an all_gather", peers.world);
  return Save(root, mine, info, peers, disk).run();
}

std::vector<int> assign_writers(std::span<const Replicas> boxes, int world) {
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return boxes[a].bytes > boxes[b].bytes; });
  std::vector<int64_t> load(static_cast<size_t>(world));
  std::vector<int> out(boxes.size());
  for (const size_t i : order) {
    require(!boxes[i].ranks.empty(), "box {} has no rank that holds it", i);
    int best = boxes[i].ranks.front();
    for (const int rank : boxes[i].ranks) {
      require(rank >= 0 && rank < world, "box {} is held by rank {} of a world of {}", i, rank, world);
      if (load[static_cast<size_t>(rank)] < load[static_cast<size_t>(best)]) best = rank;
    }
    out[i] = best;
    load[static_cast<size_t>(best)] += boxes[i].bytes;
  }
  return out;
}

}  // namespace trireme::ckpt
