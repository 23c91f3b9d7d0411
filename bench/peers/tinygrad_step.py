"""One training step in tinygrad on CPU, measured as `trireme bench step` measures ours: one line of JSON.

Written as its users would for speed: forward, backward and the update of its own AdamW or SGD are one function under TinyJit, so that
the third step and all later ones replay kernels that are compiled; images in NCHW. `--renderer` chooses what compiles them. Initial weights
are those of jax_step.py, so both say the same first loss.
"""

import os
import tempfile

import common

PARSER = common.options(__doc__)
PARSER.add_argument("--renderer", choices=("clang", "llvm"), default="clang")
ARGS = common.begin(PARSER)
# It reads these when it is loaded.
os.environ |= {"DEV": f"CPU:{ARGS.renderer.upper()}", "NUM_CPU_THREADS": str(ARGS.threads), "TRAINING": "1"}
# Kernels that an earlier run has compiled would make this one's first step look short.
CACHE = tempfile.TemporaryDirectory()
os.environ["CACHEDB"] = os.path.join(CACHE.name, "cache.db")

from importlib import metadata

import numpy
from tinygrad import Device, Tensor, TinyJit, dtypes, nn

RANDOM = numpy.random.default_rng(1)


def normal(shape, std):
    return Tensor(RANDOM.standard_normal(shape, dtype=numpy.float32) * numpy.float32(std))


class Dense:
    def __init__(self, n_in, n_out, std=None, bias=True):
        self.w, self.b = normal((n_in, n_out), std or n_in**-0.5), Tensor.zeros(n_out).contiguous() if bias else None

    def __call__(self, x):
        return x.linear(self.w, self.b)


class Conv:
    def __init__(self, size, n_in, n_out, std, stride=1, padding=None, bias=False):
        drawn = RANDOM.standard_normal((size, size, n_in, n_out), dtype=numpy.float32) * numpy.float32(std)
        self.w, self.b = Tensor(numpy.ascontiguousarray(drawn.transpose(3, 2, 0, 1))), Tensor.zeros(n_out).contiguous() if bias else None
        self.stride, self.padding = stride, size // 2 if padding is None else padding

    def __call__(self, x):
        return x.conv2d(self.w, self.b, stride=self.stride, padding=self.padding)


class Embedding(nn.Embedding):
    def __init__(self, count, width):
        self.weight = normal((count, width), 0.02)


def loss_of(logits, labels):
    return logits.sparse_categorical_crossentropy(labels)


class Gpt:
    class Block:
        def __init__(self, d, heads):
            self.heads = heads
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.c_attn, self.c_proj = Dense(d, 3 * d, 0.02), Dense(d, d, 0.02)
            self.fc, self.proj = Dense(d, 4 * d, 0.02), Dense(4 * d, d, 0.02)

        def __call__(self, x):
            b, s, d = x.shape
            q, k, v = self.c_attn(self.ln_1(x)).reshape(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).chunk(3)
            y = q[0].scaled_dot_product_attention(k[0], v[0], is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(b, s, d))
            return x + self.proj(self.fc(self.ln_2(x)).gelu())

    def __init__(self, args):
        self.wte, self.wpe = Embedding(args.vocab, args.width), normal((args.seq, args.width), 0.02)
        self.blocks, self.ln_f = [Gpt.Block(args.width, args.heads) for _ in range(args.layers)], nn.LayerNorm(args.width)

    def __call__(self, tokens):
        return self.ln_f((self.wte(tokens) + self.wpe).sequential(self.blocks)).linear(self.wte.weight.T)


class Llama:
    """Grouped heads, rotary positions in halves, RMSNorm, SwiGLU, a head of its own."""

    class Block:
        def __init__(self, args):
            d, self.size, hidden = args.width, args.width // args.heads, common.llama_mlp_width(args)
            kv = self.size * args.kv_heads
            self.q, self.k, self.v, self.o, self.gate, self.up, self.down = (
                Dense(*shape, 0.02, bias=False) for shape in ((d, d), (d, kv), (d, kv), (d, d), (d, hidden), (d, hidden), (hidden, d)))
            self.norm_1, self.norm_2 = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)

        def turned(self, x, cos, sin):
            first, second = x.chunk(2, -1)
            return (first * cos - second * sin).cat(second * cos + first * sin, dim=-1)

        def __call__(self, x, cos, sin):
            b, s, d = x.shape
            h = self.norm_1(x)
            q, k, v = (part(h).reshape(b, s, -1, self.size).transpose(1, 2) for part in (self.q, self.k, self.v))
            y = self.turned(q, cos, sin).scaled_dot_product_attention(self.turned(k, cos, sin), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, s, d))
            h = self.norm_2(x)
            return x + self.down(self.gate(h).silu() * self.up(h))

    def __init__(self, args):
        half = numpy.arange(0, args.width // args.heads, 2) / (args.width // args.heads)
        angles = numpy.outer(numpy.arange(args.seq), 10000.0**-half)
        self.cos, self.sin = (Tensor(of(angles).astype(numpy.float32)).is_param_(False) for of in (numpy.cos, numpy.sin))
        self.embed, self.head = Embedding(args.vocab, args.width), Dense(args.width, args.vocab, 0.02, bias=False)
        self.blocks, self.norm = [Llama.Block(args) for _ in range(args.layers)], nn.RMSNorm(args.width, eps=1e-6)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class Mlp:
    def __init__(self, args):
        sizes = common.mlp_sizes(args)
        self.layers = [Dense(*pair) for pair in zip(sizes, sizes[1:])]

    def __call__(self, x):
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


class LeNet:
    def __init__(self, args):
        self.conv1, self.conv2 = Conv(5, 1, 6, 25**-0.5, bias=True), Conv(5, 6, 16, 150**-0.5, padding=0, bias=True)
        self.fc1, self.fc2, self.fc3 = Dense(400, 120), Dense(120, 84), Dense(84, 10)

    def __call__(self, x):
        x = self.conv2(self.conv1(x).relu().max_pool2d()).relu().max_pool2d()
        return self.fc3(self.fc2(self.fc1(x.permute(0, 2, 3, 1).flatten(1)).relu()).relu())


class ResNet50:
    """Version 1.5."""

    class ConvNorm:
        def __init__(self, size, n_in, n_out, stride=1):
            self.conv, self.norm = Conv(size, n_in, n_out, (2 / (size * size * n_out)) ** 0.5, stride), nn.BatchNorm(n_out)

        def __call__(self, x):
            return self.norm(self.conv(x))

    class Bottleneck:
        def __init__(self, n_in, width, stride):
            self.parts = [ResNet50.ConvNorm(1, n_in, width), ResNet50.ConvNorm(3, width, width, stride), ResNet50.ConvNorm(1, width, 4 * width)]
            self.down = ResNet50.ConvNorm(1, n_in, 4 * width, stride) if stride != 1 or n_in != 4 * width else None

        def __call__(self, x):
            y = self.parts[2](self.parts[1](self.parts[0](x).relu()).relu())
            return (y + (self.down(x) if self.down else x)).relu()

    def __init__(self, args):
        self.stem = ResNet50.ConvNorm(7, 3, 64, 2)
        self.blocks = [ResNet50.Bottleneck(*sizes) for sizes in common.resnet50_blocks()]
        self.head = Dense(2048, 1000)

    def __call__(self, x):
        x = self.stem(x).relu().max_pool2d((3, 3), stride=2, padding=1)
        return self.head(x.sequential(self.blocks).mean((2, 3)))


def run(args):
    model = {"gpt": Gpt, "llama": Llama, "mlp": Mlp, "lenet": LeNet, "resnet50": ResNet50}[args.model](args)
    parameters = [tensor for tensor in nn.state.get_parameters(model) if tensor.is_param]
    if args.optimizer == "sgd":
        optimizer = nn.optim.SGD(parameters, lr=1e-4, momentum=0.9, weight_decay=0.01)
    else:
        optimizer = nn.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)
    x, y = common.batch(args)
    if x.ndim == 4:
        x = numpy.ascontiguousarray(x.transpose(0, 3, 1, 2))
    x, y = (Tensor(part).is_param_(False).realize() for part in (x, y))
    statistics = [tensor for tensor in nn.state.get_parameters(model) if not tensor.is_param and tensor.dtype == dtypes.float32]

    @TinyJit
    def train_step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        return loss.realize(*optimizer.schedule_step(), *statistics)

    def step():
        loss = train_step(x, y).item()
        Device[Device.DEFAULT].synchronize()
        return loss

    common.measure(args, step, {"parameters": sum(tensor.numel() for tensor in parameters), "peer": "tinygrad",
                                "version": metadata.version("tinygrad"), "products": "by its own loops"})


if __name__ == "__main__":
    run(ARGS)
