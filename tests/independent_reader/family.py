"""One media family: its header, footer, blocks, index, trailer and manifest (docs/MEDIA_FORMAT.md; § = its sections).

Part of an independent reader, written from the document alone and meant to be read next to it. Everything that one
family lets a reader check is checked here; what the families say together is checked in restore.py.
"""

import json
import os
import struct
import zlib
from types import SimpleNamespace

import blake3
import google_crc32c
import lz4.block
import xxhash
import zstandard

from encryption import TAG_LENGTH, WRAPPED_KEY_LENGTH

FULL, DIFFERENTIAL, LOG = 1, 2, 3
DATA, MAP, INDEX, MANIFEST, TRAILER = 1, 2, 3, 4, 5
DATA_RUN, ZERO_RUN, MAPPED_RUN = 0, 1, 2
ANY_ORDER, ORDERED = 1, 2  # roles of streams
MANIFEST_LIMIT = 64 << 20
NEWEST_VERSION = 1
FOOTER_LENGTH, BLOCK_HEADER_LENGTH = 4096, 64


class Damage(Exception):
    """Why the media are refused: device, offset in it, and what is wrong there."""

    def __init__(self, device, offset, what):
        super().__init__(f"{device}: offset {offset}: {what}")
        self.device, self.offset, self.what = device, offset, what


class Layout:
    """A record at fixed offsets, one field per line: offset, struct letter, name. Bytes that no line names are reserved."""

    def __init__(self, size, table):
        self.size, self.fields, reserved = size, [], bytearray(b"\xff" * size)
        for line in table.strip().splitlines():
            offset, letter, name = line.split()
            self.fields.append((int(offset), struct.Struct("<" + letter), name))
            width = struct.calcsize("<" + letter)
            reserved[int(offset) : int(offset) + width] = bytes(width)
        self.reserved = int.from_bytes(reserved, "little")

    def read(self, raw):
        record = SimpleNamespace(**{name: field.unpack_from(raw, offset)[0] for offset, field, name in self.fields})
        record.reserved_is_zero = int.from_bytes(raw[: self.size], "little") & self.reserved == 0
        return record


HEADER = Layout(256, """
    0   8s   magic
    8   H    format_version
    12  I    header_length
    16  16s  media_set_id
    32  16s  backup_set_id
    48  H    family
    50  H    families
    52  H    parity_families
    54  B    cipher
    55  B    kind
    56  I    block_size
    60  I    transfer_size
    64  I    window
    68  B    codec
    69  b    level
    70  B    flags
    72  q    started_at
    80  16s  engine
    96  16s  tool_version
    112 16s  base_backup_set_id
    128 I    key_count
    132 I    stream_count
    136 I    label_length
    252 I    header_crc""")

STREAM = Layout(32, """
    0   H    id_low
    2   B    role
    4   H    layer
    6   H    id_high
    8   I    unit
    12  I    map_window
    16  Q    size""")

BLOCK = Layout(BLOCK_HEADER_LENGTH, """
    0   4s   magic
    4   B    version
    5   B    kind
    6   B    codec
    7   B    cipher
    8   H    stream_low
    10  H    layer
    12  H    family
    14  H    stream_high
    16  Q    sequence
    24  8s   set_tag
    32  I    run_count
    36  I    prefix_length
    40  I    payload_length
    44  I    plain_length
    48  I    body_length
    52  I    order
    56  I    body_crc
    60  I    header_crc""")

TRAILER_START = Layout(64, """
    0   I    index_count
    4   I    manifest_count
    8   Q    block_count
    16  Q    data_bytes
    24  Q    zero_bytes""")

FOOTER = Layout(FOOTER_LENGTH, """
    0   8s   magic
    8   H    format_version
    10  H    family
    12  H    families
    14  H    flags
    16  16s  media_set_id
    32  16s  backup_set_id
    48  Q    family_length
    56  Q    trailer_offset
    64  I    trailer_length
    72  Q    block_count
    80  Q    set_block_count
    88  q    finished_at
    96  32s  family_digest
    128 2048s set_digests
    2176 32s mac
    4092 I   footer_crc""")


def is_power_of_two(number, low, high):
    return low <= number <= high and number & (number - 1) == 0


def is_zero(raw):
    return raw.count(0) == len(raw)


def is_padded_ascii(field):
    text = field.rstrip(b"\0")
    return all(0x21 <= byte <= 0x7E for byte in text)


def digest_of(plain, seed=0):
    """XXH3-128 as it is stored: one little-endian integer (§1)."""
    return xxhash.xxh3_128_intdigest(plain, seed).to_bytes(16, "little")


def unpack(codec, payload, plain_length):
    """The plain bytes of a payload (§4), never more than `plain_length` + 1 of them."""
    if codec == 0:
        return payload
    if codec == 1:
        return lz4.block.decompress(payload, uncompressed_size=plain_length)
    if codec == 2:
        if zstandard.frame_content_size(payload) not in (-1, plain_length):
            raise ValueError("the Zstandard frame states another size than plain_length")
        frame = zstandard.ZstdDecompressor(max_window_size=128 << 20)
        return frame.decompress(payload, max_output_size=plain_length, allow_extra_data=False)
    member = zlib.decompressobj(wbits=31)
    plain = member.decompress(payload, plain_length + 1)
    if not member.eof or member.unused_data:
        raise ValueError("not exactly one gzip member")
    return plain


class Family:
    """One media family: its header and footer are checked when it is opened, its blocks while they are walked."""

    def __init__(self, path):
        self.path = path
        try:
            self.file = open(path, "rb")
            self.length = self.file.seek(0, os.SEEK_END)
        except OSError as error:
            raise Damage(path, 0, f"cannot be read: {error.strerror}") from None
        self.keys = None
        self.read_header()
        self.read_footer()

    def require(self, condition, offset, what):
        if not condition:
            raise Damage(self.path, offset, what)

    def read(self, offset, length):
        self.file.seek(offset)
        raw = self.file.read(length)
        self.require(len(raw) == length, offset, f"ends after {len(raw)} of {length} bytes")
        return raw

    def read_header(self):
        """§3."""
        self.require(self.length >= HEADER.size, 0, f"{self.length} bytes are too few for a header")
        raw = self.read(0, HEADER.size)
        self.header = head = HEADER.read(raw)

        def check(condition, what):
            self.require(condition, 0, f"header: {what}")

        check(head.magic == b"FULLBORE", "no family of fullbore")
        check(head.format_version <= NEWEST_VERSION, f"format version {head.format_version}: made by a newer fullbore")
        # The checksum covers header_length bytes, so this one number is bounded before it.
        check(4096 <= head.header_length <= 1 << 20, f"header_length {head.header_length}")
        self.raw_header = raw = self.read(0, head.header_length)
        check(google_crc32c.value(raw[:252] + bytes(4) + raw[256:]) == head.header_crc, "checksum")
        check(head.reserved_is_zero, "reserved bytes")
        check(is_power_of_two(head.block_size, 512, 65536), f"block_size {head.block_size}")
        check(head.header_length % head.block_size == 0, "header_length is no multiple of block_size")
        check(1 <= head.family <= head.families <= 64, f"family {head.family} of {head.families}")
        check(head.parity_families == 0, "parity families")
        check(head.cipher in (0, 1), f"cipher {head.cipher}")
        check(head.kind in (FULL, DIFFERENTIAL, LOG), f"kind {head.kind}")
        check(64 << 10 <= head.transfer_size <= 64 << 20 and head.transfer_size % (64 << 10) == 0, "transfer_size")
        check(head.window <= 4096, f"window {head.window}")
        check(head.codec <= 3, f"codec {head.codec}")
        check(is_padded_ascii(head.engine) and is_padded_ascii(head.tool_version), "engine or tool_version")
        check(is_zero(head.base_backup_set_id) == (head.kind == FULL), "base_backup_set_id")
        check(head.key_count <= 64 and (head.key_count == 0) == (head.cipher == 0), f"key_count {head.key_count}")
        check(head.stream_count <= 1024, f"stream_count {head.stream_count}")
        check(head.flags in (0, 1), f"flags {head.flags}")
        check(head.window * head.transfer_size <= 1 << 30, f"window {head.window} of {head.transfer_size} bytes")
        self.open_set = head.flags == 1
        check(not self.open_set or head.stream_count == 0, "an open set with a stream table")
        check(head.label_length <= (4096 if head.cipher == 0 else 0), f"label_length {head.label_length}")
        self.tag_length = TAG_LENGTH if head.cipher else 0

        keys = HEADER.size
        streams = keys + WRAPPED_KEY_LENGTH * head.key_count
        label = streams + STREAM.size * head.stream_count
        end = label + head.label_length
        check(end <= len(raw) and is_zero(raw[end:]), "fields beyond header_length, or padding that is not zero")
        self.wrapped_keys = [raw[at : at + WRAPPED_KEY_LENGTH] for at in range(keys, streams, WRAPPED_KEY_LENGTH)]
        check(all(is_zero(record[96:]) for record in self.wrapped_keys), "reserved bytes of a wrapped key")
        self.streams = {}
        for at in range(streams, label, STREAM.size):
            stream = STREAM.read(raw[at : at + STREAM.size])
            stream.id = stream.id_high << 16 | stream.id_low
            self.require(stream.reserved_is_zero and stream.role in (ANY_ORDER, ORDERED), at, "stream table: role or reserved bytes")
            stream.ordered = stream.role == ORDERED
            self.require(stream.id != 0 and stream.id not in self.streams, at, f"stream table: id {stream.id}")
            self.require(is_power_of_two(stream.unit, 4096, 65536), at, f"stream table: unit {stream.unit}")
            self.require(stream.layer == 0, at, f"stream table: layer {stream.layer}")
            self.require(stream.map_window <= 1 << 22 and stream.unit * stream.map_window < 1 << 32, at, "stream table: map_window")
            self.require(stream.size <= 1 << 62, at, "stream table: size")
            self.require(head.window or not stream.ordered, at, "stream table: an ordered stream, but window is 0")
            self.require(not stream.ordered or not stream.map_window, at, "stream table: map_window of an ordered stream")
            self.streams[stream.id] = stream
        with_map = [stream.map_window > 0 for stream in self.streams.values() if not stream.ordered]
        check(not any(with_map) or head.kind == FULL and all(with_map), "map_window of some streams only, or without a full")
        try:
            check(end == label or isinstance(json.loads(raw[label:end].decode("utf-8")), dict), "label")
        except (ValueError, RecursionError):
            check(False, "label is not UTF-8 JSON")

    def read_footer(self):
        """§7 and the length of the family (§2)."""
        head, start = self.header, self.length - FOOTER_LENGTH
        self.require(start >= head.header_length, self.length, "incomplete: no room for a footer")
        self.raw_footer = raw = self.read(start, FOOTER_LENGTH)
        self.footer = foot = FOOTER.read(raw)

        def check(condition, what):
            self.require(condition, start, f"footer: {what}")

        check(foot.magic == b"FBFOOTER", "not there, the family is incomplete")
        check(foot.format_version == head.format_version, "format_version")
        check(google_crc32c.value(raw[:4092]) == foot.footer_crc, "checksum")
        check(foot.reserved_is_zero, "reserved bytes")
        check((foot.family, foot.families) == (head.family, head.families), "other family than the header says")
        check((foot.media_set_id, foot.backup_set_id) == (head.media_set_id, head.backup_set_id), "of another set")
        check(foot.flags == (1 if head.family == 1 else 0), f"flags {foot.flags}")
        check(foot.family_length == self.length, f"length {self.length}, written were {foot.family_length}")
        check(head.header_length <= foot.trailer_offset < start, "trailer_offset")
        check(BLOCK_HEADER_LENGTH < foot.trailer_length <= head.transfer_size, "trailer_length")
        self.blocks_end = end = foot.trailer_offset + foot.trailer_length
        check(self.length == -(-(end + FOOTER_LENGTH) // head.block_size) * head.block_size, "family_length")
        check(head.cipher or is_zero(foot.mac), "mac without a cipher")
        if head.family != 1:
            check(foot.set_block_count == 0 and is_zero(foot.set_digests), "a commit record in a family other than 1")
        else:
            check(is_zero(foot.set_digests[32 * head.families :]), "digests of more families than there are")
            check(foot.set_digests[:32] == foot.family_digest, "its own digest in the commit record")
        self.require(is_zero(self.read(end, start - end)), end, "padding that is not zero")

    def open_with(self, keys):
        """From here on the blocks can be decrypted; the footer is authenticated first (§7, §8)."""
        self.keys = keys
        self.require(keys.footer_mac(self.raw_footer) == self.footer.mac, self.length - FOOTER_LENGTH, "footer: mac")

    def block(self, offset):
        """The block at `offset`, checked, decrypted and unpacked (§4)."""
        head = self.header

        def check(condition, what):
            self.require(condition, offset, f"block: {what}")

        room = self.blocks_end - offset
        check(room >= BLOCK_HEADER_LENGTH, "beyond the trailer")
        raw = self.read(offset, BLOCK_HEADER_LENGTH)
        block = BLOCK.read(raw)
        block.check = check
        check(block.magic == b"fbBK", "no block here")
        check(block.version == 0, f"version {block.version}")
        check(google_crc32c.value(raw[:60]) == block.header_crc, "checksum of the header")
        check(block.reserved_is_zero, "reserved bytes")
        check(block.set_tag == head.media_set_id[:8], "of another media set")
        check(block.family == head.family, f"of family {block.family}")
        check(block.cipher == head.cipher, f"cipher {block.cipher}")
        check(block.codec <= 3, f"codec {block.codec}")
        check(DATA <= block.kind <= TRAILER, f"kind {block.kind}")
        block.stream = block.stream_high << 16 | block.stream_low
        check(block.sequence < 1 << 48, f"sequence {block.sequence}")
        check((block.stream != 0) == (block.kind in (DATA, MAP)), f"stream {block.stream}")
        check(block.kind in (DATA, MAP) or block.layer == 0, f"layer {block.layer}")
        check(block.order == 0 or block.kind == DATA, f"order {block.order} in a block that is not of data")
        check(block.order == 0 or head.window, f"order {block.order}, but window is 0")
        check(block.plain_length <= head.transfer_size, f"plain_length {block.plain_length}")
        check(block.codec or block.plain_length == block.payload_length, "plain_length without a codec")
        # MANIFEST blocks are always Zstandard frames (§6), also where that does not make them smaller.
        check(block.codec == 0 or block.kind == MANIFEST or block.payload_length < block.plain_length, "codec without gain")
        body_length = self.tag_length + block.prefix_length + block.payload_length
        block.length = BLOCK_HEADER_LENGTH + body_length
        check(block.body_length == body_length and block.length <= min(head.transfer_size, room), "body_length")
        check(block.prefix_length >= 16 and block.run_count <= (block.prefix_length - 16) // 16, "prefix_length")
        body = self.read(offset + BLOCK_HEADER_LENGTH, body_length)
        check(google_crc32c.value(body) == block.body_crc, "checksum of the body")
        if head.cipher:
            body = self.keys.open_block(block.sequence, associated=raw[:52], body=body)
            check(body is not None, "does not decrypt")
        runs_end = 16 + 16 * block.run_count
        check(is_zero(body[runs_end : block.prefix_length]), "prefix padding that is not zero")
        try:
            block.plain = unpack(block.codec, body[block.prefix_length :], block.plain_length)
        except (lz4.block.LZ4BlockError, zstandard.ZstdError, zlib.error, ValueError) as error:
            check(False, f"does not unpack: {error}")
        check(len(block.plain) == block.plain_length, f"unpacks to {len(block.plain)} of {block.plain_length} bytes")
        check(digest_of(block.plain) == body[:16], "digest of the plain bytes")
        block.family, block.offset = self, offset
        block.runs = list(struct.iter_unpack("<QII", body[16:runs_end]))
        check_runs(block)
        first = block.runs[0][0] if block.runs else 0
        span = block.runs[-1][0] + block.runs[-1][1] - first if block.runs else 0
        block.entry = struct.pack("<QIBBHQQQII", offset, block.length, block.kind, block.codec, block.stream_low,
                                  block.stream_high << 48 | block.sequence, first, span, block.header_crc, block.body_crc)
        return block

    def blocks(self):
        """All blocks in order, and then everything that stands in the family twice is compared (§2, §6)."""
        head, foot = self.header, self.footer
        offset, phase, block_count, data_bytes, zero_bytes = head.header_length, DATA, 0, 0, 0
        capacity = min(4096, (head.transfer_size - 96) // 48)
        digest, pending, references = blake3.blake3(self.raw_header), [], {INDEX: [], MANIFEST: []}
        while offset < self.blocks_end:
            block = self.block(offset)
            check = block.check
            check((block.kind == TRAILER) == (offset == foot.trailer_offset), "trailer in the wrong place")
            check(block.kind not in (DATA, MAP) or phase != MANIFEST, "data after the manifest")
            phase = MANIFEST if block.kind == MANIFEST else phase
            if block.kind == INDEX:
                check(0 < len(pending) and block.plain == b"".join(pending), "index does not fit the blocks before it")
                pending = []
            elif block.kind != TRAILER:
                check(len(pending) < capacity, f"more than {capacity} blocks without an index block")
                pending.append(block.entry)
            if block.kind in references:
                references[block.kind].append(struct.pack("<QII", offset, block.length, 0))
            if block.kind == DATA:
                data_bytes += block.plain_length
                zero_bytes += sum(length for _, length, kind in block.runs if kind == ZERO_RUN)
            block_count += 1
            digest.update(block.entry[:24] + bytes(16) + block.entry[40:])
            yield block
            offset += block.length
        # The loop ended behind the trailer: `block` is the trailer.
        start = read_trailer_start(block)
        check(not pending, "blocks that no index block names")
        check(block.plain[64:] == b"".join(references[INDEX] + references[MANIFEST]), "trailer: references")
        check((start.index_count, start.manifest_count) == tuple(map(len, references.values())), "trailer: counts")
        check(start.block_count == block_count == foot.block_count, "trailer: block_count")
        check((start.data_bytes, start.zero_bytes) == (data_bytes, zero_bytes), "trailer: data_bytes or zero_bytes")
        self.require(digest.digest() == foot.family_digest, self.length - FOOTER_LENGTH, "footer: family_digest")

    def manifest(self):
        """The plain JSON of the manifest, found by way of the trailer (§6)."""
        trailer = self.block(self.footer.trailer_offset)
        start, text = read_trailer_start(trailer), b""
        for at in range(64 + 16 * start.index_count, len(trailer.plain), 16):
            block = self.block(struct.unpack_from("<Q", trailer.plain, at)[0])
            self.require(block.kind == MANIFEST and block.codec == 2, block.offset, "block: no part of a manifest")
            text += block.plain
            self.require(len(text) <= MANIFEST_LIMIT, block.offset, "manifest: too long")
        return text


def check_runs(block):
    """Their order, kinds and lengths; whether they fit the stream is checked where the stream is known."""
    last = 0
    for start, length, kind in block.runs:
        block.check(length >= 1 and last <= start < 1 << 63, "runs out of order")
        block.check(kind in ((DATA_RUN, ZERO_RUN) if block.kind == DATA else (MAPPED_RUN,)), f"run of kind {kind}")
        last = start + length
    if block.kind == DATA:
        stated = sum(length for _, length, kind in block.runs if kind == DATA_RUN)
        block.check(stated == block.plain_length, f"runs of {stated} bytes, payload of {block.plain_length}")
    else:
        block.check(len(block.runs) == (1 if block.kind == MAP else 0), f"{len(block.runs)} runs")


def read_trailer_start(block):
    """The counts at the start of a TRAILER (§6)."""
    block.check(block.kind == TRAILER and block.codec == 0 and block.plain_length >= 64, "not a plain trailer")
    block.check(block.length == block.family.footer.trailer_length, "trailer_length in the footer")
    start = TRAILER_START.read(block.plain)
    block.check(start.reserved_is_zero and 1 <= start.manifest_count <= 4096, "trailer: reserved bytes or manifest_count")
    block.check(block.plain_length == 64 + 16 * (start.index_count + start.manifest_count), "trailer: length")
    return start
