"""Modelled steps of published runs: each is compiled for all of its ranks by `trireme simulate`, and what its system does otherwise
than Trireme is added by the profile."""

import math
import os
import re
import subprocess
import tempfile

from .devices import LAUNCH_S, NET_SHARE, NET_STEP_S, TILE, device_of
from .rows import Skipped, layer_parameters, padded_vocabulary, shape_to_time, system_of

# Bytes an element of the scores moves where they are stored in two bytes: forward (written; softmax reads and writes;
# dropout reads, writes and writes its mask; read by the product with the values), and backward; and without dropout.
SCORE_BYTES, SCORE_BYTES_NO_DROPOUT = (13, 19), (8, 14)
# What Trireme moves of an f32 parameter in a step (Adam, norm, cast to bf16), of a logit in its loss, and of a gradient between ranks.
# Its products add to the gradients of the micro-batches before, in no time of the model's: arithmetic bounds them. So what a system moves to add
# them comes on top.
OWN_UPDATE_BYTES, OWN_LOGIT_BYTES, OWN_SUM_BYTES = 28 + 4 + 6, 6, 4
# Of a gradient that is summed over ranks in every micro-batch: in bf16 it is cast first (4 read, 2 written); slices are added to those before (8, 4,
# or 4, 2).
OWN_FLAT_BYTES, OWN_ADD_BYTES = {"f32": 0, "bf16": 6}, {"f32": 12, "bf16": 6}
MOST_COMPILED = 288  # ranks of a job whose ways are compiled; above, tables of its parts choose
PRODUCTS = ("matmul", "linear_weight_grad*", "multi_linear", "multi_linear_input_grad", "multi_linear_weight_grad")  # ops


def attention_rates(device, system, shape):
    """Shares of the peak that attention's arithmetic, as Trireme counts it (the half that the mask leaves), reaches. Where scores are
    stored, products write or read them, and those whose result is as wide as a head are computed in tiles of 64 columns."""
    heads, size = shape["heads"] / shape["TP"], shape["h"] / shape["heads"]
    scores = shape["mbs"] * heads * shape["seq"] ** 2
    causal_flops, product_flops = 2 * scores * size, 2 * scores * size
    wide = -(-size // 64) * 64 / size
    forward, backward = 1 + wide, 1 + 3 * wide  # scores, values; and the gradients of scores, values, queries, keys
    moved_forward, moved_backward = SCORE_BYTES if system.dropout else SCORE_BYTES_NO_DROPOUT
    out = {}
    for op, flops, products, moved in (("attention_grad", 2.5, backward, moved_backward), ("attention", 1, forward, moved_forward)):
        if system.attention != "stored":
            out[op] = device.flash[system.attention][0 if op == "attention" else 1]
            continue
        if op == "attention_grad" and shape["again_scores"]:
            products, moved = products + forward, moved + moved_forward
        takes = products * product_flops / (device.flops * device.products) + scores * moved / (device.memory * device.streams)
        out[op] = flops * causal_flops / device.flops / takes
    return out


def sum_line(device, ranks):
    """The start and the rate of a sum over so many ranks of a host: those of the next larger number that was measured."""
    ranks = min(ranks, device.host_devices)
    return next(line for number, line in sorted(device.sums.items()) if number >= ranks)


def machine_text(device, system, shape, memory_bytes):
    """The machine's file for this row."""
    hosts = -(-shape["n"] // device.host_devices)
    ops = "".join(f'[[device.op]]\nops = "{op}"\nachievable = {share:.4f}\nlaunch_s = {LAUNCH_S}\n\n'
                  for op, share in attention_rates(device, system, shape).items())
    ops += "".join(f'[[device.op]]\nops = "{op}"\nachievable = {device.products:.4f}\nlaunch_s = {LAUNCH_S}\n'
                   f'tile_rows = {TILE[0]}\ntile_columns = {TILE[1]}\n\n' for op in PRODUCTS)
    ops += f'[[device.op]]\nops = "*"\nachievable = {device.streams}\nlaunch_s = {LAUNCH_S}\n\n'
    ranks = max(2, min(shape["TP"], device.host_devices))  # whose sums are the most
    start_s, rate = sum_line(device, ranks)
    latency_s = start_s / (2 * math.ceil(math.log2(ranks)))  # Trireme counts a logarithm of rounds
    levels = f'[[level]]\nname = "host"\ndevices = {device.host_devices}\nlatency_s = {latency_s:.3g}\nbytes_per_s = {rate:.0f}\n'
    if hosts > 1:
        levels += (f'\n[[level]]\nname = "net"\ndevices = {hosts * device.host_devices}\nlatency_s = {NET_STEP_S}\n'
                   f'bytes_per_s = {device.net_link * NET_SHARE:.0f}\n')
    return (f'name = "row"\nhosts = {hosts}\ndevices_per_host = {device.host_devices}\n\n[device]\n'
            f'units = {device.units}\nmemory_bytes = {int(memory_bytes)}\nmemory_bytes_per_s = {device.memory:.0f}\nachievable = {device.products:.4f}\n\n'
            f'[device.flops_per_s]\nbf16 = {device.flops:.0f}\nf32 = {device.flops / 16:.0f}\n\n{ops}{levels}')


def all_reduce_s(device, ranks, payload_bytes, ranks_of_host):
    """Of so many ranks, of which so many are in each host: a ring, of which hosts share their adapters; or a tree between two hosts, which
    sends the payload between them once (S. Jeaugey, NVIDIA/nccl-tests issue 196)."""
    if ranks < 2:
        return 0
    start_s, rate = sum_line(device, min(ranks, max(2, ranks_of_host)))
    sent = 2 * (ranks - 1) / ranks * payload_bytes
    if ranks <= ranks_of_host:
        return start_s + sent / rate
    between = payload_bytes if ranks == 2 * ranks_of_host else sent
    return start_s + max(sent / rate, between / (device.net_link * NET_SHARE * ranks_of_host))


def layer_extra_s(device, system, shape):
    """What a layer takes longer, of a micro-batch, on a rank."""
    tokens, t = shape["mbs"] * shape["seq"], shape["TP"]
    stream = device.memory * device.streams
    hidden_bytes = 2 * tokens * shape["h"]
    sum_s = all_reduce_s(device, t, hidden_bytes, device.host_devices)
    out = 0
    if shape["recompute"] == "full":
        # All of a layer is computed again, also what its backward pass does not read: the last product, its sum, bias, dropout and
        # residual (Chen et al., 2016, as PyTorch's checkpoint does it).
        flops = 2 * tokens * shape["h"] * shape["ffn"] / t
        moved = 7 if system.dropout else 6
        out += flops / (device.flops * device.products) + sum_s + moved / 2 * hidden_bytes / (t if shape["sp"] else 1) / stream
    if system.waits:
        out += 2 * sum_s
    if shape["sp"] and shape["mbs"] > 1:
        # Trireme's values begin with the samples, so that pieces of positions are packed; Megatron-LM's begin with the positions. Six of eight
        # gathers and scatters are waited for.
        out -= 6 * 2 * (t - 1) / t * hidden_bytes / device.memory
    if system.add_bytes is not None:
        out += system.add_bytes * layer_parameters(shape) / t / stream
    return out


def message_s(device, shape):
    """Of a micro-batch between stages, which is waited for: each tensor parallel rank sends its part, which they gather (Narayanan et al., 2021,
    section 4.1)."""
    part = 2 * shape["mbs"] * shape["seq"] * shape["h"] / shape["TP"]
    gathered = 0 if shape["sp"] else (shape["TP"] - 1) * part
    start_s, rate = sum_line(device, shape["TP"])
    return NET_STEP_S + part / (device.net_link * NET_SHARE) + (start_s / 2 + gathered / rate if gathered else 0)


def rank_parameters(shape):
    """Of a rank of the stage with the head, before slices."""
    return (shape["L"] / shape["PP"] * layer_parameters(shape) + padded_vocabulary(shape) * shape["h"]) / shape["TP"]


def slices_extra_s(device, system, shape):
    """What a step takes longer in all its micro-batches, of gradients that are summed over ranks in every one of them."""
    sums, m, ranks = shape["sums"], shape["m"], shape["DP"]
    each, added = system.slice_bytes[sums]
    moved = m * (system.flat_bytes[sums] - OWN_FLAT_BYTES[sums] + each / ranks) + (m - 1) * (added - OWN_ADD_BYTES[sums]) / ranks
    return moved * rank_parameters(shape) / (device.memory * device.streams)


def step_extra_s(device, system, shape):
    """What a step takes longer, once."""
    stream = device.memory * device.streams
    parameters = rank_parameters(shape)
    divided = shape["DP"] if shape["zero"] else 1
    out = 0
    if system.update_bytes is not None:
        out += (system.update_bytes - OWN_UPDATE_BYTES) * parameters / divided / stream
    if shape["zero"] == 0:
        in_host = min(shape["DP"], max(1, device.host_devices // shape["TP"]))
        out += (system.sum_bytes / OWN_SUM_BYTES - 1) * all_reduce_s(device, shape["DP"], OWN_SUM_BYTES * parameters, in_host)
    return out


def extra_s(device, system, shape):
    """What the system takes longer than Trireme would: of each micro-batch on a stage, and as often again while the pipeline fills and
    drains."""
    m, p, v = shape["m"], shape["PP"], shape["V"]
    stage_s = shape["L"] / p * layer_extra_s(device, system, shape)
    if p > 1 and system.late_sums:
        stage_s += 2 * v * message_s(device, shape)
    out = (m + (p - 1) / v) * stage_s + step_extra_s(device, system, shape)
    if system.flat_bytes is not None:
        out += slices_extra_s(device, system, shape)
    if system.logit_bytes is not None:
        logits = shape["mbs"] * shape["seq"] * padded_vocabulary(shape) / shape["TP"]
        out += m * (system.logit_bytes - OWN_LOGIT_BYTES) * logits / (device.memory * device.streams)
    return out


def model_flags(system, shape):
    vocabulary = 128 * shape["TP"] if shape["ends_as_layers"] else -(-shape["vocab"] // 128) * 128  # they are counted as layers
    out = []
    for key, value in (("layers", shape["L"]), ("width", shape["h"]), ("heads", shape["heads"]), ("vocabulary", vocabulary),
                       ("dropout", system.dropout)):
        out += ["--set", f"model.{key}={value}"]
    return out + ["--set", f"data.seq={shape['seq']}"]


def sums_flags(system, shape, zero):
    """How Trireme sums gradients over ranks as the system does."""
    out = ["--set", "parallel.gradient_fp32_sync=false"] if shape.get("sums") == "bf16" else []
    if system.late_sums and zero == 0:
        out += ["--set", "parallel.all_reduce_fusion=size", "--set", "parallel.all_reduce_fusion_mb=1000000"]
    return out


def simulated_s(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    found = re.search(r"modelled step of \d+ ranks?: ([0-9.]+) (\w+)", done.stdout)
    if not found:
        raise Skipped((done.stderr.strip().splitlines() or ["no answer"])[-1][:120])
    return float(found[1]) * {"ms": 1e-3, "s": 1, "us": 1e-6}[found[2]]


def simulate_command(program, machine, system, shape):
    return [program, "simulate", "gpt2", "-n", str(shape["n"]), "--machine", machine, "--dtype", "bf16", "--steps", "1"] + model_flags(system, shape)


def modelled_s(program, machine, system, shape, m):
    command = simulate_command(program, machine, system, shape)
    command += ["--batch", str(shape["DP"] * shape["mbs"] * m), "--micro-batches", str(m), "--recompute", shape["recompute"],
                "--tp", str(shape["TP"]), "--zero", str(shape["zero"])]
    if shape["TP"] > 1:
        command += ["--vocab-parallel"] + (["--sp"] if shape["sp"] else [])
    if shape["PP"] > 1:
        command += ["--pp", str(shape["PP"])]
        if shape["V"] > 1:
            command += ["--schedule", "interleaved", "--virtual-stages", str(shape["V"])]
    return simulated_s(command + sums_flags(system, shape, shape["zero"]))


def line_through(modelled, few, more, m):
    """Of `modelled` steps of few and more micro-batches the one of m."""
    if m <= more:
        return modelled(m)
    first, second = modelled(few), modelled(more)
    return second + (m - more) * (second - first) / (more - few)


def few_and_more(pp):
    return (2, 4) if pp == 1 else (pp, 2 * pp)


def predicted_s(program, row):
    """Of the published configuration. Many micro-batches are a line of which two points are compiled: all of a pipeline's ranks are busy in
    between. A row that trained fits its devices, whatever Trireme would keep: only its time is asked for."""
    shape, system, device = shape_to_time(row), system_of(row), device_of(row)
    with tempfile.TemporaryDirectory() as folder:
        machine = os.path.join(folder, "machine.toml")
        with open(machine, "w", encoding="ascii") as file:
            file.write(machine_text(device, system, shape, 1e15))
        few, more = few_and_more(shape["PP"])
        return line_through(lambda m: modelled_s(program, machine, system, shape, m), few, more, shape["m"])


def planned_s(program, row):
    """Our plan for the row's model, ranks and batch, in the memory of its devices: its step, modelled as the published one's is, and its
    keys. Only how the model is cut differs."""
    shape, system, device = shape_to_time(row), system_of(row), device_of(row)
    with tempfile.TemporaryDirectory() as folder:
        machine, plan = os.path.join(folder, "machine.toml"), os.path.join(folder, "plan.trp")
        with open(machine, "w", encoding="ascii") as file:
            file.write(machine_text(device, system, shape, device.bytes))
        command = [program, "plan", "gpt2", "-n", str(shape["n"]), "--machine", machine, "--set", "train.dtype=bf16", "--search", "exact",
                   "--batch", str(shape["GBS"]), "--out", plan] + model_flags(system, shape)
        # The ways that are shown are compiled, and the fastest in virtual time is the plan: always up to 32 ranks.
        if shape["n"] <= MOST_COMPILED:
            command += ["--compile", "--top", "16" if shape["n"] <= 32 else "5"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode == 1 and "no way of cutting it fits" in done.stdout:
            raise Skipped("no way fits with Trireme's bytes")
        if done.returncode != 0:
            raise Skipped((done.stderr.strip().splitlines() or ["no answer"])[-1][:120])
        with open(plan, encoding="utf-8") as file:
            keys = dict(line[4:].rstrip("\n").split("=", 1) for line in file if line.startswith("set "))
        m = int(keys.pop("parallel.gradient_accumulation_steps"))
        command = simulate_command(program, machine, system, shape) + sums_flags(system, shape, int(keys["parallel.zero"]))
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        rows = shape["GBS"] // m  # of all replicas, in a micro-batch

        def modelled(some):
            return simulated_s(command + ["--batch", str(rows * some), "--set", f"parallel.gradient_accumulation_steps={some}"])

        pp = int(keys["parallel.pp"])
        few, more = (2, 4) if pp == 1 else (2 * pp, 3 * pp)
        return {"step_s": line_through(modelled, few, more, m), "keys": {**keys, "micro_batches": str(m)}}
