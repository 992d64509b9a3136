#!/usr/bin/env python3
"""Writes small valid media of fullbore, from docs/MEDIA_FORMAT.md alone (§ = its sections).

Foreign input for every reader: for the independent one before fullbore could write, and for fullbore itself. It shares no
layout with family.py on purpose: a field that one of the two misplaces must not agree with itself.

    write_sample.py DIR [--key KEYFILE] [--open] [--ordered]

leaves a full in DIR/full-1of2.bore and DIR/full-2of2.bore, a differential of it in DIR/diff-1of2.bore and
DIR/diff-2of2.bore, and what a restore of each must give in DIR/expected-full/ and DIR/expected-diff/.
With --ordered, two streams of each set are ordered streams.
"""

import argparse
import base64
import gzip
import hmac
import json
import os
import random
import struct
import uuid
from dataclasses import dataclass, field

import blake3
import google_crc32c
import lz4.block
import xxhash
import zstandard

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

import encryption

FORMAT_VERSION = 1
CODECS = {"none": 0, "lz4": 1, "zstd": 2, "gzip": 3}
DATA, MAP, INDEX, MANIFEST, TRAILER = 1, 2, 3, 4, 5
RUN_DATA, RUN_ZERO, RUN_MAPPED = 0, 1, 2
STARTED_AT = 1_795_255_200_000_000  # 2026-11-21T10:00:00Z


@dataclass
class Sample:
    """What one backup set holds and how it is cut. Everything is derived from `seed`: the same bytes come out each time."""

    streams: dict  # name → bytes
    kind: str = "full"
    base: "Sample | None" = None
    ordered: tuple = ()  # the names of the ordered streams
    window: int = 0
    families: int = 2
    seed: int = 1
    units_per_block: int = 4
    unit: int = 4096
    map_window: int = 16
    open: bool = False
    block_size: int = 4096
    transfer_size: int = 64 << 10
    codecs: tuple = ("none", "lz4", "zstd", "gzip")
    public_keys: tuple = ()
    ids: dict = field(init=False)

    def __post_init__(self):
        number = random.Random(self.seed)
        self.ids = {name: number.randbytes(16) for name in ("media_set_id", "backup_set_id")}
        self.map_seed = number.getrandbits(64) if self.kind == "full" else None
        self.data_key = number.randbytes(32) if self.public_keys else None
        self.map_window = self.map_window if self.kind == "full" else 0

    @property
    def base_id(self):
        return self.base.ids["backup_set_id"] if self.base else bytes(16)

    def ordered_streams(self):
        """(id, bytes) of each ordered stream."""
        return [(id, data) for id, (name, data) in numbered(self.streams) if name in self.ordered]


@dataclass
class Block:
    """A DATA or MAP block before it has a place in a family."""

    kind: int
    stream: int
    runs: list
    plain: bytes
    layer: int = 0
    order: int = 0


def pack(codec, plain):
    """The payload and the codec that it really has: what does not get smaller is stored as it is (§4)."""
    packed = {
        "none": lambda: plain,
        "lz4": lambda: lz4.block.compress(plain, store_size=False),
        "zstd": lambda: zstandard.ZstdCompressor(level=1).compress(plain),
        "gzip": lambda: gzip.compress(plain, compresslevel=1, mtime=0),
    }[codec]()
    return (CODECS[codec], packed) if len(packed) < len(plain) else (0, plain)


class Writer:
    """One family while it is written."""

    def __init__(self, sample, number, sequences):
        self.sample, self.number, self.sequences = sample, number, sequences
        self.bytes = bytearray(header(sample, number))
        self.header_length = len(self.bytes)
        self.entries, self.pending = [], []
        self.references = {INDEX: [], MANIFEST: []}
        self.data_bytes = self.zero_bytes = 0

    def block(self, kind, plain, codec="none", stream=0, runs=(), must=False, layer=0, order=0):
        """Appends one block (§4), its index entry (§6) and, when enough are pending, an INDEX block."""
        sample = self.sample
        codec_number, payload = (CODECS["zstd"], zstandard.ZstdCompressor().compress(plain)) if must else pack(codec, plain)
        hash = xxhash.xxh3_128_intdigest(plain)
        prefix = struct.pack("<QQ", hash & (1 << 64) - 1, hash >> 64) + b"".join(struct.pack("<QII", *run) for run in runs)
        sequence = next(self.sequences)
        if kind == DATA and sequence % 3 == 0:
            prefix = prefix.ljust(-(-len(prefix) // 64) * 64, b"\0")  # Allowed: "zeros to prefix_length".
        cipher = 1 if sample.data_key else 0
        head = b"fbBK" + struct.pack(
            "<BBBBHHHHQ8sIIIII", 0, kind, codec_number, cipher, stream & 0xffff, layer, self.number, stream >> 16, sequence,
            sample.ids["media_set_id"][:8], len(runs), len(prefix), len(payload), len(plain),
            16 * cipher + len(prefix) + len(payload))
        body = prefix + payload
        if cipher:
            sealed = AESGCM(hkdf(sample.data_key, b"fullbore 0 block")).encrypt(struct.pack("<IQ", 0, sequence), body, head)
            body = sealed[-16:] + sealed[:-16]  # The tag comes first.
        head += struct.pack("<II", order, google_crc32c.value(body))
        header_crc, body_crc = google_crc32c.value(head), google_crc32c.value(body)
        head += struct.pack("<I", header_crc)
        assert len(head) == 64 and len(head) + len(body) <= sample.transfer_size
        first = runs[0][0] if runs else 0
        span = runs[-1][0] + runs[-1][1] - first if runs else 0
        offset, length = len(self.bytes), len(head) + len(body)
        entry = struct.pack("<QI", offset, length) + struct.pack("<BBH", kind, codec_number, stream & 0xffff)
        entry += struct.pack("<QQQ", stream >> 16 << 48 | sequence, first, span) + struct.pack("<II", header_crc, body_crc)
        self.bytes += head + body
        self.entries.append(entry)
        if kind in self.references:
            self.references[kind].append(struct.pack("<QIxxxx", offset, length))
        if kind == DATA:
            self.data_bytes += len(plain)
            self.zero_bytes += sum(length for _, length, run_kind in runs if run_kind == RUN_ZERO)
        if kind in (DATA, MAP, MANIFEST):
            self.pending.append(entry)
            if len(self.pending) == min(4096, (sample.transfer_size - 64 - 16 * cipher - 16) // 48):
                self.index()
        return offset, length

    def index(self):
        entries, self.pending = b"".join(self.pending), []
        self.block(INDEX, entries, "lz4")

    def finish(self, manifest):
        """The manifest in two parts, the last INDEX block and the TRAILER (§6)."""
        for part in (manifest[:100], manifest[100:]):
            self.block(MANIFEST, part, must=True)
        if self.pending:
            self.index()
        references = self.references[INDEX] + self.references[MANIFEST]
        counts = struct.pack("<IIQQQ", len(self.references[INDEX]), len(self.references[MANIFEST]), len(self.entries) + 1,
                             self.data_bytes, self.zero_bytes)
        self.trailer = self.block(TRAILER, counts + bytes(32) + b"".join(references))
        digest = blake3.blake3(self.bytes[: self.header_length] + b"".join(entry[:24] + bytes(16) + entry[40:] for entry in self.entries))
        self.digest = digest.digest()

    def footer(self, writers):
        """Padding (§2) and footer (§7); the one of family 1 is the commit record."""
        sample, first = self.sample, self.number == 1
        length = len(self.bytes) + 4096
        length += -length % sample.block_size
        foot = b"FBFOOTER" + struct.pack("<HHHH", FORMAT_VERSION, self.number, sample.families, 1 if first else 0)
        foot += sample.ids["media_set_id"] + sample.ids["backup_set_id"]
        foot += struct.pack("<QQII", length, *self.trailer, 0)
        foot += struct.pack("<QQ", len(self.entries), sum(len(each.entries) for each in writers) if first else 0)
        foot += struct.pack("<q", finished_at()) + self.digest
        foot += b"".join(each.digest for each in writers).ljust(2048, b"\0") if first else bytes(2048)
        mac = bytes(32)
        if sample.data_key:
            mac = hmac.digest(hkdf(sample.data_key, b"fullbore 0 footer"), foot.ljust(4096, b"\0"), "sha256")
        foot = (foot + mac).ljust(4092, b"\0")
        foot += struct.pack("<I", google_crc32c.value(foot))
        self.bytes += foot.rjust(length - len(self.bytes), b"\0")


def hkdf(secret, info, salt=b""):
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)


def wrap_data_key(sample, public_key):
    """One record of media-format-encryption.md, "Wrapped keys"."""
    secret = X25519PrivateKey.from_private_bytes(random.Random(sample.data_key + public_key).randbytes(32))
    ephemeral = secret.public_key().public_bytes_raw()
    key_id = blake3.blake3(public_key).digest(16)
    shared = secret.exchange(X25519PublicKey.from_public_bytes(public_key))
    wrapping_key = hkdf(shared, b"fullbore 0 wrap" + sample.ids["media_set_id"], ephemeral + public_key)
    sealed = AESGCM(wrapping_key).encrypt(bytes(12), sample.data_key, key_id + sample.ids["media_set_id"])
    return key_id + ephemeral + sealed + bytes(32)


def write_key_file(path, number):
    """A key pair in a key file: the same one for a number each time, so no secret at all. Returns the public key."""
    secret = X25519PrivateKey.from_private_bytes(random.Random(number).randbytes(32))
    public_key = secret.public_key().public_bytes_raw()
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write("# a key of the tests\n")
        for kind, key in ("SECRET", secret.private_bytes_raw()), ("PUBLIC", public_key):
            label = f"FULLBORE-{kind}-KEY-1"
            crc = struct.pack("<I", google_crc32c.value(label.encode() + key))
            file.write(f"{label} {base64.b64encode(key + crc).decode()}\n")
    return public_key


def numbered(streams):
    """Each stream with its id: every second one needs more than 16 bits."""
    return [(at + 1 + at % 2 * 70_000, stream) for at, stream in enumerate(streams.items())]


def header(sample, number):
    """§3."""
    label = json.dumps({"name": "sample", "description": "foreign", "database": "/none"}).encode()
    label = b"" if sample.data_key else label
    wrapped = [wrap_data_key(sample, public_key) for public_key in sample.public_keys]
    table = [struct.pack("<HBxHHIIQ8x", id & 0xffff, 2 if name in sample.ordered else 1, 0, id >> 16, sample.unit,
                         map_window_of(sample, name), len(data))
             for id, (name, data) in numbered(sample.streams)]
    assert not (sample.open and table)  # The manifest has it.
    rest = b"".join(wrapped) + b"".join(table) + label
    length = max(4096, 256 + len(rest))
    length += -length % sample.block_size
    fixed = b"FULLBORE" + struct.pack("<HHI", FORMAT_VERSION, 0, length)
    fixed += sample.ids["media_set_id"] + sample.ids["backup_set_id"]
    fixed += struct.pack("<HHHBB", number, sample.families, 0, 1 if sample.data_key else 0, 1 if sample.kind == "full" else 2)
    fixed += struct.pack("<IIIBbHq", sample.block_size, sample.transfer_size, sample.window, CODECS["zstd"], 1, 1 if sample.open else 0, STARTED_AT)
    fixed += engine_of(sample).encode().ljust(16, b"\0") + b"sample".ljust(16, b"\0") + sample.base_id
    fixed += struct.pack("<III", len(wrapped), len(table), len(label)) + bytes(112)
    raw = (fixed + bytes(4) + rest).ljust(length, b"\0")
    return raw[:252] + struct.pack("<I", google_crc32c.value(raw)) + raw[256:]


def map_window_of(sample, name):
    return 0 if name in sample.ordered else sample.map_window


def engine_of(sample):
    return "mysql" if sample.open else "sqlite"


def manifest_of(sample):
    """§9."""
    text = {name: str(uuid.UUID(bytes=id)) for name, id in sample.ids.items()}
    return json.dumps({
        "schema": 0, "tool_version": "sample", "engine": engine_of(sample), "engine_version": "3", "host": "none", "database": "/none",
        "kind": sample.kind, "copy_only": False, **text,
        "base_backup_set_id": str(uuid.UUID(bytes=sample.base_id)) if sample.base else None,
        "name": "sample", "description": "", "started_at": "2026-11-21T10:00:00.000000Z",
        "finished_at": "2026-11-21T10:00:01.000000Z", "codec": "zstd",
        "block_size": sample.block_size, "transfer_size": sample.transfer_size,
        "families": [{"family": n + 1, "device": f"/none/{n + 1}"} for n in range(sample.families)],
        "streams": open_sample.manifest_streams(sample) if sample.open else manifest_streams(sample),
        "map": {"hash": "xxh3-128", "seed": f"{sample.map_seed:016x}"} if sample.map_seed is not None else None,
        "position": {"first": 0, "checkpoint": 0, "last": 0}, "warnings": []}).encode()


def manifest_streams(sample):
    """§9. Of the streams that are not ordered, the first has `"ordered": false`, and others leave it out."""
    records = [{"id": id, "name": name, "layer": 0, "unit": sample.unit, "map_window": map_window_of(sample, name), "size": len(data)}
               for id, (name, data) in numbered(sample.streams)]
    for record in records:
        if record["name"] in sample.ordered or sample.ordered and record["id"] == 1:
            record["ordered"] = record["name"] in sample.ordered
    return records


def units_of(sample, name):
    """(offset, bytes) of every unit that the set stores: all of a full, the changed ones of a differential."""
    data = sample.streams[name]
    old = sample.base.streams.get(name, b"") if sample.base else None
    for offset in range(0, len(data), sample.unit):
        unit = data[offset : offset + sample.unit]
        if old is None or old[offset : offset + sample.unit] != unit:
            yield offset, unit


def data_blocks(sample, name):
    """(runs, plain) of each DATA block: neighbouring units of one kind are one run."""
    units = list(units_of(sample, name))
    for at in range(0, len(units), sample.units_per_block):
        runs, plain = [], b""
        for offset, unit in units[at : at + sample.units_per_block]:
            kind = RUN_DATA if any(unit) else RUN_ZERO
            if runs and sum(runs[-1][:2]) == offset and runs[-1][2] == kind:
                runs[-1] = (runs[-1][0], runs[-1][1] + len(unit), kind)
            else:
                runs.append((offset, len(unit), kind))
            plain += unit if kind == RUN_DATA else b""
        yield runs, plain


def ordered_blocks(sample):
    """The blocks of all ordered streams in the order of their numbers. Their lengths and streams are drawn at random."""
    number, most = random.Random(sample.seed + 100), sample.transfer_size - 4096
    left, blocks = [[id, data, 0] for id, data in sample.ordered_streams() if data], []
    while left:
        stream = number.choice(left)
        id, data, at = stream
        piece = data[at : at + number.choice((most, number.randint(1, most), number.randint(1, 9000)))]
        blocks.append(Block(DATA, id, [(at, len(piece), RUN_DATA)], piece, order=len(blocks) + 1))
        stream[2] += len(piece)
        if stream[2] == len(data):
            left.remove(stream)
    return blocks


def dealt(sample, others, in_order):
    """All blocks in the order of appending. Block n comes only when the blocks 1 … n − W are appended (§3)."""
    number, others = random.Random(sample.seed + 200), iter(others)
    waiting = {block.order: block for block in in_order}
    while waiting:
        allowed = [order for order in waiting if order < min(waiting) + sample.window]
        other = next(others, None) if number.random() < 0.5 else None
        yield other or waiting.pop(number.choice((max(allowed), max(allowed), min(allowed), number.choice(allowed))))
    yield from others


def map_entry(sample, unit):
    """§5: 0 says "stored as ZERO"."""
    if not any(unit):
        return bytes(16)
    return (xxhash.xxh3_128_intdigest(unit, sample.map_seed) or 1).to_bytes(16, "little")


def sequences():
    """§4: each number once."""
    return iter(range(1 << 62))


def finished_at():
    """§7: the same in all families."""
    return STARTED_AT + 2_000_000


def write(sample, paths):
    """Writes the media set, family n to paths[n − 1]."""
    numbers = sequences()
    writers = [Writer(sample, number, numbers) for number in range(1, sample.families + 1)]
    append(sample, writers, dealt(sample, blocks_of_any_order(sample), ordered_blocks(sample)))
    finish(sample, writers, paths)


def blocks_of_any_order(sample):
    for id, (name, _) in numbered(sample.streams):
        if name in sample.ordered:
            continue
        for runs, plain in data_blocks(sample, name):
            yield Block(DATA, id, runs, plain)
        if sample.kind == "full":
            units = [unit for _, unit in units_of(sample, name)]
            for at in range(0, len(units), sample.map_window):
                covered = units[at : at + sample.map_window]
                entries = b"".join(map_entry(sample, unit) for unit in covered)
                yield Block(MAP, id, [(at * sample.unit, sum(map(len, covered)), RUN_MAPPED)], entries)


def append(sample, writers, blocks):
    number = random.Random(sample.seed)  # Any block may be in any family.
    for block in blocks:
        writer = number.choice(writers)
        codec = number.choice(sample.codecs) if block.kind == DATA else "lz4"
        writer.block(block.kind, block.plain, codec, block.stream, block.runs, layer=block.layer, order=block.order)


def finish(sample, writers, paths):
    """Writes the rest of each family, and makes the files."""
    for writer in writers:
        writer.finish(manifest_of(sample))
    for writer, path in reversed(list(zip(writers, paths))):  # The commit record last.
        writer.footer(writers)
        with open(path, "wb") as file:
            file.write(writer.bytes)


def sample_streams():
    """Two streams with compressible, random and zero units, one with a short last unit; and a later state of both."""
    number = random.Random(7)

    def unit(which):
        if which % 7 == 3:
            return bytes(4096)
        text = b"%06d sample row; " % which * 400
        return number.randbytes(4096) if which % 5 == 0 else text[:4096]

    full = {"app.db": b"".join(map(unit, range(90))), "second.db": b"".join(map(unit, range(100, 121)))[:-1000]}
    later = bytearray(full["app.db"])
    later[5 * 4096 : 6 * 4096] = bytes(4096)  # a unit that became zero
    later[3 * 4096 + 7 : 3 * 4096 + 9] = b"\1\2"  # a zero unit that no longer is
    later += number.randbytes(8192) + bytes(4096)  # longer
    return full, {"app.db": bytes(later), "second.db": full["second.db"][: 10 * 4096]}  # and one cut off


def ordered_streams():
    """Two ordered streams, and a later state of both. One is text, and one does not get smaller. No size is of whole units."""
    number = random.Random(11)
    text = b"".join(b"INSERT INTO t VALUES (%d, 'row');\n" % row for row in range(20_000))
    return ({"dump.sql": text, "object.bak": number.randbytes(300_001)},
            {"dump.sql": text[:400_000] + b"COMMIT;\n", "object.bak": number.randbytes(350_003)})


def samples(public_keys=(), with_ordered=False):
    """A full, and a differential of it. `with_ordered`: two more streams, which are ordered."""
    full, later, options = *sample_streams(), {}
    if with_ordered:
        full, later = (dict(sorted({**streams, **more}.items())) for streams, more in zip((full, later), ordered_streams()))
        options = {"ordered": ("dump.sql", "object.bak"), "window": 5}
    full = Sample(full, seed=1, public_keys=public_keys, **options)
    return full, Sample(later, "differential", full, seed=2, public_keys=public_keys, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", metavar="DIR")
    parser.add_argument("--key", metavar="KEYFILE", help="encrypt to this key; made, with mode 0600, when it is not there")
    parser.add_argument("--open", action="store_true", help="open sets instead")
    parser.add_argument("--ordered", action="store_true", help="sets with two ordered streams beside the others")
    arguments = parser.parse_args()
    if arguments.key and not os.path.exists(arguments.key):
        write_key_file(arguments.key, 3)
    public_keys = (encryption.read_key_file(arguments.key)[1],) if arguments.key else ()
    if arguments.open:
        for name, sample in zip(("full", "diff"), open_sample.samples(public_keys, arguments.ordered)):
            open_sample.write(sample, [os.path.join(arguments.directory, f"{name}-{n}of2.bore") for n in (1, 2)])
            for stream, data in sample.expected.items():
                path = os.path.join(arguments.directory, f"expected-{name}", stream)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(data)
        return
    for name, sample in zip(("full", "diff"), samples(public_keys, arguments.ordered)):
        write(sample, [os.path.join(arguments.directory, f"{name}-{n}of2.bore") for n in (1, 2)])
        expected = os.path.join(arguments.directory, f"expected-{name}")
        os.makedirs(expected, exist_ok=True)
        for stream, data in sample.streams.items():
            with open(os.path.join(expected, stream), "wb") as file:
                file.write(data)


import open_sample  # noqa: E402 — it takes the writer from here.

if __name__ == "__main__":
    main()
