#include "trireme/ckpt/export_weights.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/tensor/convert.h"

namespace trireme::ckpt {
namespace {

constexpr std::string_view kExtension = ".safetensors";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

struct Part {
  std::vector<Entry> entries;          // under their new names
  std::vector<std::string> of_source;  // the same, under those of the source
  int64_t bytes = 0;
};

std::string name_of(size_t part, size_t parts) {
  return parts == 1 ? kSingleName : fmt::format("model-{:05}-of-{:05}{}", part + 1, parts, kExtension);
}

// "model-00002-of-00003.safetensors", and nothing else.
bool is_part_name(std::string_view name) {
  constexpr std::string_view kForm = "model-00000-of-00000.safetensors";
  if (name.size() != kForm.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    if (kForm[i] == '0' ? name[i] < '0' || name[i] > '9' : name[i] != kForm[i]) return false;
  }
  return true;
}

class Export {
 public:
  Export(const TensorSource& source, const ExportOptions& options, Disk& disk)
      : source_(source), options_(options), disk_(disk) {
    divide();
  }

  Exported to_file(const std::string& path) {
    require(options_.max_file_bytes == 0, "'{}' is one file, so its size has no limit; name a folder to write several",
            path);
    write(parts_.front(), path);
    return std::move(out_);
  }

  Exported to_folder(const std::string& path) {
    disk_.make_directory(path);
    std::vector<std::string> names;
    for (size_t i = 0; i < parts_.size(); ++i) {
      names.push_back(name_of(i, parts_.size()));
      write(parts_[i], join_path(path, names.back()));
    }
    if (parts_.size() > 1) {
      names.emplace_back(kIndexFile);
      const std::string index = join_path(path, names.back());
      atomic_write(index, index_text(), disk_);
      out_.files.push_back(index);
    }
    for (const std::string& other : list_directory(path)) {
      const bool of_export = other == kSingleName || other == kIndexFile || is_part_name(other);
      if (of_export && std::ranges::find(names, other) == names.end()) disk_.remove(join_path(path, other));
    }
    return std::move(out_);
  }

 private:
  TensorType type_of(const std::string& name) const {
    TensorType out = source_.type(name);
    if (options_.dtype && is_convertible(out.dtype)) out.dtype = *options_.dtype;
    return out;
  }

  void divide() {
    require(options_.max_file_bytes >= 0, "a file of at most {} bytes holds nothing", options_.max_file_bytes);
    parts_.emplace_back();
    for (const Selected& tensor : select(source_, options_.selection)) {
      const TensorType type = type_of(tensor.name);
      const bool is_full = options_.max_file_bytes > 0 && parts_.back().bytes + type.bytes() > options_.max_file_bytes;
      if (is_full && !parts_.back().entries.empty()) parts_.emplace_back();
      Part& part = parts_.back();
      part.entries.push_back({tensor.renamed, type, 0});
      part.of_source.push_back(tensor.name);
      part.bytes += type.bytes();
      all_bytes_ += type.bytes();
    }
  }

  void write(Part& part, const std::string& path) {
    TextMap metadata = options_.metadata;
    metadata["format"] = "pt";
    const Plan plan = plan_file(part.entries, metadata);
    OutputFile file(path, disk_);
    file.write(plan.header);
    for (const size_t i : plan.order) {
      file.write(bytes_of(part.of_source[i], part.entries[i].type).view().raw());
      out_.bytes += part.entries[i].type.bytes();
      if (options_.on_tensor) options_.on_tensor(out_.bytes, all_bytes_);
    }
    file.commit();
    out_.files.push_back(path);
    out_.tensors += std::ssize(part.entries);
  }

  HostTensor bytes_of(const std::string& name, const TensorType& type) {
    HostTensor stored = source_.read(name);
    if (stored.type() == type) return stored;
    HostTensor out(type);
    convert(stored.view(), out.view());
    const int64_t lost = overflowed(stored.view(), out.view());
    if (lost > 0) out_.overflowed.emplace_back(name, lost);
    return out;
  }

  std::string index_text() const {
    nlohmann::ordered_json map = nlohmann::ordered_json::object();
    std::map<std::string, std::string> files;
    int64_t bytes = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      bytes += parts_[i].bytes;
      for (const Entry& entry : parts_[i].entries) files[entry.name] = name_of(i, parts_.size());
    }
    for (const auto& [name, file] : files) map[name] = file;
    nlohmann::ordered_json metadata = {{"total_size", bytes}};
    for (const auto& [key, value] : options_.metadata) metadata[key] = value;
    return nlohmann::ordered_json{{"metadata", metadata}, {"weight_map", map}}.dump(2) + "\n";
  }

  const TensorSource& source_;
  const ExportOptions& options_;
  Disk& disk_;
  std::vector<Part> parts_;
  int64_t all_bytes_ = 0;
  Exported out_;
};

}  // namespace

Exported export_weights(const TensorSource& source, const std::string& path, const ExportOptions& options, Disk& disk) {
  Export work(source, options, disk);
  return path.ends_with(kExtension) ? work.to_file(path) : work.to_folder(path);
}

TextMap metadata_of(const Reader& reader) {
  TextMap out{{"trireme_step", std::to_string(reader.step())}};
  for (const auto& [key, value] : reader.meta()) {
    if (key != "config") out.emplace(key, value);
  }
  return out;
}

}  // namespace trireme::ckpt
