// Every kind of data. A new one is a line in each of the two lists here, and its file.
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {

// Each stands in the file of its source.
std::unique_ptr<DataSpec> text_spec();
std::unique_ptr<DataSpec> masked_text_spec();
std::unique_ptr<DataSpec> corrupted_text_spec();
std::unique_ptr<DataSpec> idx_spec();
std::unique_ptr<DataSpec> csv_spec();
std::unique_ptr<DataSpec> text_pairs_spec();
std::unique_ptr<DataSpec> synthetic_spec();

namespace {

constexpr std::unique_ptr<DataSpec> (*kData[])() = {text_spec, masked_text_spec, corrupted_text_spec, idx_spec,
                                                    csv_spec,  text_pairs_spec,  synthetic_spec};

}  // namespace

std::vector<std::string> data_kinds() {
  std::vector<std::string> out;
  for (const auto make : kData) out.emplace_back(make()->kind());
  return out;
}

std::unique_ptr<DataSpec> data_spec(std::string_view kind) {
  for (const auto make : kData) {
    if (std::unique_ptr<DataSpec> spec = make(); spec->kind() == kind) return spec;
  }
  fail_not_one_of("data.kind", std::string(kind), data_kinds());
}

void require_path(const char* key, const std::string& path) {
  if (is_file(path) || is_directory(path)) return;
  fail(ErrorKind::kNotFound,
       "configuration: {}: there is no '{}'; paths are taken from the folder that the command is started in", key,
       path);
}

Shape image_shape(const std::vector<int64_t>& sizes) {
  require(sizes.size() == 3, "configuration: data.image has {} sizes; they are height, width and channels",
          sizes.size());
  double product = 1;
  for (const int64_t size : sizes) product *= static_cast<double>(size);
  require(product <= static_cast<double>(kMostOfASize),
          "configuration: data.image: its sizes make {:.3g} elements; they must make at most {}", product,
          +kMostOfASize);
  return Shape(std::span<const int64_t>(sizes));
}

}  // namespace trireme::data
