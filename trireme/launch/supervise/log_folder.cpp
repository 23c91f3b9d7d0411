#include "trireme/launch/supervise/log_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme::launch {

LogFolder::LogFolder(const std::string& wanted) : path_(wanted), temporary_(wanted.empty()) {
  if (temporary_) {
    path_ = fmt::format("{}/trireme-logs-XXXXXX", flag_text("TMPDIR").value_or("/tmp"));
    if (mkdtemp(path_.data()) == nullptr) {
      fail(ErrorKind::kIo, "launch: cannot make the folder '{}' ({})", path_, std::strerror(errno));
    }
  } else {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) fail(ErrorKind::kIo, "launch: cannot make the folder '{}' ({})", path_, error.message());
  }
}

LogFolder::~LogFolder() {
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(path_, ignored);
}

std::string LogFolder::file(int rank, int attempt) const {
  return fmt::format("{}/worker_{}.log{}", path_, rank, attempt > 0 ? fmt::format(".{}", attempt) : "");
}

}  // namespace trireme::launch
