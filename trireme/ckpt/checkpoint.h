// Checkpoints: every rank writes its pieces to one safetensors file, rank 0 the index and, last,
// COMMIT. A checkpoint is read at any layout, whatever wrote it. docs/file_formats.md has the
// bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/ckpt/manifest.h"
#include "trireme/layout/box.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::ckpt {

// Bytes as they are read to be written: where they are until the next are read, or their own.
struct ReadBytes {
  View view;
  HostTensor own = {};
};

// A box of a tensor that this rank is to write. All ranks' pieces together must cover every tensor
// exactly once: of replicas, one rank has the piece (assign_writers deals them out).
struct Piece {
  std::string name;
  std::string role = "param";  // or "state"
  Shape whole;
  Box box;
  View data;  // of shape box.size; must not change until save returns
  // Gives the bytes, once, when they are written, where memory does not have them; then `data` is a type without bytes.
  std::function<ReadBytes()> read = {};
};

struct SaveInfo {
  int64_t step = 0;
  uint64_t seed = 0;
  std::string mesh = {};
  int64_t data_position = 0;
  std::map<std::string, std::string> meta = {};
  int64_t keep_last = 0;                 // complete checkpoints left in the root after this one; 0 = all
  std::vector<int64_t> keep_steps = {};  // stay besides
};

// How the ranks meet. `all_gather` returns every rank's text in order of rank; it is called four
// times, or fewer when a rank has failed, equally often on all. World 1 needs none.
struct Peers {
  int rank = 0;
  int world = 1;
  std::function<std::vector<std::string>(const std::string&)> all_gather = {};
};

struct Saved {
  std::string path;                // of the checkpoint's directory
  std::vector<std::string> notes;  // rank 0: what could not be tidied up afterwards
};

// Called by every rank with the same root (a file system they share). On an error on any rank all
// ranks throw, the earlier checkpoints are whole, and the half-written directory is removed or,
// without COMMIT, means nothing. The errors of other ranks say which.
Saved save(const std::string& root, std::span<const Piece> mine, const SaveInfo& info, const Peers& peers = {},
           Disk& disk = trireme::disk());

// The writer of each box that several ranks hold: largest box first, to the holder with the fewest
// bytes so far. Equal on all ranks.
struct Replicas {
  int64_t bytes = 0;
  std::vector<int> ranks;  // that hold the box
};
std::vector<int> assign_writers(std::span<const Replicas> boxes, int world);

struct Found {
  std::string path;
  int64_t step = 0;
};

struct Listing {
  std::vector<Found> complete;     // oldest first
  std::vector<std::string> notes;  // one for each step directory that is not a checkpoint, and why
};

Listing list_checkpoints(const std::string& root);  // a missing root holds none
std::optional<Found> find_latest(const std::string& root);

class Reader {
 public:
  // A checkpoint's directory, or a root: then its newest complete checkpoint. Or a file "....safetensors" of whole
  // tensors, as write_merged (ckpt/merged.h) and other programs write them: then all are parameters, no byte has a
  // checksum, and step, meta and the rest are those of an empty checkpoint.
  explicit Reader(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_one_file() const { return path_ != folder_; }             // of whole tensors
  const std::vector<std::string>& notes() const { return notes_; }  // what was passed over, and why
  int64_t step() const { return manifest_.step; }
  uint64_t seed() const { return manifest_.seed; }
  int64_t world() const { return manifest_.world; }
  const std::string& mesh() const { return manifest_.mesh; }
  int64_t data_position() const { return manifest_.data_position; }
  const std::map<std::string, std::string>& meta() const { return manifest_.meta; }

  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const { return manifest_.tensors.contains(name); }
  const TensorRecord& info(const std::string& name) const;  // throws kNotFound
  // Throws kInvalidArgument, with both, unless the stored tensor is `expected`.
  void require_type(const std::string& name, const TensorType& expected) const;

  // Fills `to` (of shape box.size) with the box of the tensor, whatever boxes it was written in.
  // Reads only the blocks it needs, each checked. Safe from several threads.
  void read(const std::string& name, const Box& box, const View& to) const;
  HostTensor read(const std::string& name) const;

  void verify() const;  // reads every byte of the checkpoint; throws kCorrupt at the first damage
  int64_t bytes_read() const { return bytes_read_; }  // of tensor data, so far

 private:
  struct OpenFile;

  const OpenFile& open(const std::string& file) const;
  void check_chunk(const std::string& name, const Chunk& chunk) const;

  std::string path_, folder_;  // the folder where its files lie
  std::vector<std::string> notes_;
  Manifest manifest_;
  mutable std::mutex mutex_;  // of files_
  mutable std::map<std::string, std::shared_ptr<const OpenFile>> files_;
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace trireme::ckpt
