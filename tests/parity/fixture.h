// A file of figures of PyTorch's, as README.md describes it.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/ckpt/safetensors.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme::testing_support {

class Fixture {
 public:
  explicit Fixture(const std::string& model)
      : file_(ckpt::read_safetensors(std::string(TRIREME_SOURCE_DIR) + "/tests/parity/fixtures/" + model +
                                     ".safetensors")) {}

  const HostTensor& tensor(const std::string& name) const {
    for (const ckpt::NamedTensor& t : file_.tensors) {
      if (t.name == name) return t.data;
    }
    fail(ErrorKind::kNotFound, "the fixture has no tensor '{}'", name);
  }
  // Without their prefix.
  std::vector<std::string> names(const std::string& prefix) const {
    std::vector<std::string> out;
    for (const ckpt::NamedTensor& t : file_.tensors) {
      if (t.name.starts_with(prefix)) out.push_back(t.name.substr(prefix.size()));
    }
    return out;
  }
  const std::string& text(const std::string& key) const { return file_.metadata.at(key); }
  bool has(const std::string& key) const { return file_.metadata.contains(key); }
  int64_t count(const std::string& key) const { return std::stoll(text(key)); }
  double number(const std::string& key) const { return std::stod(text(key)); }
  std::vector<int64_t> counts(const std::string& key) const {
    std::vector<int64_t> out;
    const std::string& all = text(key);
    for (size_t at = 0; at < all.size(); at = all.find_first_not_of(',', all.find(',', at))) {
      out.push_back(std::stoll(all.substr(at)));
    }
    return out;
  }
  Optimizer optimizer() const {
    if (has("momentum")) {
      return Sgd{.lr = number("lr"), .momentum = number("momentum"), .weight_decay = number("weight_decay")};
    }
    return AdamW{.lr = number("lr"),
                 .beta1 = number("beta1"),
                 .beta2 = number("beta2"),
                 .eps = number("eps"),
                 .weight_decay = number("weight_decay")};
  }

 private:
  ckpt::TensorFile file_;
};

}  // namespace trireme::testing_support
