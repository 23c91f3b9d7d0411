#!/usr/bin/env python3
"""Writes the files of this folder anew: make.py WHEEL DEB, of scikit-learn 1.5.2 and of Debian's r-cran-janeaustenr 1.0.0-1.

    pip download --no-deps scikit-learn==1.5.2
    apt-get download r-cran-janeaustenr
"""

import gzip
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
SIDE, SCALE, BORDER = 8, 3, 2  # 8 x 8 pixels, each drawn as 3 x 3, inside a border of 2: 28 x 28 as MNIST's digits are


def write_idx(name, sizes, data):
    head = struct.pack(">BBBB", 0, 0, 8, len(sizes)) + b"".join(struct.pack(">I", size) for size in sizes)
    with open(os.path.join(HERE, name), "wb") as out:
        out.write(gzip.compress(head + data, 9, mtime=0))


def enlarged(pixels):
    """Of 0 to 16, drawn in 0 to 255."""
    side = SIDE * SCALE + 2 * BORDER
    image = bytearray(side * side)
    for y in range(SIDE * SCALE):
        for x in range(SIDE * SCALE):
            value = pixels[y // SCALE * SIDE + x // SCALE]
            image[(y + BORDER) * side + x + BORDER] = min(255, value * 16)
    return bytes(image)


def digits(wheel):
    with zipfile.ZipFile(wheel) as files:
        table = gzip.decompress(files.read("sklearn/datasets/data/digits.csv.gz"))
    rows = [[int(cell) for cell in line.split(b",")] for line in table.split()]
    images = b"".join(enlarged(row[:SIDE * SIDE]) for row in rows)
    write_idx("digits-images-idx3-ubyte.gz", [len(rows), 28, 28], images)
    write_idx("digits-labels-idx1-ubyte.gz", [len(rows)], bytes(row[SIDE * SIDE] for row in rows))


def strings_of(database):
    """The vectors of strings of an R database: each a length, then a serialized object in zlib's format."""
    at = 0
    while at < len(database):
        stream = zlib.decompressobj()
        text = stream.decompress(database[at + 4:])
        at = len(database) - len(stream.unused_data)
        place = 18 + struct.unpack(">I", text[14:18])[0]  # after the header and the name of the encoding
        _, count = struct.unpack(">II", text[place:place + 8])
        place += 8
        lines = []
        for _ in range(count):
            size = struct.unpack(">I", text[place + 4:place + 8])[0]
            lines.append(text[place + 8:place + 8 + size])
            place += 8 + size
        yield lines


def novel(deb):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
        with open(os.path.join(folder, "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"), "rb") as file:
            books = list(strings_of(file.read()))
    lines = next(book for book in books if book[0] == b"NORTHANGER ABBEY")
    text = b"\n".join(line.rstrip() for line in lines[:lines.index(b"CHAPTER 15")]).rstrip() + b"\n"
    with open(os.path.join(HERE, "northanger_abbey.txt"), "wb") as out:
        out.write(text)


def visits():
    """Visits to a shop that does not exist: who buys hangs on numbers, on ids, and on pairs of ids."""
    draw = random.Random(20)
    with open(os.path.join(HERE, "visits.csv"), "w") as out:
        out.write("minutes,pages,basket,country,device,hour,bought\n")
        for _ in range(2000):
            minutes, pages, basket = draw.random() * 30, draw.randrange(1, 40), draw.randrange(0, 6)
            country, device, hour = draw.randrange(12), draw.randrange(3), draw.randrange(24)
            score = 0.08 * minutes + 0.03 * pages + 0.7 * basket - 3.6
            score += 1.5 if (country + device) % 3 == 0 else -0.5  # of the pair, not of one of them
            score += 0.8 if 17 <= hour < 22 else -0.2
            bought = draw.random() < 1 / (1 + math.exp(-2 * score))
            # Ids of different columns are different: 12 countries, then 3 devices, then 24 hours.
            out.write(f"{minutes / 30:.3f},{pages / 40:.3f},{basket / 6:.3f},{country},{12 + device},{15 + hour},{int(bought)}\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    digits(sys.argv[1])
    novel(sys.argv[2])
    visits()
