"""One training step in JAX on CPU, measured as `trireme bench step` measures ours: one line of JSON.

Written as its users would for speed: forward, backward and optax's update are one jitted function whose state is donated,
layers are unrolled, attention is written out (quicker here than jax.nn.dot_product_attention), images are NHWC; with bf16,
parameters stay f32 and layers compute in bf16. `-n` starts that many processes under jax.distributed, data parallel by
shard_map, with all gradients in one all-reduce over gloo.
"""

import os

import common

PARSER = common.options(__doc__)
PARSER.add_argument("--recompute", action="store_true", help="keep a block's input alone for the backward pass")
ARGS = common.begin(PARSER)
# XLA takes a thread a core unless it is told otherwise, and reads this when it is loaded.
os.environ["NPROC"] = str(ARGS.threads)
os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen={str(ARGS.threads > 1).lower()}"
os.environ["JAX_PLATFORMS"] = "cpu"

import functools

import jax
import jax.numpy as jnp
import numpy
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

RANDOM = numpy.random.default_rng(1)


def normal(shape, std):
    return RANDOM.standard_normal(shape, dtype=numpy.float32) * std


def dense_parameters(n_in, n_out, std=None):
    return {"w": normal((n_in, n_out), std or n_in**-0.5), "b": numpy.zeros(n_out, numpy.float32)}


def norm_parameters(n):
    return {"g": numpy.ones(n, numpy.float32), "b": numpy.zeros(n, numpy.float32)}


def dense(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def layer_norm(p, x):
    wide = x.astype(jnp.float32)
    wide -= wide.mean(-1, keepdims=True)
    wide *= jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-5)
    return (wide * p["g"] + p["b"]).astype(x.dtype)


def mean_loss(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def make_gpt(args, dtype):
    d = args.width

    def block_parameters():
        return {"ln_1": norm_parameters(d), "ln_2": norm_parameters(d), "c_attn": dense_parameters(d, 3 * d, 0.02),
                "c_proj": dense_parameters(d, d, 0.02), "fc": dense_parameters(d, 4 * d, 0.02),
                "proj": dense_parameters(4 * d, d, 0.02)}

    causal = numpy.tril(numpy.ones((args.seq, args.seq), bool))

    def block(p, x):
        b, s, _ = x.shape
        q, k, v = (part.reshape(b, s, args.heads, -1).swapaxes(1, 2)
                   for part in jnp.split(dense(p["c_attn"], layer_norm(p["ln_1"], x)), 3, -1))
        scores = jnp.where(causal, (q * (d // args.heads) ** -0.5) @ k.swapaxes(-1, -2), -1e9)
        y = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype) @ v
        x = x + dense(p["c_proj"], y.swapaxes(1, 2).reshape(b, s, d))
        return x + dense(p["proj"], jax.nn.gelu(dense(p["fc"], layer_norm(p["ln_2"], x)), approximate=True))

    def loss(p, running, tokens, targets):
        x = (p["wte"][tokens] + p["wpe"]).astype(dtype)
        for layer in p["blocks"]:
            x = (jax.checkpoint(block) if args.recompute else block)(layer, x)
        return mean_loss(layer_norm(p["ln_f"], x) @ p["wte"].astype(dtype).T, targets), running

    parameters = {"wte": normal((args.vocab, d), 0.02), "wpe": normal((args.seq, d), 0.02), "ln_f": norm_parameters(d),
                  "blocks": [block_parameters() for _ in range(args.layers)]}
    return parameters, {}, loss


def make_llama(args, dtype):
    """Grouped heads, rotary positions in halves, RMSNorm, SwiGLU, a head of its own."""
    d, size, hidden = args.width, args.width // args.heads, common.llama_mlp_width(args)
    angles = numpy.outer(numpy.arange(args.seq), 10000.0 ** (-numpy.arange(0, size, 2) / size))[None, :, None]
    cos, sin = numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)
    causal = numpy.tril(numpy.ones((args.seq, args.seq), bool))

    def block_parameters():
        kv = size * args.kv_heads
        shapes = {"q": (d, d), "k": (d, kv), "v": (d, kv), "o": (d, d), "gate": (d, hidden), "up": (d, hidden), "down": (hidden, d)}
        norms = {name: numpy.ones(d, numpy.float32) for name in ("n_1", "n_2")}
        return {name: normal(shape, 0.02) for name, shape in shapes.items()} | norms

    def norm(g, x):
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)

    def turned(x):
        first, second = jnp.split(x.astype(jnp.float32), 2, -1)
        return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), -1).astype(x.dtype)

    def block(p, x):
        b, s, _ = x.shape
        w = {name: value.astype(x.dtype) for name, value in p.items() if value.ndim == 2}
        h = norm(p["n_1"], x)
        q = turned((h @ w["q"]).reshape(b, s, args.heads, size)).reshape(b, s, args.kv_heads, -1, size).transpose(0, 2, 3, 1, 4)
        k = turned((h @ w["k"]).reshape(b, s, args.kv_heads, size)).swapaxes(1, 2)[:, :, None]
        v = (h @ w["v"]).reshape(b, s, args.kv_heads, size).swapaxes(1, 2)[:, :, None]
        scores = jnp.where(causal, (q * size ** -0.5) @ k.swapaxes(-1, -2), -1e9)
        y = jax.nn.softmax(scores.astype(jnp.float32)).astype(x.dtype) @ v
        x = x + y.transpose(0, 3, 1, 2, 4).reshape(b, s, d) @ w["o"]
        h = norm(p["n_2"], x)
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]

    def loss(p, running, tokens, targets):
        x = p["embed"][tokens].astype(dtype)
        for layer in p["blocks"]:
            x = (jax.checkpoint(block) if args.recompute else block)(layer, x)
        return mean_loss(norm(p["norm"], x) @ p["head"].astype(dtype), targets), running

    parameters = {"embed": normal((args.vocab, d), 0.02), "head": normal((d, args.vocab), 0.02), "norm": numpy.ones(d, numpy.float32),
                  "blocks": [block_parameters() for _ in range(args.layers)]}
    return parameters, {}, loss


def make_mlp(args, dtype):
    sizes = common.mlp_sizes(args)

    def loss(p, running, x, labels):
        x = x.astype(dtype)
        for layer in p[:-1]:
            x = jax.nn.relu(dense(layer, x))
        return mean_loss(dense(p[-1], x), labels), running

    return [dense_parameters(*pair) for pair in zip(sizes, sizes[1:])], {}, loss


def conv(w, x, stride=1, padding=None):
    pad = w.shape[0] // 2 if padding is None else padding
    return jax.lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), [(pad, pad)] * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x, size, stride, pad=0):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1),
                                 ((0, 0), (pad, pad), (pad, pad), (0, 0)))


def make_lenet(args, dtype):
    def loss(p, running, x, labels):
        x = x.astype(dtype)
        x = max_pool(jax.nn.relu(conv(p["conv1"]["w"], x) + p["conv1"]["b"].astype(dtype)), 2, 2)
        x = max_pool(jax.nn.relu(conv(p["conv2"]["w"], x, padding=0) + p["conv2"]["b"].astype(dtype)), 2, 2)
        x = jax.nn.relu(dense(p["fc1"], x.reshape(x.shape[0], -1)))
        return mean_loss(dense(p["fc3"], jax.nn.relu(dense(p["fc2"], x))), labels), running

    def conv_parameters(n_in, n_out):
        return {"w": normal((5, 5, n_in, n_out), (25 * n_in) ** -0.5), "b": numpy.zeros(n_out, numpy.float32)}

    return {"conv1": conv_parameters(1, 6), "conv2": conv_parameters(6, 16), "fc1": dense_parameters(400, 120),
            "fc2": dense_parameters(120, 84), "fc3": dense_parameters(84, 10)}, {}, loss


def make_resnet50(args, dtype):
    """Version 1.5; the running statistics of its batch norms go in and out of the step like the parameters."""
    blocks = list(common.resnet50_blocks())
    parameters, running = {}, {}

    def add_conv_norm(name, size, n_in, n_out):
        parameters[name] = norm_parameters(n_out) | {"w": normal((size, size, n_in, n_out), (2 / (size * size * n_out)) ** 0.5)}
        running[name] = {"mean": numpy.zeros(n_out, numpy.float32), "variance": numpy.ones(n_out, numpy.float32)}

    add_conv_norm("stem", 7, 3, 64)
    for i, (n_in, width, stride) in enumerate(blocks):
        add_conv_norm(f"{i}.1", 1, n_in, width)
        add_conv_norm(f"{i}.2", 3, width, width)
        add_conv_norm(f"{i}.3", 1, width, 4 * width)
        if stride != 1 or n_in != 4 * width:
            add_conv_norm(f"{i}.down", 1, n_in, 4 * width)
    parameters["head"] = dense_parameters(2048, 1000)

    def loss(p, running, x, labels):
        now = {}

        def conv_norm(name, x, stride=1):
            y = conv(p[name]["w"], x, stride)
            wide, old, n = y.astype(jnp.float32), running[name], y.size // y.shape[-1]
            mean = wide.mean((0, 1, 2))
            variance = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)
            now[name] = {"mean": 0.9 * old["mean"] + 0.1 * mean, "variance": 0.9 * old["variance"] + 0.1 * variance * n / (n - 1)}
            scale = p[name]["g"] * jax.lax.rsqrt(variance + 1e-5)
            return (wide * scale + (p[name]["b"] - mean * scale)).astype(x.dtype)

        x = max_pool(jax.nn.relu(conv_norm("stem", x.astype(dtype), 2)), 3, 2, 1)
        for i, (_, _, stride) in enumerate(blocks):
            y = jax.nn.relu(conv_norm(f"{i}.2", jax.nn.relu(conv_norm(f"{i}.1", x)), stride))
            y = conv_norm(f"{i}.3", y)
            x = jax.nn.relu(y + (conv_norm(f"{i}.down", x, stride) if f"{i}.down" in p else x))
        return mean_loss(dense(p["head"], x.mean((1, 2))), labels), now

    return parameters, running, loss


def make_optimizer(args):
    if args.optimizer == "sgd":
        return optax.chain(optax.add_decayed_weights(0.01), optax.sgd(1e-4, momentum=0.9))
    return optax.adamw(1e-4, weight_decay=0.01)


def over_data(gradients_of, mesh):
    """The same of a batch that is cut over the mesh: means over its parts, of the gradients as one vector."""

    def of_part(parameters, running, x, y):
        result, gradients = gradients_of(jax.lax.pcast(parameters, "data", to="varying"), running, x, y)
        flat, unflatten = ravel_pytree(gradients)
        result, flat = jax.lax.pmean((result, flat), "data")
        return result, unflatten(flat)

    everywhere, cut = PartitionSpec(), PartitionSpec("data")
    return jax.shard_map(of_part, mesh=mesh, in_specs=(everywhere, everywhere, cut, cut), out_specs=everywhere)


def run(args):
    if args.world > 1:
        jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", args.world, args.rank)
    mesh = jax.sharding.Mesh(jax.devices(), "data")
    everywhere, over_ranks = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    make = {"gpt": make_gpt, "llama": make_llama, "mlp": make_mlp, "lenet": make_lenet, "resnet50": make_resnet50}[args.model]
    parameters, running, loss_of = make(args, jnp.bfloat16 if args.dtype == "bf16" else jnp.float32)
    optimizer = make_optimizer(args)
    state = jax.device_put((parameters, running), everywhere)
    state += (jax.jit(optimizer.init, out_shardings=everywhere)(state[0]),)
    gradients_of = jax.value_and_grad(loss_of, has_aux=True)
    if args.world > 1:
        gradients_of = over_data(gradients_of, mesh)
    x, y = (jax.make_array_from_process_local_data(over_ranks, part) for part in common.batch(args))

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, x, y):
        parameters, running, moments = state
        (loss, running), gradients = gradients_of(parameters, running, x, y)
        updates, moments = optimizer.update(gradients, moments, parameters)
        return (optax.apply_updates(parameters, updates), running, moments), loss

    def step():
        nonlocal state
        state, loss = train_step(state, x, y)
        jax.block_until_ready(state)
        return float(loss)

    common.measure(args, step, {"parameters": sum(leaf.size for leaf in jax.tree.leaves(parameters)), "peer": "jax",
                                "version": jax.__version__, "products": "by XLA's own (Eigen) and oneDNN"})
    if args.world > 1:
        jax.distributed.shutdown()


if __name__ == "__main__":
    run(ARGS)
