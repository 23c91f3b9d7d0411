#include "trireme/tensor/view.h"

#include "trireme/base/error.h"

namespace trireme {

void View::refuse_host() const {
  fail(ErrorKind::kInvalidArgument,
       "a view of {} lies {}, which the host cannot touch; copy it (Executor::read_input, read_output and "
       "write_input)",
       to_string(type), memory == Memory::kDisk ? "on the disk" : "in device memory");
}

void View::refuse_type(DType read) const {
  fail(ErrorKind::kInternal, "view of {} read as {}", to_string(type), to_string(read));
}

}  // namespace trireme
