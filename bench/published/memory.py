"""The most bytes that programs have allocated on a rank of a published run, by the profile of its system."""

import re

from .rows import Skipped, layer_parameters, padded_vocabulary, shape_of, system_of

CUBLAS_BYTES = 8 * 4096 * 1024  # a workspace by CUBLAS_WORKSPACE_CONFIG=:4096:8, and of Transformer Engine

# What the names of Megatron Core's tests say of options (their model_config.yaml):
# - a distributed optimizer of two instances, each of which has all of its state;
# - a loss compiled as one kernel, which makes the f32 values that it would write in place anew and copies them back (a comment in Megatron Core's
#   fused_cross_entropy.py);
# - weight gradients of the head that are put off, for at most two micro-batches, whose gradients of logits are kept (wgrad-deferral-limit).
INSTANCES = {"multi_dist_optimizer_instances": 2}
FUSED_LOSS_BYTES = {"cross_entropy_loss_fusion": 4}
PUT_OFF = {"defer_embedding_wgrad_compute": 2}


def option(row, of, usual):
    return next((value for name, value in of.items() if name in row["source"]), usual)


def layer_activations(system, shape):
    """Bytes that a layer keeps of a micro-batch (Korthikanti et al., 2022, table 2), less what keys and values of fewer heads save; without
    scores where attention keeps them on the chip (Dao, 2023) or they are computed again."""
    s, b, h, a, t = shape["seq"], shape["mbs"], shape["h"], shape["heads"], shape["TP"]
    if shape["recompute"] == "full":
        return 2 * s * b * h / (t if shape["sp"] else 1)
    scores = 5 * a * s / h if system.attention == "stored" and not shape["again_scores"] else 0
    fewer = 4 * (1 - shape["kv"] / shape["heads"])
    masks = 2 if system.dropout else 0  # of dropout, after attention and the feed-forward layer
    if shape["sp"]:
        return s * b * h / t * (32 + masks - fewer + scores)
    return s * b * h * (8 + masks + (24 - fewer + scores) / t)


def bytes_of_parameter(row, system):
    """Of every data parallel rank, and divided among them."""
    precision = "bf16" if "bf16" in row["prec"] else "fp16" if row["prec"] in ("", "fp16") else ""
    if precision in system.bytes:
        return system.bytes[precision]
    if len(system.bytes) == 1:
        return next(iter(system.bytes.values()))
    raise Skipped("no bytes per parameter for the precision")


def attention_of(row, system):
    if re.match(system.on_chip or "$", row["source"]):
        return system._replace(attention="flash-2")
    return system


def predicted_bytes(row):
    """Of the rank whose memory is told: parameters, activations of micro-batches in flight, and the more of what the loss and the recompute
    of one layer need."""
    shape = shape_of(row)
    system = attention_of(row, system_of(row))
    s, b, h, t, p, d, v = (shape[key] for key in ("seq", "mbs", "h", "TP", "PP", "DP", "V"))
    last = system.largest_rank == "last"
    vocabulary, layers = padded_vocabulary(shape), shape["L"] // p - shape["ends_as_layers"]
    parameters = layers * layer_parameters(shape) / t
    if p == 1 or last:  # the head's
        parameters += vocabulary * h / t
    if p == 1 and shape["untied"] or p > 1 and not last:  # the embedding's
        parameters += vocabulary * h / t
    if p == 1 or not last:  # of positions
        parameters += s * h
    everywhere, divided = bytes_of_parameter(row, system)
    kept = parameters * (everywhere + divided / (d / option(row, INSTANCES, 1) if shape["zero"] or system.shards else 1))
    if v > 1:  # in chunks of virtual stages (Narayanan et al., 2021, section 2.2)
        chunks = (v - 1) * p + 1 + (0 if last else 2 * (p - 1))
        in_flight = min(chunks, shape["m"] * v) * layers / v
    else:
        in_flight = layers * (1 if last else min(p, shape["m"]))
    again = layer_activations(system, {**shape, "recompute": "none"}) if shape["recompute"] == "full" else 0
    if system.shards:  # of weights of two layers, gathered
        again += 2 * 2 * layer_parameters(shape)
    loss = 0
    if p == 1 or last:  # logits, and the gradient of the head's weight before it is added; the last norm and the head's operand
        loss_bytes = system.loss_bytes + option(row, FUSED_LOSS_BYTES, 0)
        loss = loss_bytes * s * b * vocabulary / t + 2 * vocabulary * h / t + 4 * s * b * h / (t if shape["sp"] else 1)
        kept += min(option(row, PUT_OFF, 0), shape["m"]) * 2 * s * b * (vocabulary / t + h)
    embedding = s * b * h * min(p, shape["m"]) if not last or p == 1 else 0  # dropout's mask of the embedding
    return kept + in_flight * layer_activations(system, shape) + embedding + max(again, loss) + CUBLAS_BYTES
