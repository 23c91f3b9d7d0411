// What a checkpoint's index.json and COMMIT say. A directory is a checkpoint only if its COMMIT is
// whole, every file has the size listed there, and index.json the digest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/layout/box.h"

namespace trireme::ckpt {

inline constexpr int64_t kFormatVersion = 1;
inline constexpr int64_t kBlockBytes = int64_t{1} << 20;  // a checksum covers this much of a chunk
inline constexpr const char* kIndexName = "index.json";
inline constexpr const char* kCommitName = "COMMIT";
// In `meta`: names, with commas, of tensors that are the values of each rank's own, one after the other along dimension
// 0.
inline constexpr const char* kOwnValuesKey = "own_values_of_ranks";

// One box of a tensor: entry `entry` of safetensors file `file`, with a CRC32C for each block of
// its bytes.
struct Chunk {
  std::string file;
  std::string entry;
  Box box;
  std::vector<uint32_t> crc32c;
};

struct TensorRecord {
  TensorType type;   // of the whole
  std::string role;  // "param" or "state"
  std::vector<Chunk> chunks;
};

struct FileRecord {
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // safetensors length, JSON and padding
  uint32_t header_crc32c = 0;
};

struct Manifest {
  int64_t step = 0;
  uint64_t seed = 0;
  int64_t world = 1;  // ranks that trained
  std::string mesh;   // their mesh as text; for people
  int64_t data_position = 0;
  int64_t block_bytes = kBlockBytes;
  std::map<std::string, std::string> meta;
  std::map<std::string, FileRecord> files;
  std::map<std::string, TensorRecord, std::less<>> tensors;
};

std::string print_index(const Manifest& manifest);
// Checks every value; `where` names the file in errors. With `is_whole` the chunks of each tensor
// must cover it exactly once; a part written by one rank need not.
Manifest parse_index(std::string_view text, const std::string& where, bool is_whole);

// Joins the parts of all writers. Throws kInvalidArgument when they disagree on a tensor, or two of
// them wrote the same element, or nobody did.
void merge(Manifest& into, Manifest&& part);
void check_complete(const Manifest& manifest);

struct Commit {
  std::string index_sha256;
  std::map<std::string, int64_t> files;  // name -> bytes, index.json included
};

std::string print_commit(const Commit& commit);
Commit parse_commit(std::string_view text, const std::string& where);

// Reads COMMIT and index.json and checks sizes and digest. Throws kNotFound without a COMMIT,
// kCorrupt when anything does not fit.
Manifest read_manifest(const std::string& directory);

// A checkpoint's directory below its root: step-000123, or step-000123.1 when step 123 was saved
// again.
struct StepName {
  int64_t step = 0;
  int64_t attempt = 0;
  friend auto operator<=>(const StepName&, const StepName&) = default;
};
std::string to_string(StepName name);
std::optional<StepName> parse_step_name(std::string_view text);

}  // namespace trireme::ckpt
