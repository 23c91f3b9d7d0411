#include "trireme/backend/cuda/driver.h"

#include <dlfcn.h>

#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme::cuda {
namespace {

// The names under which a library of the toolkit may stand: of the versions that have what is called here, and in the
// toolkit's folder where it is not among those that the system searches.
std::vector<std::string> toolkit_names(const std::string& library) {
  std::vector<std::string> out;
  const std::string home = flag_text("CUDA_HOME").value_or("/usr/local/cuda");
  for (const std::string& folder : {std::string(), home + "/lib64/"}) {
    for (const char* version : {".so.13", ".so.12", ".so"}) out.push_back(folder + library + version);
  }
  return out;
}

Handle opened(const std::vector<std::string>& names, const char* what) {
  std::string first;
  for (const std::string& name : names) {
    if (void* const library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
    if (first.empty()) first = ::dlerror();
  }
  fail(ErrorKind::kUnsupported, "the device 'cuda' needs {}, which this host does not have ({}); use --device cpu",
       what, first);
}

template <class Function>
void find(Handle library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr)
    fail(ErrorKind::kUnsupported, "the device 'cuda' calls {}, which this host's CUDA does not have; use CUDA 12 or 13",
         name);
}

#define TRIREME_CUDA_FIND(member, name, arguments) find(library, name, out.member);

Driver load_driver() {
  const Handle library = opened({"libcuda.so.1"}, "NVIDIA's driver (libcuda.so.1)");
  Driver out{};
  TRIREME_CUDA_DRIVER(TRIREME_CUDA_FIND)
  const CuResult status = out.init(0);
  const char* why = "";
  if (status != 0) out.error_text(status, &why);
  if (status != 0) fail(ErrorKind::kUnsupported, "the device 'cuda' finds no GPU: {}; use --device cpu", why);
  return out;
}

Compiler load_compiler() {
  const Handle library = opened(toolkit_names("libnvrtc"), "CUDA's compiler (libnvrtc)");
  Compiler out{};
  TRIREME_CUDA_COMPILER(TRIREME_CUDA_FIND)
  return out;
}

Blas load_blas() {
  const Handle library = opened(toolkit_names("libcublas"), "CUDA's products (libcublas)");
  Blas out{};
  TRIREME_CUDA_BLAS(TRIREME_CUDA_FIND)
  return out;
}

#undef TRIREME_CUDA_FIND

}  // namespace

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

const Compiler& compiler() {
  static const Compiler loaded = load_compiler();
  return loaded;
}

const Blas& blas() {
  static const Blas loaded = load_blas();
  return loaded;
}

void check(CuResult status, const char* what) {
  if (status == 0) [[likely]]
    return;
  const char *name = "an unknown error", *text = "";
  driver().error_name(status, &name);
  driver().error_text(status, &text);
  fail(ErrorKind::kIo, "cuda: {} fails: {} ({})", what, text, name);
}

void check_blas(CuResult status, const char* what) {
  if (status != 0) fail(ErrorKind::kIo, "cuda: {} fails: status {} of cuBLAS", what, status);
}

std::string compiled(const std::string& source, const std::string& name, const std::string& capability) {
  const Compiler& nvrtc = compiler();
  Handle program = nullptr;
  CuResult status = nvrtc.create(&program, source.c_str(), name.c_str(), 0, nullptr, nullptr);
  invariant(status == 0, "cuda: NVRTC makes no program of {}: status {}", name, status);
  const std::string target = "--gpu-architecture=sm_" + capability;
  const std::vector<const char*> options = {target.c_str(), "--std=c++17"};
  status = nvrtc.compile(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  std::string out;
  if (status != 0) {
    nvrtc.log_size(program, &size);
    std::string log(size, '\0');
    nvrtc.log(program, log.data());
    nvrtc.destroy(&program);
    fail(ErrorKind::kInternal, "cuda: {} does not compile for sm_{}:\n{}\n{}", name, capability, log.c_str(), source);
  }
  nvrtc.cubin_size(program, &size);
  out.resize(size);
  nvrtc.cubin(program, out.data());
  nvrtc.destroy(&program);
  return out;
}

}  // namespace trireme::cuda
