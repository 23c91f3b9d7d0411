"""What products reach of a device's largest, by their shapes."""

TILE = (256, 128)  # of results, of the products that reach the most
SMALLEST = 64


def tile_rounding(rows, columns, units):
    """How many times their share of the units tiles of a result take: one on each unit at a time, the last round takes as long as a full one
    (NVIDIA, Matrix Multiplication Background, tile and wave quantization). Of the tile either way around or, where its tiles leave half of
    the units without one, of half of it; what is smaller than 64 x 64 for each is divided along the sum."""
    width, height = TILE
    least = None
    while True:
        for one, other in ((width, height), (height, width)):
            tiles = -(-rows // one) * -(-columns // other)
            over = -(-tiles // units) * units * one * other / (rows * columns)
            least = over if least is None else min(least, over)
        if least < 2 or width <= SMALLEST and height <= SMALLEST:
            return least if least < 2 else 1
        width, height = (width // 2, height) if width >= height else (width, height // 2)


def seconds_over_peak(device, rows, columns, inner, result_bytes):
    """Of a product of rows x inner and inner x columns, over its time at the device's peak. Tiles are written after their arithmetic."""
    written_s = result_bytes * rows * columns / (device.memory * device.streams)
    return tile_rounding(rows, columns, device.units) / device.products + written_s / (2 * rows * columns * inner / device.flops)


def product_shares(device, shape):
    """Shares of the peak that a layer's products reach on a rank, by Trireme's ops: the mean of those of one op, by their arithmetic."""
    rows, h, t = int(shape["mbs"] * shape["seq"]), shape["h"], shape["TP"]
    third, part, wide = 3 * h // t, h // t, shape["ffn"] // t
    forward = [(rows, h, part), (rows, wide, h), (rows, h, wide)]  # attention's output, and the two of the feed-forward layer
    inputs = [(rows, inner, columns) for _, columns, inner in forward]
    weights = [(inner, columns, rows) for _, columns, inner in forward]
    of_op = {
        "matmul": (forward + inputs, 2),
        "linear_weight_grad": (weights, 4),
        "multi_linear": ([(rows, third, h)], 2),
        "multi_linear_input_grad": ([(rows, h, third)], 2),
        "multi_linear_weight_grad": ([(h, third, rows)], 4),
    }
    out = {}
    for op, (products, result_bytes) in of_op.items():
        flops = [rows * columns * inner for rows, columns, inner in products]
        over = [seconds_over_peak(device, *product, result_bytes) for product in products]
        out[op] = sum(flops) / sum(each * of for each, of in zip(over, flops))
    return out
