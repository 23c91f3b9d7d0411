"""The peers that bench/run knows: how each is installed, and the settings that it is tried with to find its best."""

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.path.join(ROOT, "build", "peers")
INSTALL_LIMIT_S = 1800  # of one command of pip

# What PyTorch needs to be imported on a machine with CUDA's libraries; elsewhere pip takes all it asks for.
TORCH = ["torch", "triton", "nvidia-cufile", "nvidia-cusparselt-cu13", "nvidia-nvshmem-cu13", "nvidia-nccl-cu13"]
PLAIN = ["numpy", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "filelock", "setuptools"]


class Framework(NamedTuple):
    name: str
    program: str
    modules: str  # that must be there to import
    installs: list  # what pip is asked for in turn until they are
    how: str  # the page says how it is run


FRAMEWORKS = {  # by its folder in build/peers
    "torch": Framework("PyTorch", "pytorch_step.py", "torch, numpy, sympy", [["--no-deps"] + TORCH, PLAIN, ["torch", "numpy"]],
                       "fused AdamW or SGD, images in channels-last, autocast for bf16; DDP over gloo for 2 ranks, DTensor for tensor "
                       "parallel, FSDP2 for optimizer parallel, its CPUOffloadPolicy for updates on the host, torch.distributed.pipelining for pipelines; compiled: the model through torch.compile; recompute: "
                       "torch.utils.checkpoint around each block"),
    "ipex": Framework("IPEX", "pytorch_step.py", "torch, intel_extension_for_pytorch", [["torch==2.8.*", "intel-extension-for-pytorch", "numpy"]],
                      "the same program, model and optimizer through ipex.optimize; PyTorch of the version that it asks for"),
    "jax": Framework("JAX", "jax_step.py", "jax, optax", [["jax", "optax"]],
                     "the step as one jitted function with donated state, optax's AdamW or SGD, images in NHWC, layers in bf16 beside f32 "
                     "parameters; shard_map and one all-reduce over gloo for 2 ranks; recompute: jax.checkpoint around each block"),
    "mindspore": Framework("MindSpore", "mindspore_step.py", "mindspore", [["mindspore"]],
                           "graph mode, AdamWeightDecay or Momentum, images in NCHW with its oneDNN held to AVX2, which is quicker; msrun in "
                           "data parallel mode for 2 ranks"),
    "tinygrad": Framework("tinygrad", "tinygrad_step.py", "tinygrad, numpy", [["tinygrad", "numpy"]],
                          "its CPU device, the step as one function under TinyJit, its AdamW or SGD, images in NCHW; no beam search, which takes minutes"),
    "ggml": Framework("ggml", "ggml_step.py", "ggml, numpy", [["ggml-py", "numpy"]],
                      "the operations and the calls of ggml-opt, forward, backward and AdamW as one graph; pip compiles it"),
}


class Setting(NamedTuple):
    name: str
    options: list = []  # of the peer's program
    env: dict = {}
    preload: str = ""  # how the name of a library that is preloaded begins
    lacks: set = set()  # options of a step that it does not do
    about: str = ""  # the page says what it is


AS_IT_IS = Setting("as it is")
MKL_AS_ON_INTEL = Setting("MKL as on Intel", preload="mkl_as_on_intel", lacks={"dtype"},
                          about="a library is preloaded that tells MKL that the CPU is Intel's (`bench/peers/mkl_as_on_intel.c`), as MKL "
                          "multiplies by other code on other makers' CPUs")
PRODUCTS_BY_ONEDNN = Setting("oneDNN", ["--linear", "onednn"], lacks={"dtype", "tp", "zero", "pp"},
                             about="linear layers, forward and backward, go through oneDNN instead of MKL")
AUTOTUNE = Setting("max-autotune", ["--compile-mode", "max-autotune"], about="`torch.compile` in that mode")
CPP_WRAPPER = Setting("C++ wrapper", ["--cpp-wrapper"], about="`torch.compile` calls its kernels from C++")
IPEX_SELECTS = Setting("kernels selected", ["--ipex-selects"], about="`ipex.optimize` with `auto_kernel_selection`")
LLVM = Setting("LLVM", ["--renderer", "llvm"], about="tinygrad's kernels go to LLVM directly, not to clang as C")
# Values that a step needs again in the next are kept, in huge pages where the kernel gives them: THP_MEM_ALLOC_ENABLE is PyTorch's own.
HUGE = {"THP_MEM_ALLOC_ENABLE": "1"}
KEPT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776"}
DECAY = "oversize_threshold:1,background_thread:true,metadata_thp:auto,thp:always,dirty_decay_ms:9000000000,muzzy_decay_ms:9000000000"
MEMORY = [
    Setting("memory kept", env=HUGE | KEPT, about="the C library's malloc gives no memory back, and asks for huge pages"),
    Setting("tcmalloc", env=HUGE, preload="libtcmalloc", about="it is preloaded, and PyTorch asks for huge pages"),
    Setting("jemalloc", env=HUGE | {"MALLOC_CONF": DECAY}, preload="libjemalloc",
            about="it is preloaded with the options of PyTorch's performance guide and huge pages, and PyTorch asks for them too"),
]


class Peer(NamedTuple):
    name: str
    framework: str
    options: list
    lacks: set  # options of a step that it does not do; "ranks": of several
    groups: list = [MEMORY]  # of settings that exclude each other, in the order in which they are tried
    after: str = ""  # the peer whose best setting this one's are tried on top of


PEERS = {
    "pytorch": Peer("PyTorch", "torch", [], set(), [[MKL_AS_ON_INTEL, PRODUCTS_BY_ONEDNN], MEMORY]),
    "compiled": Peer("PyTorch compiled", "torch", ["--compile"], {"pp"}, [[AUTOTUNE, CPP_WRAPPER]], "pytorch"),
    "ipex": Peer("PyTorch with IPEX", "ipex", ["--ipex"], {"ranks"}, [[MKL_AS_ON_INTEL, IPEX_SELECTS], MEMORY]),
    "jax": Peer("JAX", "jax", [], {"tp", "zero", "pp"}),
    "mindspore": Peer("MindSpore", "mindspore", [], {"kv-heads", "tp", "zero", "dtype", "recompute", "pp"}),
    "tinygrad": Peer("tinygrad", "tinygrad", [], {"ranks", "dtype", "recompute"}, [[LLVM]]),
    "ggml": Peer("ggml", "ggml", [], {"ranks", "dtype", "recompute"}),
}


def python_of(framework):
    return os.path.join(FOLDER, framework, "bin", "python")


def text_of(command):
    return " ".join(os.path.relpath(word, ROOT) if os.path.isabs(word) else word for word in command)


def can_import(framework):
    python = python_of(framework)
    return os.path.exists(python) and not subprocess.run([python, "-c", f"import {FRAMEWORKS[framework].modules}"],
                                                         capture_output=True).returncode


def install(framework):
    """Brings a framework into its environment where it is missing; what went wrong, or nothing."""
    if can_import(framework):
        return ""
    name = FRAMEWORKS[framework].name
    print(f"bench: installing {name} into build/peers/{framework}", file=sys.stderr)
    lines = [[sys.executable, "-m", "venv", os.path.join(FOLDER, framework)]]
    lines += [[python_of(framework), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"] + packages
              for packages in FRAMEWORKS[framework].installs]
    for line in lines:
        code = subprocess.run(["timeout", "-k", "10", str(INSTALL_LIMIT_S)] + line, stdout=sys.stderr).returncode
        if code != 0:
            return f"{name} can not be installed: exit code {code}{' (124: after ' + str(INSTALL_LIMIT_S) + ' s)' if code == 124 else ''} from: {text_of(line)}"
        if can_import(framework):
            return ""
    return f"{name} is installed in build/peers/{framework} but can not be imported; remove the folder to install it anew"


def install_peers(names):
    """The peers that can run, and what is wrong with the others."""
    if os.path.exists(os.path.join(FOLDER, "pyvenv.cfg")):  # PyTorch's environment, from when it was the only one
        os.rename(FOLDER, FOLDER + ".torch")
        os.mkdir(FOLDER)
        os.rename(FOLDER + ".torch", os.path.join(FOLDER, "torch"))
    wrong = {framework: install(framework) for framework in {PEERS[name].framework: 0 for name in names}}
    for text in filter(None, wrong.values()):
        print(f"bench: {text}", file=sys.stderr)
    return [name for name in names if not wrong[PEERS[name].framework]], [text for text in wrong.values() if text]


def find_libraries(names, is_intel):
    """The libraries that settings of the peers preload, by how their names begin, and what is wrong with those that are not here."""
    found, wrong = {}, []
    ldconfig = shutil.which("ldconfig", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    known = subprocess.run([ldconfig, "-p"], capture_output=True, text=True).stdout.splitlines() if ldconfig else []
    paths = sorted((line.split()[0], line.split()[-1]) for line in known if "=>" in line and "debug" not in line)
    wanted = {setting.preload: setting for name in names for group in PEERS[name].groups for setting in group if setting.preload}
    for start, setting in wanted.items():
        if start == MKL_AS_ON_INTEL.preload:
            built = os.path.join(FOLDER, start + ".so")
            source = os.path.join(ROOT, "bench", "peers", start + ".c")
            if is_intel:
                continue
            os.makedirs(FOLDER, exist_ok=True)
            try:
                subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", built, source], check=True, stdout=sys.stderr)
                found[start] = built
            except (OSError, subprocess.CalledProcessError) as error:
                wrong.append(f"peers with '{setting.name}': {text_of([source])} can not be compiled: {error}")
            continue
        of_name = [path for name, path in paths if name.startswith(start)]
        if of_name:
            found[start] = of_name[0]
        else:
            wrong.append(f"peers with '{setting.name}': there is no {start} here")
    return found, wrong
