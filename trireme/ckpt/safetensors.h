// The safetensors format: a length, a JSON header, then the tensors' bytes. Files are written with
// the data aligned to 64 bytes and read without trusting any length in them. Weights published by
// others (one file, or several with an index) are read through Weights.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/ckpt/tensor_source.h"
#include "trireme/layout/box.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/tensor/view.h"

namespace trireme::ckpt {

using TextMap = std::map<std::string, std::string>;

struct Entry {
  std::string name;
  TensorType type;
  int64_t offset = 0;  // of the first byte, in the file
};

struct Header {
  std::vector<Entry> entries;  // in order of offset
  TextMap metadata;
  int64_t bytes = 0;  // of length and JSON together: where the data starts
  int64_t file_bytes = 0;

  const Entry* find(std::string_view name) const;
};

// Reads and checks the header of an open file: lengths within the file, data without holes or
// overlaps, each tensor's bytes as its type says, names once each. Throws kCorrupt, or kUnsupported
// for an element type that tensors here do not have.
Header read_header(const InputFile& file);

// Where each tensor of a file to be written goes: wider elements first, so that each lies aligned
// to its own size, else in the order given. The entries receive their offsets.
struct Plan {
  std::vector<size_t> order;  // of writing: indices into the entries
  std::string header;         // length and padding included
  int64_t file_bytes = 0;
};
Plan plan_file(std::vector<Entry>& entries, const TextMap& metadata);

struct NamedView {
  std::string name;
  View data;
};

// Writes one file, atomically.
void write_safetensors(const std::string& path, std::span<const NamedView> tensors, const TextMap& metadata = {},
                       Disk& disk = trireme::disk());

// Tensors by name from a .safetensors file, a .safetensors.index.json, or a folder that holds
// model.safetensors.index.json, model.safetensors or one .safetensors file. Safe from several
// threads.
class Weights final : public TensorSource {
 public:
  static Weights open(const std::string& path);

  std::string text() const override { return "'" + path_ + "'"; }
  std::vector<std::string> names() const override;
  bool has(std::string_view name) const override;
  const TensorType& type(const std::string& name) const override;
  // By the names alone: no module can have a buffer of "w" beside a tensor "w".
  bool is_state_of_parameter(const std::string& name) const override {
    return has(owner_of_state(name)) && owner_of_state(name) != name;
  }
  int64_t ranks_with_own(const std::string&) const override { return 0; }
  const TextMap& metadata() const { return metadata_; }  // of the single file, or of the index

  void read(const std::string& name, const Box& box, const View& to) const override;
  using TensorSource::read;

 private:
  struct Place {
    size_t file;
    Entry entry;
  };

  void add_file(const std::string& path, const TextMap* only_from);
  void open_index(const std::string& path);
  const Place& place(const std::string& name) const;

  std::string path_;  // as it was named
  std::vector<std::shared_ptr<const InputFile>> files_;
  std::map<std::string, Place, std::less<>> places_;
  TextMap metadata_;
};

struct NamedTensor {
  std::string name;
  HostTensor data;
};

struct TensorFile {
  std::vector<NamedTensor> tensors;  // sorted by name
  TextMap metadata;
};

TensorFile read_safetensors(const std::string& path);  // everything Weights would read

}  // namespace trireme::ckpt
