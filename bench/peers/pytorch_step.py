"""One training step in PyTorch, measured as `trireme bench step` measures ours: one line of JSON.

Written as its users would for speed: fused AdamW, fused attention, gradients set to none, DDP over gloo with gradients
in the buckets. `-n` starts that many workers; with `--compile` the model goes through torch.compile. `--tp` cuts the GPT's
layers by DTensor (columns, then rows), `--zero 3` and `--zero 2` shard it by FSDP2 with and without freeing the gathered
weights between the passes, `--zero 1` is DDP with ZeroRedundancyOptimizer; `--optimizer-on host` goes with the former and is FSDP2's CPUOffloadPolicy. `--tp` with more ranks than it takes goes with
`--zero 2` or `3`: FSDP2 over the mesh's other dimension. `--pp` cuts the GPT's blocks over that many ranks by
torch.distributed.pipelining; the head there has a weight of its own, as stages have no common one. `--linear onednn` sends the
f32 products of linear layers through oneDNN, `--ipex` the model and its optimizer through Intel's extension.
"""

import functools
import sys
from typing import Optional

import common

PARSER = common.options(__doc__)
PARSER.add_argument("--tp", type=int, default=1)
PARSER.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0)
PARSER.add_argument("--optimizer-on", choices=("device", "host"), default="device")
PARSER.add_argument("--compile", action="store_true")
PARSER.add_argument("--compile-mode", default="default", help="of torch.compile, like max-autotune")
PARSER.add_argument("--cpp-wrapper", action="store_true", help="torch.compile calls its kernels from C++")
PARSER.add_argument("--linear", choices=("mkl", "onednn"), default="mkl", help="what multiplies in linear layers, in f32")
PARSER.add_argument("--ipex", action="store_true", help="by intel_extension_for_pytorch")
PARSER.add_argument("--ipex-selects", action="store_true", help="kernels of its own choice in place of PyTorch's")
PARSER.add_argument("--recompute", action="store_true", help="keep a block's input alone for the backward pass")
PARSER.add_argument("--pp", type=int, default=1)
PARSER.add_argument("--micro-batches", type=int, default=1)
PARSER.add_argument("--schedule", choices=("gpipe", "1f1b", "interleaved", "zb-h1"), default="1f1b",
                    help="zb-h1: PyTorch's InterleavedZeroBubble, two stages a rank, which is what it has of that kind")
PARSER.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: on one GPU, one rank")
PARSER.add_argument("--bucket-mb", type=float, default=25, help="of DistributedDataParallel")
ARGS = common.begin(PARSER)  # ends the process that starts several ranks, before it has loaded all of PyTorch

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def make_gpt(args):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            d = args.width
            self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
            if args.tp > 1:  # a column of a fused weight would hold the query of one head and the key of another
                self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
            else:
                self.c_attn = nn.Linear(d, 3 * d)
            self.c_proj = nn.Linear(d, d)
            self.fc, self.proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            b, s, d = x.shape
            h = self.ln_1(x)
            if args.tp > 1:
                q, k, v = (part(h).view(b, s, -1, d // args.heads).transpose(1, 2) for part in (self.q, self.k, self.v))
            else:
                q, k, v = self.c_attn(h).view(b, s, 3, args.heads, d // args.heads).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(b, s, -1))
            return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(args.vocab, args.width), nn.Embedding(args.seq, args.width)
            self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
            self.ln_f = nn.LayerNorm(args.width)
            self.head = nn.Linear(args.width, args.vocab, bias=False)
            self.head.weight = self.wte.weight
            self.apply(self.initialise)

        @staticmethod
        def initialise(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if args.recompute else block(x)
            logits = self.head(self.ln_f(x))
            return F.cross_entropy(logits.view(-1, args.vocab), targets.view(-1))

    return Gpt()


def make_llama(args):
    """Grouped heads, rotary positions in halves, RMSNorm, SwiGLU, a head of its own."""
    size = args.width // args.heads
    angles = torch.outer(torch.arange(args.seq, dtype=torch.float), 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float) / size))

    def linear(n_in, n_out):
        return nn.Linear(n_in, n_out, bias=False)

    def turned(x, cos, sin):
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            d, hidden = args.width, common.llama_mlp_width(args)
            self.norm_1, self.norm_2 = nn.RMSNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
            self.q, self.k, self.v, self.o = linear(d, d), linear(d, size * args.kv_heads), linear(d, size * args.kv_heads), linear(d, d)
            self.gate, self.up, self.down = linear(d, hidden), linear(d, hidden), linear(hidden, d)

        def forward(self, x, cos, sin):
            b, s, d = x.shape
            h = self.norm_1(x)
            q, k, v = (part(h).view(b, s, -1, size).transpose(1, 2) for part in (self.q, self.k, self.v))
            q, k = turned(q, cos, sin).to(v.dtype), turned(k, cos, sin).to(v.dtype)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, s, d))
            h = self.norm_2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(args.vocab, args.width)
            self.blocks = nn.ModuleList(Block() for _ in range(args.layers))
            self.norm, self.head = nn.RMSNorm(args.width, eps=1e-6), linear(args.width, args.vocab)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            for block in self.blocks:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False) if args.recompute else block(x, self.cos, self.sin)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, args.vocab), targets.view(-1))

    return Llama()


def make_stages(model, args):
    """The parts of the GPT that this rank has, in their order, each with its number: blocks in equal shares."""
    per_rank = 2 if args.schedule in ("interleaved", "zb-h1") else 1
    stages = args.pp * per_rank
    blocks = len(model.blocks)

    class Stage(nn.Module):
        def __init__(self, number):
            super().__init__()
            self.number = number
            self.blocks = nn.ModuleList(model.blocks[number * blocks // stages:(number + 1) * blocks // stages])
            if number == 0:
                self.wte, self.wpe = model.wte, model.wpe
            if number == stages - 1:
                self.ln_f = model.ln_f
                self.head = nn.Linear(args.width, args.vocab, bias=False)

        def forward(self, x):
            if self.number == 0:
                x = self.wte(x) + self.wpe.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln_f(x)) if self.number == stages - 1 else x

    return [Stage(args.rank + i * args.pp) for i in range(per_rank)], stages


def run_pipeline(args):
    import torch.distributed as dist
    from torch.distributed import pipelining

    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)
    parts, count = make_stages(make_gpt(args), args)
    model = nn.ModuleList(parts)
    stages = [pipelining.PipelineStage(part, part.number, count, torch.device("cpu")) for part in parts]
    loss = lambda logits, targets: F.cross_entropy(logits.view(-1, args.vocab), targets.view(-1))
    if len(stages) == 1:
        kind = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[args.schedule]
        schedule = kind(stages[0], args.micro_batches, loss_fn=loss)
    else:
        kind = {"interleaved": pipelining.ScheduleInterleaved1F1B, "zb-h1": pipelining.ScheduleInterleavedZeroBubble}[args.schedule]
        schedule = kind(stages, args.micro_batches, loss_fn=loss)
    x, y = (torch.from_numpy(part) for part in common.batch(args))
    y = y.long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    is_first, is_last = args.rank == 0, args.rank == args.pp - 1

    def step():
        losses = []
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            schedule.step(*([x] if is_first else []), **({"target": y, "losses": losses} if is_last else {}))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(sum(losses)) / max(1, len(losses))

    common.measure(args, step, {"parameters": sum(p.numel() for p in model.parameters()), "peer": "pytorch", "compiled": False,
                                "version": torch.__version__, "products": products()}, 1)
    dist.barrier()
    dist.destroy_process_group()


def make_resnet50():
    """torchvision's, version 1.5, in channels-last."""
    def conv(n_in, n_out, size, stride=1):
        return nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False)

    class Bottleneck(nn.Module):
        def __init__(self, n_in, width, stride):
            super().__init__()
            self.conv1, self.bn1 = conv(n_in, width, 1), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
            self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
            self.relu, self.downsample = nn.ReLU(inplace=True), None
            if stride != 1 or n_in != 4 * width:
                self.downsample = nn.Sequential(conv(n_in, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
            y += x if self.downsample is None else self.downsample(x)
            return self.relu(y)

    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    layers += [Bottleneck(*sizes) for sizes in common.resnet50_blocks()]
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return body.to(memory_format=torch.channels_last)


def make_classifier(args):
    if args.model == "mlp":
        sizes = common.mlp_sizes(args)
        layers = []
        for n_in, n_out in zip(sizes, sizes[1:]):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        body = nn.Sequential(*layers[:-1])
    elif args.model == "resnet50":
        body = make_resnet50()
    else:
        body = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
        body = body.to(memory_format=torch.channels_last)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, images, labels):
            return F.cross_entropy(self.body(images), labels)

    return Classifier()


def shard(model, mesh, args):
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    # Without a GPU there is nobody to lock pages for.
    policy = CPUOffloadPolicy(pin_memory=args.device == "cuda") if args.optimizer_on == "host" else OffloadPolicy()
    ways = {"mesh": mesh, "reshard_after_forward": args.zero == 3, "offload_policy": policy}
    for block in model.blocks:
        fully_shard(block, **ways)
    return fully_shard(model, **ways)


def make_optimizer(model, args):
    if args.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=0.01, fused=True)
    if args.zero == 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4, fused=True)
    if args.tp == 1 and args.zero == 0:
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    # The fused update takes parameters of one kind at a time: those that are cut, and those that are whole on each rank.
    from torch.distributed.tensor import DTensor

    kinds = [[p for p in model.parameters() if isinstance(p, DTensor) == cut] for cut in (True, False)]
    return torch.optim.AdamW([{"params": kind} for kind in kinds if kind], lr=1e-4, fused=True)


def distribute(model, args, world):
    from torch.distributed.device_mesh import init_device_mesh

    if args.tp > 1:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {name: ColwiseParallel() for name in ("q", "k", "v", "fc")} | {name: RowwiseParallel() for name in ("c_proj", "proj")}
        mesh = init_device_mesh("cpu", (world // args.tp, args.tp), mesh_dim_names=("dp", "tp"))
        for block in model.blocks:
            parallelize_module(block, mesh["tp"], plan)
        if world == args.tp:
            return model
        if args.zero < 2:
            sys.exit("--tp beside data parallel ranks goes with --zero 2 or 3 here")
        return shard(model, mesh["dp"], args)
    if args.zero >= 2:
        return shard(model, init_device_mesh("cpu", (world,)), args)
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=args.bucket_mb)


def onednn_product(a: torch.Tensor, b: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
    """a b^T + bias."""
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")


if ARGS.compile:  # which takes that op for constant weights alone, but calls one of another name as it is
    onednn_product = torch.library.custom_op("bench::onednn_product", onednn_product, mutates_args=())
    onednn_product.register_fake(lambda a, b, bias=None: a.new_empty(*a.shape[:-1], b.shape[0]))


class OneDnnLinear(torch.autograd.Function):
    """x w^T + bias, whose three products go through oneDNN: PyTorch itself sends only those in bf16 there on x86."""

    @staticmethod
    def forward(x, weight, bias):
        return onednn_product(x, weight, bias)

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(context, gradient):
        x, weight = context.saved_tensors
        rows = gradient.reshape(-1, gradient.shape[-1])
        by_x = onednn_product(gradient, weight.t()) if context.needs_input_grad[0] else None
        by_weight = onednn_product(rows.t(), x.reshape(-1, x.shape[-1]).t())
        return by_x, by_weight, rows.sum(0) if context.needs_input_grad[2] else None


def send_to_onednn(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.forward = functools.partial(lambda of, x: OneDnnLinear.apply(x, of.weight, of.bias), module)


def by_ipex(model, optimizer, args):
    import intel_extension_for_pytorch as ipex

    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    return ipex.optimize(model.train(), dtype=dtype, optimizer=optimizer, auto_kernel_selection=args.ipex_selects)


def version():
    if not ARGS.ipex:
        return torch.__version__
    from importlib import metadata

    return f"{metadata.version('intel-extension-for-pytorch')} with PyTorch {torch.__version__}"


def products():
    """What multiplies matrices here, and the widest vectors that PyTorch's own loops use."""
    blas = next((word.split("=")[1].upper() for word in torch.__config__.show().replace(",", " ").split() if word.startswith("BLAS_INFO=")), "?")
    linear = ", of linear layers by oneDNN" if ARGS.linear == "onednn" or ARGS.ipex_selects else ""
    return f"f32 by {blas}{linear}, bf16 by oneDNN, own loops {torch.backends.cpu.get_cpu_capability()}"


def run(args):
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    if args.pp > 1:
        return run_pipeline(args)
    model = {"gpt": make_gpt, "llama": make_llama}.get(args.model, make_classifier)(args)
    x, y = (torch.from_numpy(part) for part in common.batch(args))
    if x.dim() == 4:
        x = x.permute(0, 3, 1, 2)  # [b,c,h,w] in channels-last
    y = y.long()
    model, x, y = model.to(args.device), x.to(args.device), y.to(args.device)
    parameters = sum(p.numel() for p in model.parameters())
    if args.optimizer_on == "host" and (args.world == 1 or args.zero < 2):
        sys.exit("--optimizer-on host goes with several ranks and --zero 2 or 3 here")
    if args.linear == "onednn":
        if args.dtype != "f32" or args.tp > 1 or args.zero > 1:
            sys.exit("--linear onednn goes with f32 and whole weights")
        send_to_onednn(model)
    if args.world > 1:
        import torch.distributed as dist

        dist.init_process_group("gloo", rank=args.rank, world_size=args.world)
        model = distribute(model, args, args.world)
    optimizer = make_optimizer(model, args)
    if args.ipex:
        model, optimizer = by_ipex(model, optimizer, args)
    if args.compile:
        torch._inductor.config.cpp_wrapper = args.cpp_wrapper
        model = torch.compile(model, mode=args.compile_mode)

    def step():
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    common.measure(args, step, {"parameters": parameters, "peer": "pytorch", "compiled": args.compile,
                                "version": version(), "products": products()}, args.world // args.tp)
    if args.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    run(ARGS)
