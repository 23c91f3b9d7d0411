"""One training step in MindSpore on CPU, measured as `trireme bench step` measures ours: one line of JSON.

Written as its users would for speed: graph mode, nn.TrainOneStepCell, the AdamW of one op a parameter (nn.AdamWeightDecay,
which divides by no bias correction), attention written out, images in NCHW; its runtime on one thread, where it is quickest on
one core. `-n` starts that many processes by msrun, data parallel.
"""

import os
import subprocess
import sys
import tempfile

import common


def start_by_msrun(ranks):
    """msrun runs the first `python` of the path and keeps what each rank prints in a file."""
    programs = os.path.dirname(sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        line = [os.path.join(programs, "msrun"), f"--worker_num={ranks}", f"--local_worker_num={ranks}",
                f"--master_port={common.free_port()}", f"--log_dir={folder}", "--join=True"] + sys.argv
        done = subprocess.run(line, stdout=sys.stderr, env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"})
        texts = []
        for rank in range(ranks):
            with open(os.path.join(folder, f"worker_{rank}.log")) as file:
                texts.append(file.read())
        return texts, done.returncode


ARGS = common.begin(common.options(__doc__), start_by_msrun)
if ARGS.model in ("lenet", "resnet50"):  # with AVX-512, its oneDNN takes the reference loops for convolutions in NCHW
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore as ms
import numpy
from mindspore import nn, ops
from mindspore.common.initializer import HeNormal, Normal, initializer


def dense(n_in, n_out, **more):
    return nn.Dense(n_in, n_out, weight_init=Normal(0.02), bias_init="zeros", **more)


class Block(nn.Cell):
    def __init__(self, args):
        super().__init__()
        d = args.width
        self.heads, self.scale = args.heads, (d // args.heads) ** -0.5
        self.ln_1, self.ln_2 = nn.LayerNorm((d,), epsilon=1e-5), nn.LayerNorm((d,), epsilon=1e-5)
        self.c_attn, self.c_proj = dense(d, 3 * d), dense(d, d)
        self.fc, self.proj = dense(d, 4 * d), dense(4 * d, d)
        self.gelu = nn.GELU(approximate=True)
        self.softmax = nn.Softmax(-1)
        self.scores, self.mix = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def construct(self, x, mask):
        b, s, d = x.shape
        q, k, v = ops.transpose(self.c_attn(self.ln_1(x)).view(b, s, 3, self.heads, d // self.heads), (2, 0, 3, 1, 4))
        y = self.mix(self.softmax(self.scores(q * self.scale, k) + mask), v)
        x = x + self.c_proj(ops.transpose(y, (0, 2, 1, 3)).view(b, s, d))
        return x + self.proj(self.gelu(self.fc(self.ln_2(x))))


class Gpt(nn.Cell):
    def __init__(self, args):
        super().__init__()
        self.vocab = args.vocab
        self.wte = ms.Parameter(initializer(Normal(0.02), (args.vocab, args.width)), name="wte")
        self.wpe = ms.Parameter(initializer(Normal(0.02), (args.seq, args.width)), name="wpe")
        self.blocks = nn.CellList([Block(args) for _ in range(args.layers)])
        self.ln_f = nn.LayerNorm((args.width,), epsilon=1e-5)
        self.mask = ms.Tensor(numpy.triu(numpy.full((args.seq, args.seq), -1e9, numpy.float32), 1))
        self.head = ops.MatMul(transpose_b=True)
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, tokens, targets):
        x = ops.gather(self.wte, tokens, 0) + self.wpe
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(self.ln_f(x).view(-1, x.shape[-1]), self.wte)
        return self.loss(logits, targets.view(-1))


def conv(n_in, n_out, size, stride=1):
    return nn.Conv2d(n_in, n_out, size, stride, pad_mode="pad", padding=size // 2,
                     weight_init=HeNormal(mode="fan_out", nonlinearity="relu"))


class Bottleneck(nn.Cell):
    def __init__(self, n_in, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(n_in, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu, self.downsample = nn.ReLU(), None
        if stride != 1 or n_in != 4 * width:
            self.downsample = nn.SequentialCell(conv(n_in, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def construct(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Classifier(nn.Cell):
    def __init__(self, args):
        super().__init__()
        self.body = nn.SequentialCell(*layers_of(args))
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, images, labels):
        return self.loss(self.body(images), labels)


class MeanOverImage(nn.Cell):
    def construct(self, x):
        return x.mean((2, 3))


def layers_of(args):
    if args.model == "mlp":
        sizes = common.mlp_sizes(args)
        layers = []
        for pair in zip(sizes, sizes[1:]):
            layers += [nn.Dense(*pair), nn.ReLU()]
        return layers[:-1]
    if args.model == "lenet":
        return [nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2),
                nn.Conv2d(6, 16, 5, pad_mode="valid", has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2),
                nn.Flatten(), nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10)]
    return [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, pad_mode="pad", padding=1),
            *(Bottleneck(*sizes) for sizes in common.resnet50_blocks()), MeanOverImage(), nn.Dense(2048, 1000)]


def run(args):
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.device_context.cpu.op_tuning.threads_num(args.threads)
    ms.runtime.dispatch_threads_num(args.threads)
    if args.world > 1:
        ms.communication.init()
        ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    ms.set_seed(1)
    model = Gpt(args) if args.model == "gpt" else Classifier(args)
    x, y = common.batch(args)
    if x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    x, y = ms.Tensor(numpy.ascontiguousarray(x)), ms.Tensor(y)
    if args.optimizer == "sgd":
        optimizer = nn.Momentum(model.trainable_params(), learning_rate=1e-4, momentum=0.9, weight_decay=0.01)
    else:
        optimizer = nn.AdamWeightDecay(model.trainable_params(), learning_rate=1e-4, eps=1e-8, weight_decay=0.01)
    train_step = nn.TrainOneStepCell(model, optimizer)
    train_step.set_train()

    def step():
        return float(train_step(x, y).asnumpy())

    common.measure(args, step, {"parameters": sum(p.size for p in model.trainable_params()), "peer": "mindspore",
                                "version": ms.__version__, "products": "by oneDNN"})


if __name__ == "__main__":
    run(ARGS)
