// A run whose loss is no number: the last good checkpoint, and what is said (run_impl.h).
#include "trireme/train/loop/run_impl.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme {
namespace {

// Every byte is read, and every parameter is a number.
bool is_good(const std::string& path) {
  try {
    const ckpt::Reader reader(path);
    reader.verify();
    return std::ranges::all_of(reader.names(), [&](const std::string& name) {
      const ckpt::TensorRecord& info = reader.info(name);
      if (info.role != "param" || info.type.dtype != DType::kF32) return true;
      const HostTensor values = reader.read(name);
      return std::ranges::all_of(values.view().as<float>(), [](float value) { return std::isfinite(value); });
    });
  } catch (const Error& e) {
    TRIREME_LOG(kWarn, "ckpt", "{}", e.text());
    return false;
  }
}

}  // namespace

// A checkpoint of step s is good when the loss of step s + 1, which its parameters gave, was finite. Later ones lead to
// the same end whatever is changed, so nothing must go on from them.
std::string Run::find_good_checkpoint(int64_t last_finite) {
  const std::vector<ckpt::Found> found = ckpt::list_checkpoints(checkpoints()).complete;
  for (size_t i = found.size(); i-- > 0;) {
    if (found[i].step < last_finite && is_good(found[i].path)) return found[i].path;
    set_aside(found[i].path, "diverged");
  }
  return "";
}

void Run::fail_not_finite(const std::string& what, int64_t last_finite) {
  std::string left;
  if (!options_.out.empty()) {
    std::string good = job_.rank() == 0 ? find_good_checkpoint(last_finite) : "";
    if (job_.world()) good = gather_texts(*job_.world(), good)[0];
    left =
        good.empty()
            ? ", and start again: no checkpoint is left after which a step was finite"
            : fmt::format(
                  ", and resume: the run then goes on from '{}', the newest checkpoint after which a step was finite",
                  good);
  }
  fail(ErrorKind::kInvalidArgument, "{}; lower the learning rate ({:.4g}), warm it up or clip gradients{}", what, lr_,
       left);
}

}  // namespace trireme
