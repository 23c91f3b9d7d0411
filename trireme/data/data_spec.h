// DataSpec: all that a job needs to know of a kind of data: its keys in the section [data] and their values, the fields
// that it gives, and how it is opened. Each kind has one in the file of its source, which data_list.cpp lists; nothing
// else names a kind (docs/howto/add_a_data_kind.md).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/data/source.h"
#include "trireme/tensor/field.h"

namespace trireme::data {

class DataSpec {
 public:
  virtual ~DataSpec() = default;
  virtual std::unique_ptr<DataSpec> copy() const = 0;

  virtual std::string_view kind() const = 0;  // of data.kind
  virtual std::string_view doc() const = 0;   // a phrase, for people who choose
  virtual std::vector<Key> keys() = 0;
  // Throws kInvalidArgument for values that do not go together, or with a model of these needs; each key by itself has
  // been checked.
  virtual void check(std::span<const FieldNeed> /*needs*/) const {}
  // For a model of this kind with these needs.
  virtual std::vector<KeyWithoutEffect> without_effect(std::string_view /*model*/,
                                                       std::span<const FieldNeed> /*needs*/) const {
    return {};
  }

  // Whether its keys say which fields there are; then they have no default.
  virtual bool fields_are_keys() const { return false; }
  // The fields of a sample, without a look into any file; in the order of the needs where they have their names.
  virtual std::vector<FieldSpec> fields(std::span<const FieldNeed> needs) const = 0;
  // With whole numbers in the ranges that the needs give, or an error. Throws kNotFound where a file is missing.
  virtual SourcePtr open(std::span<const FieldNeed> needs) const = 0;
  // The keys that name what is read, "data.images and data.labels"; "": nothing is.
  virtual std::string reads() const { return ""; }
  // Whether some of the tokens are hidden and are the targets, as models of hidden tokens need and no others; none: as
  // the model likes.
  virtual std::optional<bool> hides_tokens() const { return false; }
  virtual int64_t validation_blocks() const { return 1; }  // of `split`

  virtual std::string describe() const = 0;  // for a run's report
};

// What a spec of one kind need not write.
template <class Self>
class DataSpecOf : public DataSpec {
 public:
  std::unique_ptr<DataSpec> copy() const override { return std::make_unique<Self>(static_cast<const Self&>(*this)); }
};

// Every kind, in the order of help.
std::vector<std::string> data_kinds();
// The kind's spec with the defaults of its keys. Throws kInvalidArgument with the kinds for another.
std::unique_ptr<DataSpec> data_spec(std::string_view kind);

// Throws kNotFound where there is neither a file nor a folder: the mistake of who wrote the key, not the disk's.
void require_path(const char* key, const std::string& path);

// The shape of images from the three sizes of a key. Throws kInvalidArgument where they are not three.
Shape image_shape(const std::vector<int64_t>& sizes);

}  // namespace trireme::data
