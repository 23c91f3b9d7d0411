"""What the programs of the peers share: options, the batch, the ranks, the timing of the steps and the line of JSON."""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time

CLASSES = {"mlp": 10, "lenet": 10, "resnet50": 1000}


def options(doc):
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--model", choices=("gpt", "llama", "mlp", "lenet", "resnet50"), default="gpt")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2, help="key and value heads of llama")
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16, help="samples of one rank")
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--hidden", default="512,512", help="sizes of mlp's hidden layers")
    parser.add_argument("--image", type=int, default=224, help="height and width of resnet50's images")
    parser.add_argument("--optimizer", choices=("adamw", "sgd"), default="adamw")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-n", "--ranks", type=int, default=1)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="what layers compute in")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="always on; here so that all programs take the same line")
    return parser


def batch(args):
    """The same random batch for every peer: token and next token i32 [b,s], or image f32 [b,h,w,c] or [b,784] and label i32 [b]."""
    import numpy

    random = numpy.random.default_rng(1)
    if args.model in ("gpt", "llama"):
        return tuple(random.integers(args.vocab, size=(2, args.batch, args.seq), dtype=numpy.int32))
    shape = {"mlp": (784,), "lenet": (28, 28, 1), "resnet50": (args.image, args.image, 3)}[args.model]
    images = random.standard_normal((args.batch, *shape), dtype=numpy.float32)
    return images, random.integers(CLASSES[args.model], size=args.batch, dtype=numpy.int32)


def llama_mlp_width(args):
    """8/3 of the width, rounded up to a multiple of 64."""
    return (8 * args.width + 3 * 64 - 1) // (3 * 64) * 64


def mlp_sizes(args):
    return [784] + [int(size) for size in args.hidden.split(",")] + [10]


def resnet50_blocks():
    """(channels in, channels inside, stride) of the 16 bottlenecks of version 1.5; out come 4 times those inside."""
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            yield channels, 64 << stage, 2 if stage > 0 and i == 0 else 1
            channels = 256 << stage


def process_start():
    """When this process was started, in seconds of the clock that time.clock_gettime(CLOCK_BOOTTIME) reads."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_ranks(ranks):
    """Runs this program once a rank; what each printed, and the first failing exit code or 0."""
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    workers = [subprocess.Popen([sys.executable] + sys.argv, env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
               for rank in range(ranks)]
    texts = [worker.communicate()[0] for worker in workers]
    return texts, next((worker.returncode for worker in workers if worker.returncode), 0)


def join(texts):
    """One record of the ranks' records: rank 0's, with the longest times and the most memory of any; None if one is missing."""
    records = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith("{")]
    if len(records) < len(texts):
        return None
    worst = {key: max(record[key] for record in records) for key in ("ms", "first_step_s", "rss_mb")}
    return records[0] | worst | {"per_s": records[0]["per_s"] * records[0]["ms"] / worst["ms"]}


def begin(parser, start=start_ranks):
    """The options, with args.rank and args.world. Where -n asks for several ranks, starts them by `start(ranks)` and does not return.

    A rank that has printed its record is done: gloo's threads sometimes end such a process with an abort.
    """
    args = parser.parse_args()
    os.environ.setdefault("BENCH_START", str(process_start()))
    if args.ranks > 1 and not {"RANK", "RANK_ID"} & os.environ.keys():
        texts, code = start(args.ranks)
        record = join(texts)
        if record is None:
            sys.exit(code or 1)
        print(json.dumps(record))
        sys.exit(0)
    args.rank = int(os.environ.get("RANK", os.environ.get("RANK_ID", 0)))
    args.world = int(os.environ.get("WORLD_SIZE", os.environ.get("RANK_SIZE", 1)))
    cores = sorted(os.sched_getaffinity(0))
    if args.threads == 1 and 1 < args.world <= len(cores):  # each rank on a core of its own, where trireme's are too
        os.sched_setaffinity(0, [cores[args.rank]])
    return args


def measure(args, step, record, data_parallel=None):
    """Times `step()`, which takes one step to its end and returns the loss, and prints the rank's line of JSON."""
    first_step_s, ms, cpu_ms, losses = 0.0, [], [], []
    for i in range(args.warmup + args.steps):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        losses.append(step())
        end, cpu_end = time.perf_counter(), time.process_time()
        if i == 0:
            first_step_s = time.clock_gettime(time.CLOCK_BOOTTIME) - float(os.environ["BENCH_START"])
        if i >= args.warmup:
            ms.append((end - begin) * 1e3)
            cpu_ms.append((cpu_end - cpu_begin) * 1e3)
    ms.sort()
    median = ms[len(ms) // 2]
    units, unit = (args.batch * args.seq, "tokens") if args.model in ("gpt", "llama") else (args.batch, "samples")
    print(json.dumps({
        "model": args.model, "world": args.world, "threads": args.threads, "dtype": args.dtype, "batch": args.batch,
        "ms": median, "min_ms": ms[0], "min_cpu_ms": min(cpu_ms), "per_s": units * (data_parallel or args.world) / median * 1e3, "unit": unit,
        "first_step_s": first_step_s, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "first_loss": losses[0], "loss": losses[-1]} | record), flush=True)
