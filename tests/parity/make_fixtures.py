"""Writes the reference figures that pytorch_test.cpp compares with: fixtures/{gpt,llama,t5,bert,mlp,lenet,resnet}.safetensors
and fixtures/{gpt,llama,resnet}_bf16.safetensors, or those of the models that are named as arguments.

Each model trains 20 steps of AdamW (the ResNet of SGD) in PyTorch on the CPU twice, in f32 and in f64, from the same starting weights and
on the same batches. README.md says how to run this and what a file holds. Parameters are held under Trireme's names
and in its layouts (convolutions [out,h,w,in], images [b,h,w,c]), so that weights and gradients are stored as they are.
"""

import json
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS = 20
GPT = {"vocabulary": 65, "context": 16, "layers": 2, "width": 32, "heads": 4, "batch": 8}
LLAMA = {"vocabulary": 65, "context": 16, "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 88, "batch": 8,
         "rope_theta": 10000.0, "norm_eps": 1e-5}
T5 = {"vocabulary": 65, "source": 14, "context": 10, "layers": 2, "width": 32, "heads": 4, "head_size": 6, "hidden": 48,
      "batch": 8, "distance_classes": 8, "most_distance": 20}
BERT = {"vocabulary": 65, "context": 12, "layers": 2, "width": 32, "heads": 4, "hidden": 48, "classes": 3, "batch": 8}
MLP = {"sizes": [64, 48, 48, 10], "batch": 16}
LENET = {"classes": 10, "batch": 8}
RESNET = {"blocks": [2, 1], "stem": 8, "image": 32, "channels": 3, "classes": 10, "batch": 8}
ADAMW = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
OPTIONS = {
    "gpt": ADAMW | {"lr": 2e-3, "clip_norm": 1.0},
    "llama": ADAMW | {"lr": 2e-3, "clip_norm": 1.0},
    "t5": ADAMW | {"lr": 5e-3, "clip_norm": 1.0},
    "bert": ADAMW | {"lr": 5e-3, "clip_norm": 1.0},
    "mlp": ADAMW | {"lr": 4e-3, "clip_norm": 0.0},
    "lenet": ADAMW | {"lr": 2e-3, "clip_norm": 0.0},
    "resnet": {"momentum": 0.9, "weight_decay": 1e-4, "lr": 1e-2, "clip_norm": 0.0},
}


IN_BF16 = ("gpt", "llama", "resnet")


def cross_entropy(logits, targets):
    """In f32 where the model computes in bf16."""
    return F.cross_entropy(logits.float() if logits.dtype == torch.bfloat16 else logits, targets)


def in_bf16(name, value):
    """What a layer reads of an f32 parameter: batch norms take theirs in f32."""
    return value if ".bn" in name or name.startswith("bn") or ".downsample.1" in name else value.to(torch.bfloat16)


def gpt_parameters(rng):
    d, std = GPT["width"], 0.02
    out = {"wte.weight": rng.normal(0, std, (GPT["vocabulary"], d)), "wpe.weight": rng.normal(0, std, (GPT["context"], d))}

    def norm(name):  # not ones and zeroes: a norm that ignores its weights must be seen
        out[name + ".weight"] = 1 + rng.normal(0, 0.1, d)
        out[name + ".bias"] = rng.normal(0, 0.1, d)

    def conv1d(name, n_in, n_out, scale=1.0):
        out[name + ".weight"] = rng.normal(0, 5 * std * scale, (n_in, n_out))
        out[name + ".bias"] = rng.normal(0, std, n_out)

    residual = 1 / math.sqrt(2 * GPT["layers"])
    for i in range(GPT["layers"]):
        norm(f"h.{i}.ln_1")
        conv1d(f"h.{i}.attn.c_attn", d, 3 * d)
        conv1d(f"h.{i}.attn.c_proj", d, d, residual)
        norm(f"h.{i}.ln_2")
        conv1d(f"h.{i}.mlp.c_fc", d, 4 * d)
        conv1d(f"h.{i}.mlp.c_proj", 4 * d, d, residual)
    norm("ln_f")
    return out


def gpt_loss(p, tokens, targets):
    b, s = tokens.shape
    d, heads = GPT["width"], GPT["heads"]
    x = p["wte.weight"][tokens] + p["wpe.weight"][torch.arange(s)]

    def norm(name, x):
        return F.layer_norm(x, (d,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def conv1d(name, x):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    future = torch.ones(s, s, dtype=torch.bool).triu(1)
    for i in range(GPT["layers"]):
        qkv = conv1d(f"h.{i}.attn.c_attn", norm(f"h.{i}.ln_1", x))
        q, k, v = (part.view(b, s, heads, d // heads).transpose(1, 2) for part in qkv.split(d, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // heads)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + conv1d(f"h.{i}.attn.c_proj", mixed.transpose(1, 2).reshape(b, s, d))
        hidden = F.gelu(conv1d(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", x)), approximate="tanh")
        x = x + conv1d(f"h.{i}.mlp.c_proj", hidden)
    logits = norm("ln_f", x) @ p["wte.weight"].T
    return cross_entropy(logits.reshape(b * s, -1), targets.reshape(-1).long())


def llama_parameters(rng):
    d, head = LLAMA["width"], LLAMA["width"] // LLAMA["heads"]
    out = {"model.embed_tokens.weight": rng.normal(0, 0.02, (LLAMA["vocabulary"], d))}

    def norm(name):
        out[name + ".weight"] = 1 + rng.normal(0, 0.1, d)

    def linear(name, n_in, n_out, std=0.1):
        out[name + ".weight"] = rng.normal(0, std, (n_out, n_in))

    residual = 1 / math.sqrt(2 * LLAMA["layers"])
    for i in range(LLAMA["layers"]):
        layer = f"model.layers.{i}."
        norm(layer + "input_layernorm")
        linear(layer + "self_attn.q_proj", d, d)
        linear(layer + "self_attn.k_proj", d, LLAMA["kv_heads"] * head)
        linear(layer + "self_attn.v_proj", d, LLAMA["kv_heads"] * head)
        linear(layer + "self_attn.o_proj", d, d, 0.1 * residual)
        norm(layer + "post_attention_layernorm")
        linear(layer + "mlp.gate_proj", d, LLAMA["hidden"])
        linear(layer + "mlp.up_proj", d, LLAMA["hidden"])
        linear(layer + "mlp.down_proj", LLAMA["hidden"], d, 0.1 * residual)
    norm("model.norm")
    linear("lm_head", d, LLAMA["vocabulary"], 0.02)
    return out


def llama_loss(p, tokens, targets):
    b, s = tokens.shape
    d, heads, kv_heads = LLAMA["width"], LLAMA["heads"], LLAMA["kv_heads"]
    head = d // heads
    x = p["model.embed_tokens.weight"][tokens]
    frequency = LLAMA["rope_theta"] ** (-torch.arange(0, head, 2, dtype=x.dtype) / head)
    angle = torch.arange(s, dtype=x.dtype)[:, None] * frequency
    cos, sin = (torch.cat([f(angle), f(angle)], -1) for f in (torch.cos, torch.sin))  # [s,head]

    def norm(name, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + LLAMA["norm_eps"]) * p[name + ".weight"]

    def linear(name, x):
        return x @ p[name + ".weight"].T

    def by_head(x, n):
        return x.view(b, s, n, head).transpose(1, 2)

    def turned(x):
        half = torch.cat([-x[..., head // 2:], x[..., :head // 2]], -1)
        return x * cos + half * sin

    future = torch.ones(s, s, dtype=torch.bool).triu(1)
    for i in range(LLAMA["layers"]):
        layer = f"model.layers.{i}."
        h = norm(layer + "input_layernorm", x)
        q = turned(by_head(linear(layer + "self_attn.q_proj", h), heads))
        k = turned(by_head(linear(layer + "self_attn.k_proj", h), kv_heads))
        v = by_head(linear(layer + "self_attn.v_proj", h), kv_heads)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(head)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + linear(layer + "self_attn.o_proj", mixed.transpose(1, 2).reshape(b, s, d))
        h = norm(layer + "post_attention_layernorm", x)
        x = x + linear(layer + "mlp.down_proj", F.silu(linear(layer + "mlp.gate_proj", h)) * linear(layer + "mlp.up_proj", h))
    logits = linear("lm_head", norm("model.norm", x))
    return cross_entropy(logits.reshape(b * s, -1), targets.reshape(-1).long())


def text_batches(rng, sizes):
    """Text of a random order-1 grammar, so that there is something to learn."""
    vocabulary, batch, length = sizes["vocabulary"], sizes["batch"], sizes["context"] + 1
    after = rng.integers(0, vocabulary, (vocabulary, 3))
    text = np.zeros((STEPS, batch, length), np.int32)
    text[:, :, 0] = rng.integers(0, vocabulary, (STEPS, batch))
    for t in range(1, length):
        text[:, :, t] = after[text[:, :, t - 1], rng.integers(0, 3, (STEPS, batch))]
    return {"tokens": text[:, :, :-1].copy(), "targets": text[:, :, 1:].copy()}


def hugging_faces_t5():
    """Of version 1.1, with the head of version 1.0. Without weights: they are given at each call."""
    from transformers import T5Config, T5ForConditionalGeneration
    return T5ForConditionalGeneration(T5Config(
        vocab_size=T5["vocabulary"], d_model=T5["width"], d_kv=T5["head_size"], d_ff=T5["hidden"], num_layers=T5["layers"],
        num_heads=T5["heads"], relative_attention_num_buckets=T5["distance_classes"],
        relative_attention_max_distance=T5["most_distance"], dropout_rate=0.0, feed_forward_proj="gated-gelu",
        tie_word_embeddings=True))


def t5_parameters(rng):
    out = {}
    for name, value in hugging_faces_t5().named_parameters():
        shape = tuple(value.shape)
        norm = len(shape) == 1
        # Wide enough for distances and far positions to count.
        std = 1.0 if "relative" in name else 0.3 if name == "shared.weight" else 0.15
        out[name] = 1 + rng.normal(0, 0.1, shape) if norm else rng.normal(0, std, shape)
    return out


def t5_loss(p, tokens, decoder_tokens, targets):
    model = hugging_faces_t5().to(next(iter(p.values())).dtype)
    call = {"input_ids": tokens.long(), "decoder_input_ids": decoder_tokens.long(), "use_cache": False}
    tied = {"encoder.embed_tokens.weight": p["shared.weight"], "decoder.embed_tokens.weight": p["shared.weight"],
            "lm_head.weight": p["shared.weight"]}
    logits = torch.func.functional_call(model, p | tied, (), call, tie_weights=False).logits
    return cross_entropy(logits.reshape(-1, T5["vocabulary"]), targets.reshape(-1).long())


def t5_batches(rng):
    """A text, of which some tokens are given and the following ones are told."""
    text = text_batches(rng, T5)
    source = rng.integers(0, T5["vocabulary"], (STEPS, T5["batch"], T5["source"])).astype(np.int32)
    source[:, :, 1::2] = text["tokens"][:, :, : T5["source"] // 2]
    return {"tokens": source, "decoder_tokens": text["tokens"], "targets": text["targets"]}


def hugging_faces_bert():
    """For pairs of texts. Without weights: they are given at each call."""
    from transformers import BertConfig, BertForSequenceClassification
    return BertForSequenceClassification(BertConfig(
        vocab_size=BERT["vocabulary"], hidden_size=BERT["width"], num_hidden_layers=BERT["layers"],
        num_attention_heads=BERT["heads"], intermediate_size=BERT["hidden"], max_position_embeddings=BERT["context"],
        num_labels=BERT["classes"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        pad_token_id=BERT["vocabulary"] - 1, attn_implementation="eager"))


def bert_parameters(rng):
    out = {}
    for name, value in hugging_faces_bert().named_parameters():
        shape = tuple(value.shape)
        norm = name.endswith("LayerNorm.weight")
        out[name] = 1 + rng.normal(0, 0.1, shape) if norm else rng.normal(0, 0.15, shape)
    return out


def bert_loss(p, tokens, segments, mask, label):
    model = hugging_faces_bert().to(next(iter(p.values())).dtype)
    call = {"input_ids": tokens.long(), "token_type_ids": segments.long(), "attention_mask": mask.long()}
    return cross_entropy(torch.func.functional_call(model, p, (), call).logits, label.long())


def bert_batches(rng):
    """Two texts of any lengths, whose class is that of the first token."""
    shape = (STEPS, BERT["batch"], BERT["context"])
    tokens = rng.integers(0, BERT["vocabulary"] - 1, shape).astype(np.int32)
    second = rng.integers(2, BERT["context"] - 3, shape[:2])
    end = second + rng.integers(2, BERT["context"] + 1 - second)
    places = np.arange(BERT["context"])
    mask = (places < end[..., None]).astype(np.int32)
    tokens[mask == 0] = BERT["vocabulary"] - 1
    segments = ((places >= second[..., None]) & (mask == 1)).astype(np.int32)
    label = (tokens[..., 0] * BERT["classes"] // BERT["vocabulary"]).astype(np.int32)
    tokens[..., 0] = label  # the same token for a class
    return {"tokens": tokens, "segments": segments, "mask": mask, "label": label}


def linear_parameters(rng, out, name, n_in, n_out):
    bound = 1 / math.sqrt(n_in)
    out[name + ".weight"] = rng.uniform(-bound, bound, (n_out, n_in))
    out[name + ".bias"] = rng.uniform(-bound, bound, n_out)


def mlp_parameters(rng):
    out = {}
    for i, (n_in, n_out) in enumerate(zip(MLP["sizes"], MLP["sizes"][1:])):
        linear_parameters(rng, out, f"layers.{i}", n_in, n_out)
    return out


def mlp_loss(p, images, labels):
    x = images
    for i in range(len(MLP["sizes"]) - 1):
        x = F.linear(x, p[f"layers.{i}.weight"], p[f"layers.{i}.bias"])
        if i + 2 < len(MLP["sizes"]):
            x = F.relu(x)
    return cross_entropy(x, labels.long())


def lenet_parameters(rng):
    out = {}
    for name, n_in, n_out in (("conv1", 1, 6), ("conv2", 6, 16)):
        bound = 1 / math.sqrt(n_in * 25)
        out[name + ".weight"] = rng.uniform(-bound, bound, (n_out, 5, 5, n_in))
        out[name + ".bias"] = rng.uniform(-bound, bound, n_out)
    for name, n_in, n_out in (("fc1", 400, 120), ("fc2", 120, 84), ("fc3", 84, LENET["classes"])):
        linear_parameters(rng, out, name, n_in, n_out)
    return out


def lenet_loss(p, images, labels):
    def conv(name, x, padding):
        return F.conv2d(x, p[name + ".weight"].permute(0, 3, 1, 2), p[name + ".bias"], padding=padding)

    x = images.permute(0, 3, 1, 2)
    x = F.max_pool2d(F.relu(conv("conv1", x, 2)), 2)
    x = F.max_pool2d(F.relu(conv("conv2", x, 0)), 2)
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = F.relu(F.linear(x, p["fc1.weight"], p["fc1.bias"]))
    x = F.relu(F.linear(x, p["fc2.weight"], p["fc2.bias"]))
    return cross_entropy(F.linear(x, p["fc3.weight"], p["fc3.bias"]), labels.long())


def resnet_blocks():
    """Of each block: its name, channels in, inner channels and stride."""
    channels = RESNET["stem"]
    for stage, blocks in enumerate(RESNET["blocks"]):
        width = RESNET["stem"] << stage
        for i in range(blocks):
            yield f"layer{stage + 1}.{i}", channels, width, 2 if stage > 0 and i == 0 else 1
            channels = 4 * width


def resnet_parameters(rng):
    out = {}

    def conv(name, n_in, n_out, size):
        out[name + ".weight"] = rng.normal(0, math.sqrt(2 / (n_out * size * size)), (n_out, size, size, n_in))

    def norm(name, width):  # not ones and zeroes: a norm that ignores its weights must be seen
        out[name + ".weight"] = 1 + rng.normal(0, 0.1, width)
        out[name + ".bias"] = rng.normal(0, 0.1, width)

    conv("conv1", RESNET["channels"], RESNET["stem"], 7)
    norm("bn1", RESNET["stem"])
    for block, n_in, width, stride in resnet_blocks():
        for i, (a, b, size) in enumerate(((n_in, width, 1), (width, width, 3), (width, 4 * width, 1)), 1):
            conv(f"{block}.conv{i}", a, b, size)
            norm(f"{block}.bn{i}", b)
        if stride != 1 or n_in != 4 * width:
            conv(f"{block}.downsample.0", n_in, 4 * width, 1)
            norm(f"{block}.downsample.1", 4 * width)
    linear_parameters(rng, out, "fc", 4 * RESNET["stem"] << (len(RESNET["blocks"]) - 1), RESNET["classes"])
    return out


def resnet_buffers(parameters):
    out = {}
    for name, value in parameters.items():
        if name.endswith(".bias") and name != "fc.bias":
            out[name.replace(".bias", ".running_mean")] = np.zeros_like(value)
            out[name.replace(".bias", ".running_var")] = np.ones_like(value)
    return out


def resnet_loss(p, images, labels):
    def conv(name, x, stride=1):
        weight = p[name + ".weight"].permute(0, 3, 1, 2)
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[2] // 2)

    def norm(name, x):
        return F.batch_norm(x, p[name + ".running_mean"], p[name + ".running_var"], p[name + ".weight"], p[name + ".bias"],
                            training=True, momentum=0.1, eps=1e-5)

    x = F.relu(norm("bn1", conv("conv1", images.permute(0, 3, 1, 2), 2)))
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    for block, _, _, stride in resnet_blocks():
        h = F.relu(norm(block + ".bn1", conv(block + ".conv1", x)))
        h = F.relu(norm(block + ".bn2", conv(block + ".conv2", h, stride)))
        h = norm(block + ".bn3", conv(block + ".conv3", h))
        if block + ".downsample.0.weight" in p:
            x = norm(block + ".downsample.1", conv(block + ".downsample.0", x, stride))
        x = F.relu(h + x)
    return cross_entropy(F.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"]), labels.long())


def image_batches(rng, shape, batch, classes):
    """Bytes: each class has a pattern of black and white, and a sample is its pattern with noise over it."""
    patterns = rng.integers(0, 2, (classes, *shape)) * 175
    if len(shape) == 3:  # squares of 4 x 4 pixels, which survive the pooling
        patterns = patterns[:, ::4, ::4].repeat(4, 1).repeat(4, 2)
    labels = rng.integers(0, classes, (STEPS, batch))
    images = patterns[labels] + rng.integers(0, 81, (STEPS, batch, *shape))
    return {"images": images.astype(np.uint8), "labels": labels.astype(np.int32)}


def train(dtype, loss_fn, initial, buffers, batches, options, narrow=False):
    """The loss of every step, every gradient of the first one, before it is clipped, and the buffers after the last. With
    `narrow` the model computes in bf16, and parameters, loss and optimizer stay in `dtype`."""
    params = {name: torch.tensor(value).to(dtype).requires_grad_() for name, value in initial.items()}
    state = {name: torch.tensor(value).to(dtype) for name, value in buffers.items()}
    if "momentum" in options:
        optimizer = torch.optim.SGD(params.values(), lr=options["lr"], momentum=options["momentum"],
                                    weight_decay=options["weight_decay"], foreach=False)
    else:
        optimizer = torch.optim.AdamW(params.values(), lr=options["lr"], betas=(options["beta1"], options["beta2"]),
                                      eps=options["eps"], weight_decay=options["weight_decay"], foreach=False)
    losses, grads = [], {}
    for step in range(STEPS):
        fields = [torch.tensor(batch[step]) for batch in batches.values()]
        if fields[0].dtype == torch.uint8:  # pixels are f32 numbers, also in the run in f64
            fields[0] = (fields[0].to(torch.float32) / 255).to(dtype)
        optimizer.zero_grad()
        weights = params
        if narrow:
            weights = {name: in_bf16(name, p) for name, p in params.items()}
            fields = [field.to(torch.bfloat16) if field.is_floating_point() else field for field in fields]
        loss = loss_fn(weights | state, *fields)
        loss.backward()
        if step == 0:
            grads = {name: p.grad.detach().numpy().copy() for name, p in params.items()}
        if options["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(params.values(), options["clip_norm"])
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses, np.float64), grads, {name: value.numpy() for name, value in state.items()}


def write_safetensors(path, tensors, metadata):
    codes = {"float32": "F32", "float64": "F64", "uint8": "U8", "int32": "I32", "uint16": "BF16"}
    header, data = {"__metadata__": metadata}, b""
    for name, value in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": codes[str(value.dtype)], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def make(name, seed, parameters, loss_fn, batches_of, sizes, buffers_of=lambda parameters: {}):
    rng = np.random.default_rng(seed)
    initial = {key: value.astype(np.float32) for key, value in parameters(rng).items()}
    batches = batches_of(rng)
    options = OPTIONS[name]
    buffers = buffers_of(initial)
    loss_f32, grads_f32, _ = train(torch.float32, loss_fn, initial, buffers, batches, options)
    loss_f64, grads_f64, last = train(torch.float64, loss_fn, initial, buffers, batches, options)
    tensors = dict(batches) | {"loss.f32": loss_f32, "loss.f64": loss_f64}
    tensors |= {"last." + key: value for key, value in last.items()}
    worst = 0.0
    without = 0  # gradients that are zero but for rounding, as a key's bias in attention has
    for key in initial:
        tensors["init." + key] = initial[key]
        if np.abs(grads_f64[key]).max() < 1e-12:
            without += 1
            continue
        tensors["grad.f32." + key] = grads_f32[key]
        tensors["grad.f64." + key] = grads_f64[key]
        worst = max(worst, np.abs(grads_f32[key] - grads_f64[key]).max() / np.abs(grads_f64[key]).max())
    # A ReLU or a maximum that falls otherwise in f32 would make the two gradients different functions.
    assert worst < 1e-4, f"{name}: a gradient in f32 is {worst} off; take another seed"
    assert loss_f64[-1] < 0.95 * loss_f64[0], f"{name} does not learn: {loss_f64}"
    metadata = {key: str(value) for key, value in (sizes | options).items()}
    metadata |= {"steps": str(STEPS), "without_gradient": str(without), "torch": torch.__version__}
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, name + ".safetensors"), tensors, metadata)
    apart = np.abs(loss_f32 / loss_f64 - 1).max()
    if name in IN_BF16:
        loss_bf16, grads_bf16, _ = train(torch.float32, loss_fn, initial, buffers, batches, options, narrow=True)
        rounded = {"grad.bf16." + key: torch.tensor(value).to(torch.bfloat16).view(torch.uint16).numpy()
                   for key, value in grads_bf16.items()}
        write_safetensors(os.path.join(folder, name + "_bf16.safetensors"), rounded | {"loss.bf16": loss_bf16},
                          {"steps": str(STEPS), "torch": torch.__version__})
    print(f"{name}: loss {loss_f64[0]:.4f} -> {loss_f64[-1]:.4f}; f32 to f64: loss {apart:.1e}, gradients {worst:.1e}")


def main(names):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sizes = MLP | {"sizes": ",".join(str(size) for size in MLP["sizes"])}
    models = {
        "gpt": (1, gpt_parameters, gpt_loss, lambda rng: text_batches(rng, GPT), GPT),
        "mlp": (2, mlp_parameters, mlp_loss,
                lambda rng: image_batches(rng, (MLP["sizes"][0],), MLP["batch"], MLP["sizes"][-1]), sizes),
        "lenet": (3, lenet_parameters, lenet_loss,
                  lambda rng: image_batches(rng, (28, 28, 1), LENET["batch"], LENET["classes"]), LENET),
        "llama": (4, llama_parameters, llama_loss, lambda rng: text_batches(rng, LLAMA), LLAMA),
        "t5": (6, t5_parameters, t5_loss, t5_batches, T5),
        "bert": (7, bert_parameters, bert_loss, bert_batches, BERT),
        "resnet": (5, resnet_parameters, resnet_loss,
                   lambda rng: image_batches(rng, (RESNET["image"], RESNET["image"], RESNET["channels"]), RESNET["batch"],
                                             RESNET["classes"]),
                   RESNET | {"blocks": ",".join(str(blocks) for blocks in RESNET["blocks"])}, resnet_buffers),
    }
    for name in names or models:
        make(name, *models[name])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
