"""Writes small valid open sets of fullbore and differentials of them, from docs/MEDIA_FORMAT.md alone (§ = its sections).

Files that come, change their names and go; layers; runs of no whole units; a page map with units that nobody knows.
"""

import random
from dataclasses import dataclass, field

import xxhash

from write_sample import DATA, MAP, RUN_DATA, RUN_MAPPED, RUN_ZERO, Sample, Writer, finished_at, manifest_of, sequences

UNIT = 4096
UNKNOWN = b"\xff" * 16


@dataclass
class File:
    """A stream of an open set: `pieces` are (layer, offset, bytes), in an order in which a restore may apply them."""

    name: str  # Empty: it went while it was read.
    size: int
    pieces: list
    identity: str = ""
    base: "int | None" = None


@dataclass
class OpenSample(Sample):
    files: dict = field(default_factory=dict)  # id → File
    map_window: int = 8
    open: bool = True

    @property
    def expected(self):
        """What a restore leaves: name → bytes."""
        base = self.base.restored if self.base else {}
        self.restored = {}
        for id, file in self.files.items():
            data = bytearray(base[file.base] if file.base is not None else b"")
            data = data[: file.size].ljust(file.size, b"\0")
            for _, offset, piece in sorted(file.pieces, key=lambda piece: piece[0]):
                data[offset : offset + len(piece)] = piece
            self.restored[id] = bytes(data[: file.size]).ljust(file.size, b"\0")
        return {file.name: self.restored[id] for id, file in self.files.items() if file.name}

    def entry(self, file, number):
        """§5, "In an open full"."""
        start, stop = number * UNIT, (number + 1) * UNIT
        touching = [piece for piece in file.pieces if piece[1] < stop and start < piece[1] + len(piece[2])]
        if not touching:
            return bytes(16)
        top = max(layer for layer, _, _ in touching)
        pieces = [piece for piece in touching if piece[0] == top]
        _, offset, data = pieces[0]
        if len(pieces) > 1 or offset > start or offset + len(data) < stop:
            return UNKNOWN
        if not any(data):
            return bytes(16)
        if stop > file.size:
            return UNKNOWN
        hash = xxhash.xxh3_128_intdigest(data[start - offset : stop - offset], self.map_seed) or 1
        return hash.to_bytes(16, "little")


def manifest_streams(sample):
    mapped = sample.kind == "full"
    return [{"id": id, "name": file.name, "layer": 0, "unit": UNIT, "map_window": sample.map_window if mapped and file.identity else 0,
             "size": file.size, "identity": file.identity, **({"base": file.base} if file.base is not None else {})}
            for id, file in sample.files.items()]


def write(sample, paths):
    """Writes the media set, family n to paths[n − 1]."""
    numbers = sequences()
    writers = [Writer(sample, number, numbers) for number in range(1, sample.families + 1)]
    number = random.Random(sample.seed)
    pieces = [(layer, id, offset, piece) for id, file in sample.files.items() for layer, offset, piece in file.pieces]
    for layer, id, offset, piece in sorted(pieces, key=lambda piece: piece[0]):
        kind = RUN_DATA if any(piece) else RUN_ZERO
        plain = piece if kind == RUN_DATA else b""
        number.choice(writers).block(DATA, plain, number.choice(sample.codecs), id, [(offset, len(piece), kind)], layer=layer)
    for id, file in sample.files.items() if sample.kind == "full" else ():
        if file.name and file.identity:
            units = -(-file.size // UNIT)
            for at in range(0, units, sample.map_window):
                count = min(sample.map_window, units - at)
                entries = b"".join(sample.entry(file, unit) for unit in range(at, at + count))
                run = (at * UNIT, min(count * UNIT, file.size - at * UNIT), RUN_MAPPED)
                number.choice(writers).block(MAP, entries, "lz4", id, [run])
    for writer in writers:
        writer.finish(manifest_of(sample))
    for writer, path in reversed(list(zip(writers, paths))):  # The commit record last.
        writer.footer(writers)
        with open(path, "wb") as out:
            out.write(writer.bytes)


def samples(public_keys=()):
    """A full, and a differential of it."""
    random_bytes = random.Random(9).randbytes

    def units(layer, first, count, data=None):
        return [(layer, unit * UNIT, data or random_bytes(UNIT)) for unit in range(first, first + count)]

    zero = bytes(UNIT)
    full = OpenSample({}, public_keys=public_keys, seed=3, files={
        1: File("shop/item.ibd", 20 * UNIT, units(0, 0, 20) + units(1, 3, 2) + units(1, 5, 1, zero) + [(1, 9 * UNIT + 7, b"torn")], "space:1"),
        0x20002: File("shop/old name.ibd", 9 * UNIT + 100, units(0, 0, 12), "space:2"),  # Longer when it was read.
        3: File("", 0, units(0, 0, 5)),
        4: File("log/0", 3 * UNIT, [(2, 100, random_bytes(9000))]),
        5: File("dropped.ibd", 4 * UNIT, units(0, 0, 4), "space:5"),
        6: File("with holes.ibd", 30 * UNIT, units(0, 2, 3) + units(0, 25, 1), "space:6"),
    })
    full.expected
    differential = OpenSample({}, "differential", full, public_keys=public_keys, seed=4, files={
        11: File("shop/item.ibd", 22 * UNIT, units(0, 7, 1) + units(1, 8, 1) + units(0, 9, 1) + units(0, 20, 2), "space:1", 1),
        0xffff_ffff: File("shop/new name.ibd", 11 * UNIT, units(0, 9, 1) + units(0, 3, 1, zero), "space:2", 0x20002),
        14: File("log/0", 2 * UNIT, [(2, 0, random_bytes(5000))]),
        15: File("", 0, units(0, 0, 2)),
        16: File("with holes.ibd", 10 * UNIT, [], "space:6", 6),
    })
    return full, differential
