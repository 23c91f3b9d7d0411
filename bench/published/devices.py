"""Devices and links of published runs: data sheets, and what published measurements reach of them."""

import collections
import re

# Of one device: peak of bf16 products without sparsity and the memory's rate (data sheets); `products`: the share of the
# peak that the largest products reach whose tiles fill whole rounds of the device's multiprocessors (`units`); `streams`:
# the share of the memory's rate that streaming kernels reach; `flash`: the shares of the peak of attention on the chip,
# forward and backward, by implementation; sums inside a host; and, for each device, the rate of links between hosts.
Device = collections.namedtuple("Device", "flops products units memory streams flash bytes sums host_devices net_link")

# The largest product measured of each device, "maximum achievable matmul FLOPS" of S. Bekman, Machine Learning Engineering,
# chapter Accelerators: A100 SXM 267.9, H100 SXM 792.1, GH200 821.0 TFLOPS. The shapes that reach them have a whole number of
# rounds of tiles of 256 x 128 (NVIDIA, Matrix Multiplication Background: tile and wave quantization).
TILE = (256, 128)
A100_PRODUCTS, H100_PRODUCTS, GH200_PRODUCTS = 267.9 / 312, 792.1 / 989, 821.0 / 989

# Attention on the chip. FlashAttention-2 reaches up to 225 TFLOPS on an A100 and 335 on an H100 (Dao, 2023, sections 1 and
# 4.1), about 1.5 times as much; FlashAttention 1 reaches 30 to 50 % of an A100's peak forward and 25 to 35 % backward
# (section 1 there), of which the middle is taken; on the H100 the same kernels, 1.5 times that. cuDNN's reaches 518 TFLOPS forward on an
# H100 with heads of 128 and 4,096 positions (Shah et al., 2024, figure 5); that it reaches four fifths of that backward is assumed.
FLASH_A100 = {"flash-1": (0.40, 0.30), "flash-2": (0.70, 0.60)}
FLASH_H100 = {"flash-1": (0.40 * 1.5 * 312 / 989, 0.30 * 1.5 * 312 / 989), "flash-2": (0.34, 0.30), "cudnn": (518 / 989, 0.8 * 518 / 989)}

# Sums over ranks of a host by NCCL, as a start and a rate on the bus, by how many ranks: lines through its times of 32 and 256
# MiB. A100: vTrain's tables of its hosts (VIA-Research/vTrain, trace/a100/AR_GPU*_LUT). H100: 370 GB/s of 450, for the protocol
# takes about 20 % (S. Jeaugey, NVIDIA/nccl-tests issue 212), and starts as on A100.
SUMS_A100 = {2: (55e-6, 192e9), 4: (49e-6, 214e9), 8: (100e-6, 228e9)}
SUMS_H100 = {2: (55e-6, 370e9), 4: (49e-6, 370e9), 8: (100e-6, 370e9)}
SUMS_GH200 = {2: (55e-6, 123e9), 4: (49e-6, 123e9)}
# Between hosts NCCL reaches 84.8 GB/s on average and 96 at most of the 100 of four HDR adapters (NVIDIA/nccl-tests issue 119); a step
# takes 9.6 us (NCCL's tuning.cc, ring, protocol Simple).
NET_SHARE, NET_STEP_S = 0.9, 9.6e-6

# Memory that programs can have, by what PyTorch says of devices: 79.15 GiB of an A100 or H100 of 80 GB, 39.59 GiB of an
# A100 of 40 GB, less half a GiB for the driver's context.
GIB = 2**30
A100_80 = Device(312e12, A100_PRODUCTS, 108, 2.039e12, 0.85, FLASH_A100, 78.65 * GIB, SUMS_A100, 8, 25e9)
A100_40 = A100_80._replace(memory=1.555e12, bytes=39.09 * GIB)
H100 = Device(989e12, H100_PRODUCTS, 132, 3.35e12, 0.85, FLASH_H100, 78.65 * GIB, SUMS_H100, 8, 50e9)
GH200 = Device(989e12, GH200_PRODUCTS, 132, 4.0e12, 0.85, FLASH_H100, 94.0 * GIB, SUMS_GH200, 4, 25e9)
LAUNCH_S = 4e-6  # of a kernel

# By how a row's `hw` begins; the first that fits counts.
DEVICES = [
    (r"A100 \(80GB from memory\)", A100_80._replace(net_link=12.5e9)),  # hosts with four HDR adapters for eight devices
    (r"A100-80GB", A100_80),
    (r"A100-40GB", A100_40),
    (r"H100", H100),
    (r"GH200", GH200),
]


# Hosts of BLOOM's cluster, Jean Zay, have four Omni-Path adapters of 100 Gbit/s (Le Scao et al., 2022, section 3.4.1).
NET_LINKS = [(r"(?i).*bloom|bigscience", 6.25e9)]  # by how a row's source begins


def device_of(row):
    """None where nothing is known of it."""
    device = next((device for pattern, device in DEVICES if re.match(pattern, row["hw"])), None)
    if device is None:
        return None
    net_link = next((rate for pattern, rate in NET_LINKS if re.match(pattern, row["source"])), device.net_link)
    return device._replace(net_link=net_link)
