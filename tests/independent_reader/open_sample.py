"""Writes small valid open sets of fullbore and differentials of them, from docs/MEDIA_FORMAT.md alone (§ = its sections).

Files that come, change their names and go; layers; runs of no whole units; a page map with units that nobody knows.
"""

import random
from dataclasses import dataclass, field

import xxhash

import write_sample
from write_sample import DATA, MAP, RUN_DATA, RUN_MAPPED, RUN_ZERO, Block, Sample, Writer

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
    ordered: bool = False  # Then it has one piece, of layer 0.


@dataclass
class OpenSample(Sample):
    files: dict = field(default_factory=dict)  # id → File
    map_window: int = 8
    open: bool = True

    def ordered_streams(self):
        return [(id, file.pieces[0][2] if file.pieces else b"") for id, file in self.files.items() if file.ordered]

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


def map_window_of(sample, file):
    return sample.map_window if sample.kind == "full" and file.identity and not file.ordered else 0


def manifest_streams(sample):
    return [{"id": id, "name": file.name, "layer": 0, "unit": UNIT, "map_window": map_window_of(sample, file), "size": file.size,
             "identity": file.identity, **({"base": file.base} if file.base is not None else {}),
             **({"ordered": True} if file.ordered else {})}
            for id, file in sample.files.items()]


def blocks_of_layers(sample):
    """The DATA blocks of files that are not ordered, the lowest layer first."""
    pieces = [(layer, id, offset, piece) for id, file in sample.files.items() if not file.ordered for layer, offset, piece in file.pieces]
    for layer, id, offset, piece in sorted(pieces, key=lambda piece: piece[0]):
        kind = RUN_DATA if any(piece) else RUN_ZERO
        yield Block(DATA, id, [(offset, len(piece), kind)], piece if kind == RUN_DATA else b"", layer)


def map_blocks(sample):
    for id, file in sample.files.items():
        if map_window_of(sample, file):
            units = -(-file.size // UNIT)
            for at in range(0, units, sample.map_window):
                count = min(sample.map_window, units - at)
                entries = b"".join(sample.entry(file, unit) for unit in range(at, at + count))
                yield Block(MAP, id, [(at * UNIT, min(count * UNIT, file.size - at * UNIT), RUN_MAPPED)], entries)


def write(sample, paths):
    """Writes the media set, family n to paths[n − 1]."""
    numbers = write_sample.sequences()
    writers = [Writer(sample, number, numbers) for number in range(1, sample.families + 1)]
    layers = list(blocks_of_layers(sample))
    lowest, higher = ([block for block in layers if (block.layer > 0) == high] for high in (False, True))
    # Ordered blocks have layer 0, so they come before the higher layers (§3, "Blocks have layers").
    in_order = write_sample.dealt(sample, lowest, write_sample.ordered_blocks(sample))
    write_sample.append(sample, writers, [*in_order, *higher, *map_blocks(sample)])
    write_sample.finish(sample, writers, paths)


def samples(public_keys=(), with_ordered=False):
    """A full, and a differential of it. `with_ordered`: two more files, which are ordered streams."""
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
    differential = OpenSample({}, "differential", full, public_keys=public_keys, seed=4, files={
        11: File("shop/item.ibd", 22 * UNIT, units(0, 7, 1) + units(1, 8, 1) + units(0, 9, 1) + units(0, 20, 2), "space:1", 1),
        0xffff_ffff: File("shop/new name.ibd", 11 * UNIT, units(0, 9, 1) + units(0, 3, 1, zero), "space:2", 0x20002),
        14: File("log/0", 2 * UNIT, [(2, 0, random_bytes(5000))]),
        15: File("", 0, units(0, 0, 2)),
        16: File("with holes.ibd", 10 * UNIT, [], "space:6", 6),
    })
    if with_ordered:
        for sample, first, streams in zip((full, differential), (0x30001, 21), write_sample.ordered_streams()):
            sample.window = 5
            for id, (name, data) in enumerate(streams.items(), start=first):
                sample.files[id] = File(f"dumps/{name}", len(data), [(0, 0, data)], f"dump:{name}", ordered=True)
    full.expected
    return full, differential
