#include "trireme/ckpt/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/ckpt/json_members_impl.h"
#include "trireme/ckpt/range_read_impl.h"

namespace trireme::ckpt {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeader = 100'000'000;  // as in the reference reader
constexpr int64_t kAlign = 64;
constexpr int64_t kReadBlock = int64_t{1} << 20;
constexpr const char* kMetadata = "__metadata__";

struct DTypeName {
  DType dtype;
  std::string_view name;
};

constexpr DTypeName kDTypeNames[] = {{DType::kF32, "F32"},   {DType::kF64, "F64"}, {DType::kF16, "F16"},
                                     {DType::kBF16, "BF16"}, {DType::kI8, "I8"},   {DType::kU8, "U8"},
                                     {DType::kI32, "I32"},   {DType::kI64, "I64"}, {DType::kBool, "BOOL"}};

std::string name_of(DType dtype) {
  for (const auto& row : kDTypeNames) {
    if (row.dtype == dtype) return std::string(row.name);
  }
  fail(ErrorKind::kInternal, "element type {} has no name in safetensors", to_string(dtype));
}

DType dtype_named(const std::string& name, const std::string& where) {
  for (const auto& row : kDTypeNames) {
    if (row.name == name) return row.dtype;
  }
  static const std::set<std::string> others = {"U16",     "U32", "U64", "I16",    "F8_E4M3",
                                               "F8_E5M2", "F4",  "C64", "F8_E8M0"};
  if (others.contains(name)) {
    fail(ErrorKind::kUnsupported, "{} has elements of type {}; convert the file to F32, F16 or BF16", where, name);
  }
  fail(ErrorKind::kCorrupt, "{} has elements of unknown type '{}'", where, name);
}

Entry parse_entry(const std::string& name, const json& value, const std::string& path, int64_t data_bytes) {
  const std::string where = fmt::format("'{}': tensor '{}'", path, name);
  if (name.empty()) fail(ErrorKind::kCorrupt, "{} has no name", where);
  Entry out;
  out.name = name;
  out.type.dtype = dtype_named(to_text(member(value, "dtype", where), where + " dtype"), where);
  out.type.shape = to_shape(member(value, "shape", where), where + " shape");
  const json& offsets = member(value, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2) {
    fail(ErrorKind::kCorrupt, "{}: data_offsets is not a list of two", where);
  }
  const int64_t begin = to_integer(offsets[0], where + " data_offsets");
  const int64_t end = to_integer(offsets[1], where + " data_offsets");
  if (begin > end || end > data_bytes) {
    fail(ErrorKind::kCorrupt, "{} lies at bytes [{}, {}) of {} bytes of data", where, begin, end, data_bytes);
  }
  if (end - begin != out.type.bytes()) {
    fail(ErrorKind::kCorrupt, "{} is {} and so {} bytes, but its offsets [{}, {}) hold {}", where, to_string(out.type),
         out.type.bytes(), begin, end, end - begin);
  }
  out.offset = begin;
  return out;
}

// After sorting, each tensor must begin where the one before ended, and the last end with the data.
void check_no_holes(const std::vector<Entry>& entries, const std::string& path, int64_t data_bytes) {
  int64_t at = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.offset < at) {
      fail(ErrorKind::kCorrupt, "'{}': tensors '{}' and '{}' overlap at byte {} of the data", path, before->name,
           entry.name, entry.offset);
    }
    if (entry.offset > at) {
      fail(ErrorKind::kCorrupt, "'{}': bytes [{}, {}) of the data, before tensor '{}', belong to no tensor", path, at,
           entry.offset, entry.name);
    }
    at += entry.type.bytes();
    before = &entry;
  }
  if (at != data_bytes) {
    fail(ErrorKind::kCorrupt, "'{}' has {} bytes of data, but its tensors {}", path, data_bytes, at);
  }
}

std::string little_endian(uint64_t value) {
  std::string out;
  for (int i = 0; i < kLengthBytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

void check_file_name(const std::string& name, const std::string& where) {
  if (name.empty() || name.front() == '.' || name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
    fail(ErrorKind::kCorrupt, "{}: '{}' is not a plain file name", where, name);
  }
}

}  // namespace

const Entry* Header::find(std::string_view name) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == name; });
  return at == entries.end() ? nullptr : &*at;
}

Header read_header(const InputFile& file) {
  const std::string& path = file.path();
  if (file.bytes() < kLengthBytes) {
    fail(ErrorKind::kCorrupt, "'{}' has {} bytes; a safetensors file has at least {}", path, file.bytes(),
         kLengthBytes);
  }
  std::array<std::byte, kLengthBytes> length_bytes{};
  file.read(0, length_bytes);
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes.size(); ++i) {
    length |= std::to_integer<uint64_t>(length_bytes[i]) << (8 * i);
  }
  const int64_t most = std::min(kMostHeader, file.bytes() - kLengthBytes);
  if (length > static_cast<uint64_t>(most)) {
    fail(ErrorKind::kCorrupt, "'{}' claims a header of {} bytes; with its {} bytes it can have {}", path, length,
         file.bytes(), most);
  }
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') {
    fail(ErrorKind::kCorrupt, "'{}': the header does not begin with '{{'", path);
  }
  Header out;
  out.bytes = kLengthBytes + static_cast<int64_t>(length);
  out.file_bytes = file.bytes();
  const int64_t data_bytes = out.file_bytes - out.bytes;
  const json parsed = parse_json(text, fmt::format("'{}'", path));
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadata) {
      out.metadata = to_text_map(value, fmt::format("'{}': {}", path, kMetadata));
    } else {
      out.entries.push_back(parse_entry(name, value, path, data_bytes));
    }
  }
  // An empty tensor sorts before a full one at the same place.
  std::stable_sort(out.entries.begin(), out.entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.offset, a.type.bytes()) < std::pair(b.offset, b.type.bytes());
  });
  check_no_holes(out.entries, path, data_bytes);
  for (Entry& entry : out.entries) entry.offset += out.bytes;
  return out;
}

Plan plan_file(std::vector<Entry>& entries, const TextMap& metadata) {
  Plan out;
  out.order.resize(entries.size());
  std::iota(out.order.begin(), out.order.end(), size_t{0});
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](size_t a, size_t b) { return size_of(entries[a].type.dtype) > size_of(entries[b].type.dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  int64_t at = 0;
  std::set<std::string_view> names;
  for (const size_t i : out.order) {
    const Entry& entry = entries[i];
    require(!entry.name.empty() && entry.name != kMetadata, "a tensor cannot be named '{}'", entry.name);
    require(names.insert(entry.name).second, "two tensors are named '{}'", entry.name);
    const int64_t end = at + entry.type.bytes();
    header[entry.name] = {{"dtype", name_of(entry.type.dtype)},
                          {"shape", std::vector<int64_t>(entry.type.shape.begin(), entry.type.shape.end())},
                          {"data_offsets", {at, end}}};
    entries[i].offset = at;
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    fail(ErrorKind::kInvalidArgument, "a tensor name or metadata text is not valid UTF-8");
  }
  const auto unpadded = kLengthBytes + static_cast<int64_t>(text.size());
  text.append(static_cast<size_t>((kAlign - unpadded % kAlign) % kAlign), ' ');
  out.header = little_endian(text.size()) + text;
  for (Entry& entry : entries) entry.offset += static_cast<int64_t>(out.header.size());
  out.file_bytes = static_cast<int64_t>(out.header.size()) + at;
  return out;
}

void write_safetensors(const std::string& path, std::span<const NamedView> tensors, const TextMap& metadata,
                       Disk& disk) {
  std::vector<Entry> entries;
  for (const NamedView& tensor : tensors) entries.push_back({tensor.name, tensor.data.type, 0});
  const Plan plan = plan_file(entries, metadata);
  OutputFile file(path, disk);
  file.write(plan.header);
  for (const size_t i : plan.order) file.write(tensors[i].data.raw());
  file.commit();
}

Weights Weights::open(const std::string& path) {
  Weights out;
  out.path_ = path;
  std::string file = path;
  if (is_directory(path)) {
    std::vector<std::string> found;
    for (const std::string& name : list_directory(path)) {
      if (name.ends_with(".safetensors")) found.push_back(name);
    }
    const std::string index = join_path(path, "model.safetensors.index.json");
    if (is_file(index)) {
      file = index;
    } else if (is_file(join_path(path, "model.safetensors"))) {
      file = join_path(path, "model.safetensors");
    } else if (found.size() == 1) {
      file = join_path(path, found.front());
    } else {
      fail(ErrorKind::kNotFound,
           "'{}' holds {} .safetensors files and neither 'model.safetensors' nor "
           "'model.safetensors.index.json'; name the file",
           path, found.size());
    }
  }
  if (file.ends_with(".json")) {
    out.open_index(file);
  } else {
    out.add_file(file, nullptr);
  }
  return out;
}

void Weights::add_file(const std::string& path, const TextMap* only_from) {
  files_.push_back(std::make_shared<const InputFile>(path));
  Header header = read_header(*files_.back());
  if (only_from == nullptr) metadata_ = std::move(header.metadata);
  for (Entry& entry : header.entries) {
    if (only_from != nullptr) {
      const auto at = only_from->find(entry.name);
      if (at == only_from->end() || at->second != base_name(path)) continue;
    }
    const std::string name = entry.name;
    places_[name] = {files_.size() - 1, std::move(entry)};
  }
}

void Weights::open_index(const std::string& path) {
  const std::string where = fmt::format("'{}'", path);
  const json index = parse_json(read_file(path), where);
  const TextMap map = to_text_map(member(index, "weight_map", where), where + " weight_map");
  if (const auto at = index.find("metadata"); at != index.end() && at->is_object()) {
    for (const auto& [key, value] : at->items()) {
      metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
  std::set<std::string> files;
  for (const auto& [name, file] : map) files.insert(file);
  for (const std::string& file : files) {
    check_file_name(file, where);
    add_file(join_path(parent_path(path), file), &map);
  }
  for (const auto& [name, file] : map) {
    if (!places_.contains(name)) {
      fail(ErrorKind::kCorrupt, "{} says that '{}' holds tensor '{}', but it does not", where, file, name);
    }
  }
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> out;
  for (const auto& [name, place] : places_) out.push_back(name);
  return out;
}

bool Weights::has(std::string_view name) const {
  return places_.find(name) != places_.end();
}

const Weights::Place& Weights::place(const std::string& name) const {
  const auto at = places_.find(name);
  if (at == places_.end()) {
    const std::string near = closest(name, names());
    fail(ErrorKind::kNotFound, "'{}' holds no tensor '{}' among its {}.{}",
         files_.empty() ? "" : files_.front()->path(), name, places_.size(),
         near.empty() ? "" : fmt::format(" Did you mean '{}'?", near));
  }
  return at->second;
}

const TensorType& Weights::type(const std::string& name) const {
  return place(name).entry.type;
}

void Weights::read(const std::string& name, const Box& box, const View& to) const {
  const Place& at = place(name);
  const Box whole = Box::whole(at.entry.type.shape);
  require(to.type.dtype == at.entry.type.dtype && to.type.shape == box.size,
          "tensor '{}': box {} of {} does not fit a view of {}", name, to_string(box), to_string(at.entry.type),
          to_string(to.type));
  require(box.size.rank() == whole.size.rank() && (box.elements() == 0 || intersect(whole, box) == box),
          "tensor '{}': box {} is not inside {}", name, to_string(box), to_string(at.entry.type));
  const Stored stored{*files_[at.file], at.entry.offset, whole, kReadBlock, {}, {}};
  read_region(stored, box, to, box);
}

TensorFile read_safetensors(const std::string& path) {
  const Weights weights = Weights::open(path);
  TensorFile out;
  out.metadata = weights.metadata();
  for (const std::string& name : weights.names()) out.tensors.push_back({name, weights.read(name)});
  return out;
}

}  // namespace trireme::ckpt
