"""Rows of a table of published runs, as numbers."""

import re

from .devices import device_of
from .systems import system_of_source


class Skipped(Exception):
    """Why a row is not modelled."""


def number(row, key, default=None):
    text = row[key].strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text) if "." in text else int(text)
    if text == "" and default is not None:
        return default
    raise Skipped(f"the column {key} is '{text}'" if text else f"the column {key} is empty")


def system_of(row):
    found = system_of_source(row["source"])
    if not found:
        raise Skipped("no profile for the system")
    return found[0]


def source_of(row):
    return system_of_source(row["source"])[1]


def shape_of(row):
    """What the row says of model and cut."""
    if row["prec"] == "fp8":
        raise Skipped("computes in fp8")
    system = system_of(row)
    if "grpo" in row["source"]:
        raise Skipped("reinforcement learning, whose steps also generate text")
    out = {key: number(row, key) for key in ("n", "L", "h", "heads", "seq", "mbs", "GBS")}
    out["vocab"] = number(row, "vocab", system.vocabulary)
    out["kv"], out["ffn"] = number(row, "kv", out["heads"]), number(row, "ffn", 4 * out["h"])
    out["gated"] = "swiglu" in row["source"]
    out.update({key: number(row, key, 1) for key in ("TP", "PP", "CP", "EP")})
    if out["CP"] > 1 or out["EP"] > 1:
        raise Skipped("context or expert parallelism")
    out["DP"] = out["n"] // (out["TP"] * out["PP"])
    if out["DP"] * out["TP"] * out["PP"] != out["n"]:
        raise Skipped("the ranks do not divide into tp and pp")
    if out["GBS"] % (out["DP"] * out["mbs"]):
        raise Skipped("the batch does not divide into micro-batches")
    out["m"] = out["GBS"] // (out["DP"] * out["mbs"])
    virtual = row["VPP"].strip()
    if virtual.startswith("layers/vstage="):
        out["V"] = out["L"] // out["PP"] // int(virtual.split("=")[1])
    else:
        out["V"] = int(virtual) if virtual else 1
    # An embedding and a head that each take the place of a layer (BLOOM: Bekman, The Technology Behind BLOOM Training).
    out["ends_as_layers"] = system.ends_as_layers and out["V"] == 1 and out["L"] % out["PP"] != 0 and (out["L"] + 2) % out["PP"] == 0
    out["L"] += 2 * out["ends_as_layers"]
    if out["L"] % (out["PP"] * out["V"]) or "uneven" in row["source"]:
        raise Skipped("stages of unequal size")
    out["zero"] = 3 if row["zero"].startswith("3") else 1 if row["zero"].startswith(("distopt", "1")) else 0
    text = row["recompute"] or system.recompute
    out["recompute"] = "full" if text.startswith("full") else "none"
    out["again_scores"] = text.startswith("selective")
    out["sp"] = "SP" in text or "sequence_parallel" in row["source"] or system.sp and out["TP"] > 1
    if system.flat_bytes is not None:
        out["sums"] = "f32" if row["prec"].startswith("amp") else "bf16"
    out["untied"] = "untie" in row["source"] or "memory_speed" in row["source"]
    return out


def shape_to_time(row):
    """The shapes whose steps are modelled."""
    shape = shape_of(row)
    if device_of(row) is None:
        raise Skipped("no figures for the device")
    if shape["h"] < 1024 and "golden" in row["source"]:
        raise Skipped("too small: the step is mostly kernel launches and logging")
    if shape["kv"] != shape["heads"] or shape["ffn"] != 4 * shape["h"] or shape["gated"]:
        raise Skipped("attention heads or feed-forward layers unlike GPT-3's")
    return shape


def padded_vocabulary(shape):
    """As Megatron-LM pads it: to a multiple of 128 for each tensor parallel rank."""
    return -(-shape["vocab"] // (128 * shape["TP"])) * 128 * shape["TP"]


def layer_parameters(shape):
    head = shape["h"] // shape["heads"]
    attention = shape["h"] * (shape["h"] + 2 * shape["kv"] * head) + shape["h"] * shape["h"]
    return attention + (3 if shape["gated"] else 2) * shape["h"] * shape["ffn"] + 13 * shape["h"]
