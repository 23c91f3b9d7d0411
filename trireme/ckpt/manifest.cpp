#include "trireme/ckpt/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/ckpt/json_members_impl.h"

namespace trireme::ckpt {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kFormat = "trireme.checkpoint";

std::vector<int64_t> list_of(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

int64_t blocks_of(int64_t bytes, int64_t block_bytes) {
  return (bytes + block_bytes - 1) / block_bytes;
}

uint32_t to_crc(const json& value, const std::string& where) {
  const int64_t crc = to_integer(value, where);
  if (crc > std::numeric_limits<uint32_t>::max()) {
    fail(ErrorKind::kCorrupt, "{} is {}, not a 32-bit checksum", where, crc);
  }
  return static_cast<uint32_t>(crc);
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         std::none_of(name.begin(), name.end(), [](char c) { return c == '/' || c == '\\' || c <= ' '; });
}

const std::string& check_plain(const std::string& name, const std::string& where) {
  if (!is_plain_name(name)) fail(ErrorKind::kCorrupt, "{}: '{}' is not a plain file name", where, name);
  return name;
}

const json& object_of(const json& value, const std::string& where) {
  if (!value.is_object()) fail(ErrorKind::kCorrupt, "{} is {}, not an object", where, value.type_name());
  return value;
}

Chunk parse_chunk(const json& value, const Manifest& manifest, const TensorRecord& tensor, const std::string& where) {
  Chunk out;
  out.file = check_plain(to_text(member(value, "file", where), where + " file"), where);
  if (!manifest.files.contains(out.file)) {
    fail(ErrorKind::kCorrupt, "{} lies in '{}', which is not among the files", where, out.file);
  }
  out.entry = to_text(member(value, "entry", where), where + " entry");
  out.box.start = to_shape(member(value, "start", where), where + " start");
  out.box.size = to_shape(member(value, "size", where), where + " size");
  const Shape& whole = tensor.type.shape;
  bool is_inside = out.box.start.rank() == whole.rank() && out.box.size.rank() == whole.rank();
  for (int dim = 0; is_inside && dim < whole.rank(); ++dim) {
    is_inside = out.box.start[dim] <= whole[dim] && out.box.size[dim] <= whole[dim] - out.box.start[dim];
  }
  if (!is_inside) {
    fail(ErrorKind::kCorrupt, "{} starts at {} with size {}, which is not inside {}", where, to_string(out.box.start),
         to_string(out.box.size), to_string(tensor.type));
  }
  const json& crcs = member(value, "crc32c", where);
  const int64_t blocks = blocks_of(out.box.elements() * size_of(tensor.type.dtype), manifest.block_bytes);
  if (!crcs.is_array() || static_cast<int64_t>(crcs.size()) != blocks) {
    fail(ErrorKind::kCorrupt, "{} has {} checksums; its size asks for {}", where, crcs.size(), blocks);
  }
  for (const json& crc : crcs) out.crc32c.push_back(to_crc(crc, where + " crc32c"));
  return out;
}

TensorRecord parse_tensor(const json& value, const Manifest& manifest, const std::string& where) {
  TensorRecord out;
  const std::string dtype = to_text(member(value, "dtype", where), where + " dtype");
  const auto parsed = parse_dtype(dtype);
  if (!parsed) fail(ErrorKind::kCorrupt, "{} has elements of unknown type '{}'", where, dtype);
  out.type = {*parsed, to_shape(member(value, "shape", where), where + " shape")};
  out.role = to_text(member(value, "role", where), where + " role");
  const json& chunks = member(value, "chunks", where);
  if (!chunks.is_array()) fail(ErrorKind::kCorrupt, "{} chunks is not a list", where);
  for (size_t i = 0; i < chunks.size(); ++i) {
    out.chunks.push_back(parse_chunk(chunks[i], manifest, out, fmt::format("{} chunk {}", where, i)));
  }
  return out;
}

FileRecord parse_file(const json& value, const std::string& where) {
  FileRecord out;
  out.bytes = to_integer(member(value, "bytes", where), where + " bytes");
  out.header_bytes = to_integer(member(value, "header_bytes", where), where + " header_bytes");
  out.header_crc32c = to_crc(member(value, "header_crc32c", where), where + " header_crc32c");
  if (out.header_bytes > out.bytes) {
    fail(ErrorKind::kCorrupt, "{} has {} bytes but a header of {}", where, out.bytes, out.header_bytes);
  }
  return out;
}

// What keeps the chunks from covering the tensor exactly once, or "".
std::string tiling_fault(const TensorRecord& tensor) {
  std::vector<const Box*> boxes;
  int64_t elements = 0;
  for (const Chunk& chunk : tensor.chunks) {
    if (chunk.box.elements() > 0) boxes.push_back(&chunk.box);
  }
  const bool has_rank = tensor.type.shape.rank() > 0;
  if (has_rank) {
    std::sort(boxes.begin(), boxes.end(), [](const Box* a, const Box* b) { return a->start[0] < b->start[0]; });
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box& a = *boxes[i];
    for (size_t k = i + 1; k < boxes.size(); ++k) {
      if (has_rank && boxes[k]->start[0] >= a.start[0] + a.size[0]) break;
      if (intersect(a, *boxes[k])) {
        return fmt::format("chunks {} and {} overlap", trireme::to_string(a), trireme::to_string(*boxes[k]));
      }
    }
    elements += a.elements();
  }
  if (elements == tensor.type.elements()) return "";
  return fmt::format("its chunks hold {} of {} elements", elements, tensor.type.elements());
}

std::string hex_or_fail(std::string_view text, const std::string& where) {
  const bool is_hex = text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!is_hex) fail(ErrorKind::kCorrupt, "{}: '{}' is not a SHA-256 digest", where, text);
  return std::string(text);
}

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t out = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc() || end != text.data() + text.size() || out < 0) return std::nullopt;
  return out;
}

}  // namespace

std::string print_index(const Manifest& manifest) {
  ordered_json out;
  out["format"] = kFormat;
  out["version"] = kFormatVersion;
  out["step"] = manifest.step;
  out["seed"] = manifest.seed;
  out["world"] = manifest.world;
  out["mesh"] = manifest.mesh;
  out["data_position"] = manifest.data_position;
  out["block_bytes"] = manifest.block_bytes;
  out["meta"] = manifest.meta;
  out["files"] = ordered_json::object();
  for (const auto& [name, file] : manifest.files) {
    out["files"][name] = {
        {"bytes", file.bytes}, {"header_bytes", file.header_bytes}, {"header_crc32c", file.header_crc32c}};
  }
  out["tensors"] = ordered_json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    ordered_json chunks = ordered_json::array();
    for (const Chunk& chunk : tensor.chunks) {
      chunks.push_back({{"file", chunk.file},
                        {"entry", chunk.entry},
                        {"start", list_of(chunk.box.start)},
                        {"size", list_of(chunk.box.size)},
                        {"crc32c", chunk.crc32c}});
    }
    out["tensors"][name] = {{"dtype", trireme::to_string(tensor.type.dtype)},
                            {"shape", list_of(tensor.type.shape)},
                            {"role", tensor.role},
                            {"chunks", std::move(chunks)}};
  }
  try {
    return out.dump(1) + "\n";
  } catch (const json::exception&) {
    fail(ErrorKind::kInvalidArgument, "a tensor name or other text of the checkpoint is not valid UTF-8");
  }
}

Manifest parse_index(std::string_view text, const std::string& where, bool is_whole) {
  const json parsed = parse_json(text, where);
  const std::string format = to_text(member(parsed, "format", where), where + " format");
  if (format != kFormat) fail(ErrorKind::kCorrupt, "{} has format '{}', not '{}'", where, format, kFormat);
  const int64_t version = to_integer(member(parsed, "version", where), where + " version");
  if (version != kFormatVersion) {
    fail(ErrorKind::kUnsupported, "{} has version {}; this program reads version {}", where, version, kFormatVersion);
  }
  const auto integer = [&](const char* key) {
    return to_integer(member(parsed, key, where), fmt::format("{} {}", where, key));
  };
  Manifest out;
  out.step = integer("step");
  const json& seed = member(parsed, "seed", where);
  if (!seed.is_number_unsigned()) fail(ErrorKind::kCorrupt, "{} seed is not a 64-bit integer", where);
  out.seed = seed.get<uint64_t>();
  out.world = integer("world");
  out.mesh = to_text(member(parsed, "mesh", where), where + " mesh");
  out.data_position = integer("data_position");
  out.block_bytes = integer("block_bytes");
  if (out.block_bytes < 1 || out.block_bytes > int64_t{1} << 30) {
    fail(ErrorKind::kCorrupt, "{} block_bytes is {}, not from 1 to 2^30", where, out.block_bytes);
  }
  out.meta = to_text_map(member(parsed, "meta", where), where + " meta");
  for (const auto& [name, value] : object_of(member(parsed, "files", where), where + " files").items()) {
    out.files[check_plain(name, where)] = parse_file(value, fmt::format("{} file '{}'", where, name));
  }
  for (const auto& [name, value] : object_of(member(parsed, "tensors", where), where + " tensors").items()) {
    const std::string tensor_where = fmt::format("{} tensor '{}'", where, name);
    TensorRecord tensor = parse_tensor(value, out, tensor_where);
    const std::string fault = is_whole ? tiling_fault(tensor) : "";
    if (!fault.empty()) fail(ErrorKind::kCorrupt, "{} {}: {}", tensor_where, trireme::to_string(tensor.type), fault);
    out.tensors[name] = std::move(tensor);
  }
  return out;
}

void merge(Manifest& into, Manifest&& part) {
  into.files.merge(part.files);
  for (auto& [name, tensor] : part.tensors) {
    const auto [at, is_new] = into.tensors.try_emplace(name, tensor);
    if (is_new) continue;
    require(at->second.type == tensor.type && at->second.role == tensor.role,
            "tensor '{}' is {} ({}) on one rank and {} ({}) on another; all must agree", name,
            trireme::to_string(at->second.type), at->second.role, trireme::to_string(tensor.type), tensor.role);
    std::move(tensor.chunks.begin(), tensor.chunks.end(), std::back_inserter(at->second.chunks));
  }
}

void check_complete(const Manifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    const std::string fault = tiling_fault(tensor);
    require(fault.empty(), "tensor '{}' {}: {}; each element must be written once", name,
            trireme::to_string(tensor.type), fault);
  }
}

std::string print_commit(const Commit& commit) {
  std::string out = fmt::format("trireme checkpoint {}\nsha256 {}\n", kFormatVersion, commit.index_sha256);
  for (const auto& [name, bytes] : commit.files) out += fmt::format("file {} {}\n", bytes, name);
  return out + fmt::format("end {}\n", sha256_hex(out));
}

Commit parse_commit(std::string_view text, const std::string& where) {
  Commit out;
  const std::string_view all = text;
  const auto next_line = [&] {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return line;
  };
  const std::string_view first = next_line();
  if (first != fmt::format("trireme checkpoint {}", kFormatVersion)) {
    fail(ErrorKind::kCorrupt, "{} begins with '{}', not 'trireme checkpoint {}'", where, first.substr(0, 40),
         kFormatVersion);
  }
  const std::string_view digest = next_line();
  out.index_sha256 = hex_or_fail(digest.substr(std::min<size_t>(7, digest.size())), where);
  std::string_view line = next_line();
  for (; line.starts_with("file "); line = next_line()) {
    line.remove_prefix(5);
    const size_t space = std::min(line.find(' '), line.size());
    const auto bytes = parse_number(line.substr(0, space));
    const std::string name(line.substr(std::min(space + 1, line.size())));
    if (!bytes || !is_plain_name(name)) {
      fail(ErrorKind::kCorrupt, "{}: 'file {}' is not a size and a file name", where, line);
    }
    out.files[name] = *bytes;
  }
  // The last line has the digest of all before, and the text must be exactly what would be written.
  if (print_commit(out) != all) {
    fail(ErrorKind::kCorrupt, "{} is damaged: its own checksum does not fit", where);
  }
  return out;
}

Manifest read_manifest(const std::string& directory) {
  const std::string commit_path = join_path(directory, kCommitName);
  if (!is_file(commit_path)) {
    fail(ErrorKind::kNotFound, "'{}' is not a complete checkpoint: it has no COMMIT", directory);
  }
  const Commit commit = parse_commit(read_file(commit_path), fmt::format("'{}'", commit_path));
  for (const auto& [name, bytes] : commit.files) {
    const std::string path = join_path(directory, name);
    if (!is_file(path)) fail(ErrorKind::kCorrupt, "checkpoint '{}': '{}' is missing", directory, name);
    const int64_t found = file_bytes(path);
    if (found != bytes) {
      fail(ErrorKind::kCorrupt, "checkpoint '{}': '{}' has {} bytes instead of {}", directory, name, found, bytes);
    }
  }
  const std::string index_path = join_path(directory, kIndexName);
  const std::string index = read_file(index_path);
  const std::string digest = sha256_hex(index);
  if (digest != commit.index_sha256) {
    fail(ErrorKind::kCorrupt, "'{}' is damaged: its SHA-256 is {} instead of {}", index_path, digest,
         commit.index_sha256);
  }
  Manifest out = parse_index(index, fmt::format("'{}'", index_path), true);
  for (const auto& [name, file] : out.files) {
    const auto at = commit.files.find(name);
    if (at == commit.files.end() || at->second != file.bytes) {
      fail(ErrorKind::kCorrupt, "checkpoint '{}': COMMIT and index.json disagree on '{}'", directory, name);
    }
  }
  return out;
}

std::string to_string(StepName name) {
  return fmt::format("step-{:06}", name.step) + (name.attempt > 0 ? fmt::format(".{}", name.attempt) : "");
}

std::optional<StepName> parse_step_name(std::string_view text) {
  constexpr std::string_view kPrefix = "step-";
  if (!text.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = text.substr(kPrefix.size());
  const size_t dot = digits.find('.');
  const auto step = parse_number(digits.substr(0, dot));
  const auto attempt = dot == std::string_view::npos ? std::optional<int64_t>(0) : parse_number(digits.substr(dot + 1));
  if (!step || !attempt) return std::nullopt;
  const StepName out{*step, *attempt};
  return to_string(out) == text ? std::optional(out) : std::nullopt;
}

}  // namespace trireme::ckpt
