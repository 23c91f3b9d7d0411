// Checkpoints found and read (checkpoint.h).
#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/range_read_impl.h"
#include "trireme/ckpt/safetensors.h"

namespace trireme::ckpt {
namespace {

struct Newest {
  std::string path;
  std::vector<std::string> notes;
};

Newest choose(const std::string& path) {
  if (is_file(join_path(path, kCommitName))) return {path, {}};
  if (is_file(path))
    fail(ErrorKind::kNotFound, "'{}' is a file; name the directory of a run, of its checkpoints, or one of them", path);
  if (!is_directory(path))
    fail(ErrorKind::kNotFound,
         "there is no checkpoint '{}'; name the directory of a run, of its checkpoints, or one of them", path);
  Listing listing = list_checkpoints(path);
  if (listing.complete.empty()) {
    std::string notes;
    for (const std::string& note : listing.notes) notes += "; " + note;
    fail(ErrorKind::kNotFound, "'{}' holds no complete checkpoint{}", path, notes);
  }
  return {listing.complete.back().path, std::move(listing.notes)};
}

std::string describe(const std::string& name, const Chunk& chunk, const std::string& path) {
  return fmt::format("checkpoint '{}': tensor '{}', chunk '{}' of '{}'", path, name, chunk.entry, chunk.file);
}

}  // namespace

Listing list_checkpoints(const std::string& root) {
  Listing out;
  if (!is_directory(root)) return out;
  std::vector<StepName> names;
  for (const std::string& text : list_directory(root)) {
    if (const auto name = parse_step_name(text)) names.push_back(*name);
  }
  std::sort(names.begin(), names.end());
  for (const StepName& name : names) {
    const std::string path = join_path(root, to_string(name));
    try {
      read_manifest(path);
      out.complete.push_back({path, name.step});
    } catch (const Error& e) {
      out.notes.push_back(e.text());
    }
  }
  return out;
}

std::optional<Found> find_latest(const std::string& root) {
  const Listing listing = list_checkpoints(root);
  if (listing.complete.empty()) return std::nullopt;
  return listing.complete.back();
}

struct Reader::OpenFile {
  explicit OpenFile(InputFile opened) : file(std::move(opened)), header(read_header(file)) {
    for (const Entry& entry : header.entries) entries[entry.name] = &entry;
  }
  InputFile file;
  Header header;
  std::map<std::string, const Entry*> entries;
};

Reader::Reader(const std::string& path) {
  Newest newest = choose(path);
  path_ = std::move(newest.path);
  notes_ = std::move(newest.notes);
  manifest_ = read_manifest(path_);
}

std::vector<std::string> Reader::names() const {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : manifest_.tensors) out.push_back(name);
  return out;
}

const TensorRecord& Reader::info(const std::string& name) const {
  const auto at = manifest_.tensors.find(name);
  if (at == manifest_.tensors.end()) {
    const std::string near = closest(name, names());
    fail(ErrorKind::kNotFound, "checkpoint '{}' holds no tensor '{}' among its {}.{}", path_, name,
         manifest_.tensors.size(), near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
  }
  return at->second;
}

bool Reader::is_state_of_parameter(const std::string& name) const {
  const std::string owner = owner_of_state(name);
  return info(name).role != "param" && has(owner) && info(owner).role == "param";
}

int64_t Reader::ranks_with_own(const std::string& name) const {
  const auto found = meta().find(kOwnValuesKey);
  std::string_view text = found == meta().end() ? std::string_view() : std::string_view(found->second);
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (text.substr(0, end) == name) return world();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}

const Reader::OpenFile& Reader::open(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  auto& slot = files_[name];
  if (slot) return *slot;
  const FileRecord& record = manifest_.files.at(name);
  const std::string path = join_path(path_, name);
  InputFile file(path);
  if (file.bytes() != record.bytes) {
    fail(ErrorKind::kCorrupt, "checkpoint '{}': '{}' has {} bytes instead of {}", path_, name, file.bytes(),
         record.bytes);
  }
  std::vector<std::byte> head(static_cast<size_t>(record.header_bytes));
  file.read(0, head);
  if (crc32c(head) != record.header_crc32c) {
    fail(ErrorKind::kCorrupt,
         "checkpoint '{}': the header of '{}' has checksum {:08x} instead of {:08x}; the file is "
         "damaged",
         path_, name, crc32c(head), record.header_crc32c);
  }
  auto opened = std::make_shared<const OpenFile>(std::move(file));
  if (opened->header.bytes != record.header_bytes) {
    fail(ErrorKind::kCorrupt, "checkpoint '{}': the header of '{}' has {} bytes instead of {}", path_, name,
         opened->header.bytes, record.header_bytes);
  }
  slot = std::move(opened);
  return *slot;
}

void Reader::read(const std::string& name, const Box& box, const View& to) const {
  const TensorRecord& tensor = info(name);
  const Box whole = Box::whole(tensor.type.shape);
  require(box.size.rank() == whole.size.rank() && box.start.rank() == whole.size.rank() &&
              (box.elements() == 0 || intersect(whole, box) == box),
          "tensor '{}': box {} is not inside {}", name, trireme::to_string(box), trireme::to_string(tensor.type));
  require(to.type.dtype == tensor.type.dtype && to.type.shape == box.size,
          "tensor '{}': box {} of {} does not fit a view of {}", name, trireme::to_string(box),
          trireme::to_string(tensor.type), trireme::to_string(to.type));
  for (const Chunk& chunk : tensor.chunks) {
    const auto common = intersect(chunk.box, box);
    if (!common || common->elements() == 0) continue;
    const OpenFile& file = open(chunk.file);
    check_chunk(name, chunk);
    const Stored stored{file.file,    file.entries.at(chunk.entry)->offset, chunk.box, manifest_.block_bytes,
                        chunk.crc32c, describe(name, chunk, path_)};
    bytes_read_ += read_region(stored, *common, to, box);
  }
}

// The index and the file's own header must agree on what the chunk is.
void Reader::check_chunk(const std::string& name, const Chunk& chunk) const {
  const OpenFile& file = open(chunk.file);
  const auto at = file.entries.find(chunk.entry);
  if (at == file.entries.end()) {
    fail(ErrorKind::kCorrupt, "{}: the file has no such entry", describe(name, chunk, path_));
  }
  const TensorType expected{info(name).type.dtype, chunk.box.size};
  if (at->second->type != expected) {
    fail(ErrorKind::kCorrupt, "{}: the file has {} instead of {}", describe(name, chunk, path_),
         trireme::to_string(at->second->type), trireme::to_string(expected));
  }
}

void Reader::verify() const {
  for (const auto& [file, record] : manifest_.files) open(file);
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const Chunk& chunk : tensor.chunks) {
      check_chunk(name, chunk);
      const OpenFile& file = open(chunk.file);
      const Entry& entry = *file.entries.at(chunk.entry);
      const Stored stored{
          file.file, entry.offset, chunk.box, manifest_.block_bytes, chunk.crc32c, describe(name, chunk, path_)};
      bytes_read_ += verify_blocks(stored, entry.type.bytes());
    }
  }
}

}  // namespace trireme::ckpt
