"""What published systems do differently from Trireme: from the paper, manual or source that is named, never from a row."""

import collections
import re

# The fields of a system:
#   attention      "stored": scores are written to memory and read back (softmax, dropout); else the on-chip implementation
#   on_chip        a pattern of sources whose attention is on the chip although `attention` is "stored"
#   late_sums      gradients are summed after the backward pass, not during it
#   dropout        of the hidden values
#   bytes          per parameter, by precision: those that every data parallel rank has (weights and gradients), and
#                  those that a distributed optimizer divides among them (weights to update, moments, copies)
#   shards         all bytes of a parameter are divided among the data parallel ranks (FSDP, ZeRO 3)
#   recompute, vocabulary: used when the row does not give them
#   add_bytes      moved to accumulate a micro-batch's gradient, per parameter, beside the 4 that the product writes; None: as
#                  in Trireme
#   update_bytes   moved by the optimizer's step per parameter, clipping and copies included; None: as in Trireme
#   flat_bytes     moved of every micro-batch's gradient before it is summed over ranks, per parameter, by the type of the sums; None: as
#                  in Trireme
#   slice_bytes    moved of a rank's slices in every micro-batch, per parameter in them, by the type of the sums; and in all but the first
#   sum_bytes      of a gradient while it is summed over ranks
#   waits          the backward pass waits for sums over tensor parallel ranks, instead of computing weight gradients meanwhile
#   logit_bytes    moved by the loss (and metrics) per logit, forward and backward; None: as in Trireme
#   loss_bytes     kept at the same time per logit while the loss is computed
#   ends_as_layers the embedding and the head may each take the place of a layer in the stages
#   sp             sequence parallelism, used when the row does not say
#   largest_rank   whose memory is reported: that of the "first" or the "last" stage of the pipeline
System = collections.namedtuple(
    "System", "name attention on_chip late_sums dropout bytes shards recompute vocabulary add_bytes update_bytes flat_bytes slice_bytes sum_bytes "
    "waits logit_bytes loss_bytes largest_rank ends_as_layers sp source")

# Weights and gradients of two bytes; or bf16 with gradients of four (Megatron Core, page on the distributed optimizer).
MIXED = {"fp16": (4, 16), "bf16": (6, 12)}

# Of a parameter in a step of Megatron-LM's Float16OptimizerWithFloat16Params: gradient scaled and looked through for infinities
# (4 read, 4 written), norm (4), clipped (4, 4), Adam (16, 12), weight to two bytes (4, 2); and gradients of two bytes to
# f32 and to zero (2, 4, 2), or those of four to zero (4).
PASSES = 8 + 4 + 8 + 28 + 6
MEGATRON_UPDATE, MEGATRON_2021_UPDATE = PASSES + 4, PASSES + 8
MEGATRON = System(
    "Megatron-LM", "stored", None, True, 0.1, MIXED, False, "none", 51200, 4, MEGATRON_UPDATE, None, None, 2, False, None, 6, "first", False, False,
    "Korthikanti et al., 2022 (sections 4 and 5); bytes per parameter from Megatron Core's page on the distributed optimizer; from its "
    "source (release 3): full recomputation runs a whole layer again, the matrix products for weight gradients also accumulate them "
    "(gradient_accumulation_fusion) while input gradients are summed over ranks, and the optimizer's step makes several passes over memory")
# Before release 3: products write gradients of two bytes, a kernel of its own adds them (2 + 2 read, 2 written: 8 in all), and
# sums are waited for.
MEGATRON_2021 = MEGATRON._replace(
    name="Megatron-LM of 2021", add_bytes=4, update_bytes=MEGATRON_2021_UPDATE, waits=True,
    source="Narayanan et al., 2021 (sections 3.2 and 5); bytes per parameter from Megatron Core's page on the distributed optimizer; from "
    "its source (release 2): as Megatron-LM, but a separate kernel accumulates gradients, and sums over tensor parallel ranks are not hidden")
VTRAIN = MEGATRON_2021._replace(
    name="Megatron-LM as vTrain ran it", recompute="full", vocabulary=50257,
    source=MEGATRON_2021.source + "; the configurations of vTrain's validation (use_checkpoint, vocab_size, no gradient buckets)")
GOLDEN = MEGATRON._replace(
    name="Megatron Core's functional tests", vocabulary=50257, add_bytes=12, sum_bytes=4, largest_rank="last",
    on_chip=r".*(gpt3_mcore_te_\w*resume(?!.*dracooci)|memory_speed|release)",
    source=MEGATRON.source + "; the tests' model_config.yaml (vocabularies, CUBLAS_WORKSPACE_CONFIG, no gradient_accumulation_fusion, and "
    "unfused attention except in tests that resume; of these, figures from the clusters called dracooci are older and unfused); the last "
    "rank logs its memory")
CORE_H100 = MEGATRON._replace(
    name="Megatron Core on H100", attention="cudnn", dropout=0.0, late_sums=False, sp=True, sum_bytes=4,
    update_bytes=4 + 8 + 28 + 6, logit_bytes=None,
    source="Megatron Core's README and performance guide: cuDNN's attention through Transformer Engine, sequence parallelism, "
    "a distributed optimizer with overlapped reductions and gathers, "
    "gradient_accumulation_fusion")
# Gradients of bf16 are added to those of f32: 2 + 4 read, 4 written, and 2 by the product.
BLOOM = MEGATRON_2021._replace(
    name="Megatron-DeepSpeed (BLOOM)", vocabulary=250880, recompute="full", dropout=0.0, bytes={"fp16": (4, 16), "bf16": (8, 12)}, add_bytes=8,
    ends_as_layers=True,
    source="Le Scao et al., 2022 (BLOOM; section 3.4) and Bekman, The Technology Behind BLOOM Training: Megatron-DeepSpeed, ZeRO 1, a bf16 optimizer "
    "that adds gradients in f32; Narayanan et al., 2021")
SAILOR = MEGATRON_2021._replace(name="Megatron-DeepSpeed as Sailor ran it",
                                source=MEGATRON_2021.source + "; the table does not give the precision, which is taken to be fp16")
# Of a logit of two bytes in PyTorch's cross entropy under autocast, which computes in f32 (PyTorch's page on automatic mixed
# precision): to f32 (2, 4), log-softmax (4, 4), gradient of the likelihood (4), of log-softmax (8, 4), to bf16 (4, 2); and
# Composer's metrics of training, cross entropy and perplexity, forward of the same (14 each).
TORCH_LOSS, COMPOSER_METRICS = 6 + 8 + 4 + 12 + 6, 2 * 14
# Of a parameter in a step of FSDP with Composer's DecoupledAdamW, which has a kernel for each operation: norm (4 read) and clipping (4, 4);
# moments scaled (4, 4 each) and added to (8, 4 each); root (4, 4), divided (4, 4), with epsilon (4, 4); the weight (12, 4).
FSDP_UPDATE = 4 + 8 + 2 * (8 + 12) + 3 * 8 + 16
# Of every micro-batch's gradient in FSDP: autograd copies it into the flat gradient (2, 2); it is cast to the type of the sums, where that is f32
# (2, 4), and divided by a part of the number of ranks (4, 4, or 2, 2). Of a slice: the sum is divided by the rest of it (4, 4, or 2, 2), cast to f32
# where it is not (2, 4), and added to those before (8, 4); weights are cast for each of two gathers (4, 2 each). A stream of its own does much of
# this. But its kernels take turns with the others on the multiprocessors, so all of it counts.
FSDP_FLAT = {"f32": 4 + 6 + 8, "bf16": 4 + 4}
FSDP_SLICES = {"f32": (8 + 2 * 6, 12), "bf16": (4 + 6 + 2 * 6, 12)}
FSDP = System(
    "PyTorch FSDP with flash attention", "flash-1", None, False, 0.0, {"bf16": (0, 16)}, True, "none", 50368, None, FSDP_UPDATE, FSDP_FLAT,
    FSDP_SLICES, 4, False, TORCH_LOSS + COMPOSER_METRICS, 6, "first", False, False,
    "Zhao et al., 2023 (full sharding: weights, gradients and Adam's moments in f32; section 3.2.3: gradients are written into flat ones; section "
    "3.3.4: accumulation with communication, as Composer runs it: every micro-batch's gradients are summed over ranks, and each rank adds to its "
    "slices); from PyTorch's source (_post_backward_hook, reduce_scatter_hook) the passes over a gradient, from Composer's (DecoupledAdamW) those of "
    "the optimizer; sums in f32 where the benchmark's table says amp_bf16, else in bf16 (its column MP Mode); the benchmark's submit_benchmarks.py "
    "(attention in Triton, which is FlashAttention 1: Dao, 2023, section 1) and model (torch's cross entropy, two training metrics)")

SYSTEMS = [
    (r"vTrain", VTRAIN),
    (r"Korthikanti", MEGATRON),
    (r"Megatron SC21", MEGATRON_2021),
    (r"eth-easl/sailor", SAILOR),
    (r"mosaicml/llm-foundry", FSDP),
    (r"Megatron-LM d98e8a6 golden:gpt/(?=gpt3_7b_)", GOLDEN._replace(vocabulary=131073)),
    (r"Megatron-LM d98e8a6 golden:gpt/", GOLDEN),
    (r"(?i).*bloom|bigscience", BLOOM),
    (r"(?i)(?!.*golden)(megatron|mcore).*h100", CORE_H100),
]


def system_of_source(source):
    """The profile, and how its rows' source begins; None for none."""
    for pattern, system in SYSTEMS:
        found = re.match(pattern, source)
        if found:
            return system, found[0]
    return None
