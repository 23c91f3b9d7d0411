"""One training step in ggml on CPU, measured as `trireme bench step` measures ours: one line of JSON.

What its own ggml-opt does, by the same calls: the forward graph, its backward pass, and an AdamW step of each parameter are one
graph whose memory the allocator has planned once. Of its operations LayerNorm, GELU and batch norm have no backward pass, so there
is no GPT and no ResNet. Initial weights are those of jax_step.py, so both say the same first loss.
"""

import ctypes
import os
import sys
from importlib import metadata, util

import common

ARGS = common.begin(common.options(__doc__))

import numpy

I32, F32, NEOX, POOL_MAX = 26, 0, 2, 0  # of the enumerations in ggml.h
NODES = 16384
FOLDER = os.path.join(os.path.dirname(util.find_spec("ggml").origin), "lib")
BASE, CPU = (ctypes.CDLL(os.path.join(FOLDER, f"libggml-{name}.so"), ctypes.RTLD_GLOBAL) for name in ("base", "cpu"))
RANDOM = numpy.random.default_rng(1)


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


KINDS = {"p": ctypes.c_void_p, "i": ctypes.c_int, "q": ctypes.c_int64, "z": ctypes.c_size_t, "f": ctypes.c_float, "b": ctypes.c_bool,
         "P": InitParams, "v": None}
SIGNATURES = {  # of ggml.h, ggml-alloc.h, ggml-backend.h and ggml-cpu.h: what comes out, then the parameters
    "init": "pP", "new_tensor_4d": "ppiqqqq", "new_graph_custom": "ppzb", "build_forward_expand": "vpp", "build_backward_expand": "vppp",
    "graph_get_grad": "ppp", "graph_get_grad_acc": "ppp", "set_param": "vp", "set_loss": "vp", "set_input": "vp", "set_output": "vp",
    "backend_alloc_ctx_tensors": "ppp", "gallocr_new": "pp", "gallocr_alloc_graph": "bpp", "backend_tensor_set": "vppzz",
    "backend_tensor_get": "vppzz", "backend_graph_compute": "ipp", "mul_mat": "pppp", "add": "pppp", "mul": "pppp", "relu": "ppp",
    "silu": "ppp", "rms_norm": "pppf", "get_rows": "pppp", "cont": "ppp", "permute": "pppiiii", "reshape_2d": "pppqq",
    "reshape_3d": "pppqqq", "reshape_4d": "pppqqqq", "rope_ext": "pppppiiiffffff", "soft_max_ext": "ppppff", "conv_2d": "ppppiiiiii",
    "pool_2d": "pppiiiiiff", "cross_entropy_loss": "pppp", "opt_step_adamw": "ppppppp", "backend_cpu_init": "p",
    "backend_cpu_set_n_threads": "vpi", "backend_cpu_buffer_type": "p"}


def bound(name, kinds):
    of = getattr(CPU if hasattr(CPU, name) and "cpu" in name else BASE, name)
    of.restype, of.argtypes = KINDS[kinds[0]], [KINDS[kind] for kind in kinds[1:]]
    return of


class Ggml:
    """ggml's functions without their prefix, those that make a node of the graph with its context: `g.relu(x)`."""

    def __init__(self):
        for name, kinds in SIGNATURES.items():
            setattr(self, "ggml_" + name, bound("ggml_" + name, kinds))
        room = BASE.ggml_tensor_overhead
        room.restype = ctypes.c_size_t
        self.static, self.context = (self.ggml_init(InitParams(NODES * room() * 4, None, True)) for _ in range(2))
        self.values, self.parameters = [], []
        self.kept = []  # nodes whose gradients are not written over

    def __getattr__(self, name):
        if name.startswith("ggml_"):
            raise AttributeError(name)
        of = getattr(self, "ggml_" + name)
        return lambda *inputs: of(self.context, *inputs)

    def tensor(self, value, is_parameter=False):
        """A tensor that lies outside the graph's memory, with that value; the last dimension of the array is ggml's first."""
        value = numpy.ascontiguousarray(value)
        sizes = list(reversed(value.shape)) + [1] * (4 - value.ndim)
        made = self.ggml_new_tensor_4d(self.static, I32 if value.dtype == numpy.int32 else F32, *sizes)
        self.values.append((made, value))
        if is_parameter:
            self.ggml_set_param(made)
            self.parameters.append((made, value))
        return made

    def normal(self, shape, std, of=lambda drawn: drawn):
        return self.tensor(of(RANDOM.standard_normal(shape, dtype=numpy.float32) * numpy.float32(std)), True)

    def fill(self, tensor, value):
        value = numpy.ascontiguousarray(value)
        self.ggml_backend_tensor_set(tensor, value.ctypes.data, 0, value.nbytes)


def dense(g, n_in, n_out, std=None, bias=True, turn=numpy.transpose):
    """A function that applies weights [n_out, n_in], which are drawn the other way, and biases if it has them."""
    w = g.normal((n_in, n_out), std or n_in**-0.5, turn)
    b = g.tensor(numpy.zeros(n_out, numpy.float32), True) if bias else None
    return lambda x: g.add(g.mul_mat(w, x), b) if bias else g.mul_mat(w, x)


def mlp(g, args, x):
    sizes = common.mlp_sizes(args)
    layers = [dense(g, *pair) for pair in zip(sizes, sizes[1:])]
    x = g.tensor(x)
    for layer in layers[:-1]:
        x = g.relu(layer(x))
    return layers[-1](x)


def lenet(g, args, images):
    def conv(x, n_in, n_out, padding):
        w = g.normal((5, 5, n_in, n_out), (25 * n_in) ** -0.5, lambda drawn: drawn.transpose(3, 2, 0, 1))
        b = g.tensor(numpy.zeros((n_out, 1, 1), numpy.float32), True)
        return g.pool_2d(g.relu(g.add(g.conv_2d(w, x, 1, 1, padding, padding, 1, 1), b)), POOL_MAX, 2, 2, 2, 2, 0, 0)

    x = g.reshape_2d(conv(conv(g.tensor(images.transpose(0, 3, 1, 2)), 1, 6, 2), 6, 16, 0), 400, args.batch)
    # The same weights as where images are [h,w,c]; ggml's backward pass of pooling takes a gradient for contiguous that is not, so
    # the image is not transposed instead.
    fc1 = dense(g, 400, 120, turn=lambda drawn: drawn.reshape(5, 5, 16, 120).transpose(3, 2, 0, 1).reshape(120, 400))
    fc2, fc3 = dense(g, 120, 84), dense(g, 84, 10)
    return fc3(g.relu(fc2(g.relu(fc1(x)))))


def llama(g, args, tokens):
    """Grouped heads, rotary positions in halves, RMSNorm, SwiGLU, a head of its own; heads of all samples are one dimension."""
    b, s, d, size, hidden = args.batch, args.seq, args.width, args.width // args.heads, common.llama_mlp_width(args)
    kv = size * args.kv_heads
    positions = g.tensor(numpy.arange(s, dtype=numpy.int32))
    mask = g.tensor(numpy.triu(numpy.full((s, s), -numpy.inf, numpy.float32), 1))

    # The allocator lets the norm's backward pass write over the gradient that it still reads, so that gradient is kept.
    def norm(x):
        y = g.rms_norm(x, 1e-6)
        g.kept.append(y)
        return g.mul(y, g.tensor(numpy.ones(d, numpy.float32), True))

    def heads(x, count, turns):
        x = g.reshape_4d(x, size, count, s, b)
        if turns:
            x = g.rope_ext(x, positions, None, size, NEOX, 0, 10000, 1, 0, 1, 0, 0)
        order, sizes = ((0, 2, 1, 3), (size, s)) if turns else ((1, 2, 0, 3), (s, size))  # values are transposed
        return g.reshape_3d(g.cont(g.permute(x, *order)), *sizes, count * b)

    def block(x):
        shapes = ((d, d), (d, kv), (d, kv), (d, d), (d, hidden), (d, hidden), (hidden, d))
        q, k, v, o, gate, up, down = (dense(g, *shape, 0.02, bias=False) for shape in shapes)
        h = norm(x)
        scores = g.mul_mat(heads(k(h), args.kv_heads, True), heads(q(h), args.heads, True))
        y = g.mul_mat(heads(v(h), args.kv_heads, False), g.soft_max_ext(scores, mask, size**-0.5, 0))
        y = g.cont(g.permute(g.reshape_4d(y, size, s, args.heads, b), 0, 2, 1, 3))
        x = g.add(x, o(g.reshape_2d(y, d, s * b)))
        h = norm(x)
        return g.add(x, down(g.mul(g.silu(gate(h)), up(h))))

    embed, head = g.normal((args.vocab, d), 0.02), dense(g, d, args.vocab, 0.02, bias=False)
    x = g.get_rows(embed, g.tensor(tokens.reshape(-1)))
    for _ in range(args.layers):
        x = block(x)
    return head(norm(x))


def make_step(g, logits, labels, threads):
    """A function that takes one step and returns the loss: all of it is one graph."""
    loss = g.cross_entropy_loss(logits, g.tensor(labels))
    g.ggml_set_loss(loss)
    g.ggml_set_output(loss)
    graph = g.new_graph_custom(NODES, True)
    g.ggml_build_forward_expand(graph, loss)
    g.ggml_build_backward_expand(g.context, graph, None)
    for node in g.kept:
        g.ggml_set_output(g.ggml_graph_get_grad(graph, node))
    begin = g.ggml_graph_get_grad_acc(graph, loss)
    for mark in (g.ggml_set_input, g.ggml_set_output):  # nothing else may take its memory: it is filled once
        mark(begin)
    numbers = g.tensor(numpy.zeros(7, numpy.float32))
    for parameter, value in g.parameters:
        moments = (g.tensor(numpy.zeros_like(value)) for _ in range(2))
        g.ggml_build_forward_expand(graph, g.opt_step_adamw(parameter, g.ggml_graph_get_grad(graph, parameter), *moments, numbers))
    backend = g.ggml_backend_cpu_init()
    g.ggml_backend_cpu_set_n_threads(backend, threads)
    g.ggml_backend_alloc_ctx_tensors(g.static, backend)
    if not g.ggml_gallocr_alloc_graph(g.ggml_gallocr_new(g.ggml_backend_cpu_buffer_type()), graph):
        sys.exit("ggml can not allocate the graph")
    for tensor, value in g.values:
        g.fill(tensor, value)
    g.fill(begin, numpy.ones(1, numpy.float32))
    result, steps = numpy.zeros(1, numpy.float32), 0

    def step():
        nonlocal steps
        steps += 1
        g.fill(numbers, numpy.array([1e-4, 0.9, 0.999, 1e-8, 0.01, 1 / (1 - 0.9**steps), 1 / (1 - 0.999**steps)], numpy.float32))
        if g.ggml_backend_graph_compute(backend, graph) != 0:
            sys.exit("ggml can not compute the graph")
        g.ggml_backend_tensor_get(loss, result.ctypes.data, 0, 4)
        return float(result[0])

    return step


def run(args):
    if args.model not in ("mlp", "lenet", "llama"):
        sys.exit("ggml has no backward pass of " + {"gpt": "LayerNorm (NORM) and GELU", "resnet50": "batch norm"}[args.model])
    g = Ggml()
    x, y = common.batch(args)
    logits = {"mlp": mlp, "lenet": lenet, "llama": llama}[args.model](g, args, x)
    classes = args.vocab if args.model == "llama" else 10
    step = make_step(g, logits, numpy.eye(classes, dtype=numpy.float32)[y.reshape(-1)], args.threads)
    common.measure(args, step, {"parameters": sum(value.size for _, value in g.parameters), "peer": "ggml",
                                "version": metadata.version("ggml-py"), "products": "by its own loops"})


if __name__ == "__main__":
    run(ARGS)
