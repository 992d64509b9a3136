#!/usr/bin/env python3
"""Tests of the independent reader against the independent writer: the good world, and every bad one that is cheap to make."""

import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import google_crc32c

import encryption
import open_sample
import restore
import write_sample
from family import Damage, Family
from open_sample import UNIT, File, OpenSample
from write_sample import Block, Sample

HERE = os.path.dirname(os.path.abspath(__file__))


class Directory(unittest.TestCase):
    """A directory of its own for each test, and what is done in it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        if self.encrypted:
            self.use_a_key()

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, sample, name):
        paths = [self.path(f"{name}-{number}") for number in range(1, sample.families + 1)]
        (open_sample if sample.open else write_sample).write(sample, paths)
        return paths

    def restored(self, paths, base_paths=()):
        """What a restore leaves: name → bytes. Nothing else may stand in the directory."""
        into = tempfile.mkdtemp(dir=self.directory)
        try:
            restore.restore(paths, into, self.key_file, base_paths)
        finally:
            found = {os.path.relpath(os.path.join(top, name), into): read(os.path.join(top, name))
                     for top, _, names in os.walk(into) for name in names}
        return found

    def refused(self, paths, base_paths=()):
        with self.assertRaises(Damage) as caught:
            self.restored(paths, base_paths)
        return caught.exception

    def flip(self, path, bit):
        file = os.open(path, os.O_RDWR)
        byte = os.pread(file, 1, bit // 8)[0]
        os.pwrite(file, bytes([byte ^ 1 << bit % 8]), bit // 8)
        os.close(file)

    encrypted = False
    key_file, public_keys = None, ()

    def use_a_key(self):
        self.key_file = self.path("key")
        self.public_keys = (write_sample.write_key_file(self.path("other key"), 4), write_sample.write_key_file(self.key_file, 3))

    def sample(self, *arguments, **options):
        return Sample(*arguments, public_keys=self.public_keys, **options)

    def full_and_differential(self):
        before, after = write_sample.sample_streams()
        full = self.sample(before)
        return full, self.sample(after, "differential", full, seed=2)


class RoundTrip(Directory):
    def test_a_full_comes_back_whatever_the_order_of_its_families(self):
        full, _ = self.full_and_differential()
        paths = self.write(full, "full")
        self.assertEqual(self.restored(paths), full.streams)
        self.assertEqual(self.restored(paths[::-1]), full.streams)

    def test_a_full_and_its_differential_come_back(self):
        full, differential = self.full_and_differential()
        paths, base_paths = self.write(differential, "diff"), self.write(full, "full")
        self.assertEqual(self.restored(paths, base_paths), differential.streams)

    def test_an_open_full_and_its_differential_come_back(self):
        for with_ordered in (False, True):
            full, differential = open_sample.samples(self.public_keys, with_ordered)
            base_paths, paths = self.write(full, "full"), self.write(differential, "diff")
            self.assertEqual(self.restored(base_paths), full.expected)
            self.assertEqual(self.restored(paths, base_paths), differential.expected)
            self.refused(paths)

    def test_a_full_and_its_differential_with_ordered_streams_come_back(self):
        full, differential = write_sample.samples(self.public_keys, with_ordered=True)
        base_paths, paths = self.write(full, "full"), self.write(differential, "diff")
        self.assertEqual(self.restored(base_paths[::-1]), full.streams)
        self.assertEqual(self.restored(paths, base_paths), differential.streams)

    def test_the_samples_have_ordered_blocks_far_out_of_order(self):
        """Blocks in order, or all of them in one family, would prove little."""
        for module in (write_sample, open_sample):
            for sample in module.samples(with_ordered=True):
                distances = []
                for path in self.write(sample, "sample"):
                    orders = [block.order for block in Family(path).blocks() if block.order]
                    self.assertGreater(len(orders), 5)
                    distances += [max(orders[: at + 1]) - order for at, order in enumerate(orders)]
                self.assertEqual(max(distances), sample.window - 1)

    def test_ordered_streams_of_every_codec_window_and_count_of_families_come_back(self):
        streams = dict(write_sample.sample_streams()[0], **{"dump.sql": write_sample.ordered_streams()[0]["dump.sql"]})
        for number, codec in enumerate(write_sample.CODECS):
            options = dict(codecs=(codec,), window=(1, 3, 16, 4096)[number], families=(3, 1, 8, 64)[number], seed=number,
                           units_per_block=1)
            sample = self.sample(streams, ordered=("dump.sql",), unit=4096 << number, **options)
            self.assertEqual(self.restored(self.write(sample, codec)), streams, codec)
            files = {7: File("a", UNIT, [(0, 0, b"x" * UNIT), (1, 5, b"y")], "a"),
                     0x70000: File("dump.sql", len(streams["dump.sql"]), [(0, 0, streams["dump.sql"])], ordered=True)}
            sample = OpenSample({}, files=files, public_keys=self.public_keys, **options)
            self.assertEqual(self.restored(self.write(sample, f"open {codec}")), sample.expected, codec)

    def test_sets_of_ordered_streams_only_and_empty_ordered_streams_come_back(self):
        for streams in ({"dump.sql": b"x" * 100_001}, {"empty": b""}, {"a": b"", "dump.sql": b"y", "z": b""}):
            sample = self.sample(streams, ordered=tuple(streams), window=1)
            self.assertEqual(self.restored(self.write(sample, "only")), streams)
            sample.map_seed = None  # Such a full has a map or none (§9).
            self.assertEqual(self.restored(self.write(sample, "no map")), streams)
            files = {id: File(name, len(data), [(0, 0, data)], ordered=True) for id, (name, data) in enumerate(streams.items(), 1)}
            sample = OpenSample({}, files=files, window=2, public_keys=self.public_keys)
            self.assertEqual(self.restored(self.write(sample, "open")), streams)

    def test_a_window_without_an_ordered_stream_comes_back(self):
        streams = write_sample.sample_streams()[0]
        self.assertEqual(self.restored(self.write(self.sample(streams, window=4096), "set")), streams)

    def test_a_full_without_a_page_map_and_with_an_ordered_stream_comes_back(self):
        streams = {"app.db": b"x" * 50_000, "dump.sql": b"y" * 50_000}
        sample = self.sample(streams, ordered=("dump.sql",), window=4)
        sample.map_window, sample.map_seed = 0, None
        with mock.patch.object(write_sample, "blocks_of_any_order", lambda sample: [Block(1, 1, [(0, 50_000, 0)], b"x" * 50_000)]):
            self.assertEqual(self.restored(self.write(sample, "set")), streams)

    def test_an_ordered_stream_that_is_not_in_the_full_comes_back(self):
        full = self.sample({"app.db": b"x" * 50_000})
        streams = {"app.db": b"x" * 40_000 + b"y" * 4096, "dump.sql": b"z" * 50_000}
        differential = self.sample(streams, "differential", full, seed=2, ordered=("dump.sql",), window=4)
        self.assertEqual(self.restored(self.write(differential, "diff"), self.write(full, "full")), streams)

    def test_every_codec_unit_and_count_of_families_comes_back(self):
        streams, _ = write_sample.sample_streams()
        for number, codec in enumerate(write_sample.CODECS):
            sample = self.sample(streams, codecs=(codec,), unit=4096 << number, families=(1, 3, 7, 64)[number],
                                 block_size=512 << 2 * number, units_per_block=1, seed=number)
            self.assertEqual(self.restored(self.write(sample, codec)), streams, codec)

    def test_an_empty_stream_and_an_empty_set_come_back(self):
        for streams in ({"empty": b"", "small": b"x"}, {}):
            self.assertEqual(self.restored(self.write(self.sample(streams), f"set{len(streams)}")), streams)

    def test_more_blocks_than_one_index_block_holds_come_back(self):
        data = b"".join(struct.pack("<Q", number) * 512 for number in range(1, 6001))
        sample = self.sample({"many": data}, units_per_block=1, families=2, map_window=1024)
        paths = self.write(sample, "many")
        blocks = list(Family(paths[0]).blocks()) if not self.encrypted else []
        self.assertTrue(not blocks or sum(block.kind == write_sample.INDEX for block in blocks) > 2)
        self.assertEqual(self.restored(paths), sample.streams)

    def test_the_command_restores_refuses_and_names_device_and_offset(self):
        full, _ = self.full_and_differential()
        paths, into = self.write(full, "full"), self.path("into")
        os.mkdir(into)
        key = ["--key", self.key_file] if self.key_file else []
        command = [sys.executable, os.path.join(HERE, "restore.py"), *paths, "--stream-into", into, *key]
        self.assertEqual(subprocess.run(command).returncode, 0)
        self.assertEqual({name: read(os.path.join(into, name)) for name in os.listdir(into)}, full.streams)
        again = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((again.returncode, again.stderr.count("\n")), (3, 1), "an existing stream was overwritten")
        self.flip(paths[1], 4096 * 8)
        for name in os.listdir(into):
            os.remove(os.path.join(into, name))
        damaged = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((damaged.returncode, os.listdir(into)), (3, []))
        self.assertIn(f"{paths[1]}: offset 4096: ", damaged.stderr)


class Refusals(Directory):
    def setUp(self):
        super().setUp()
        self.full, self.differential = self.full_and_differential()
        self.paths = self.write(self.full, "full")

    def assert_bit_is_noticed(self, path, bit, bounds):
        """`bounds` are the starts of the parts of the family: the error has to name the part."""
        self.flip(path, bit)
        damage = self.refused(self.paths)
        self.assertEqual(damage.device, path, f"bit {bit}: {damage}")
        start = max(bound for bound in bounds if bound <= bit // 8)
        self.assertEqual(damage.offset, start, f"bit {bit}: {damage}")
        self.flip(path, bit)

    def test_every_bit_of_headers_and_footers_is_noticed(self):
        for path in self.paths:
            footer = 8 * (os.path.getsize(path) - 4096)
            for bit in (*range(8 * 4096), *range(footer, footer + 8 * 4096)):
                self.flip(path, bit)
                try:
                    Family(path)
                except Damage:
                    self.flip(path, bit)
                else:
                    self.fail(f"bit {bit} of {path} went unnoticed")

    def test_flipped_bits_in_blocks_and_padding_are_noticed_where_they_are(self):
        number = random.Random(5)
        for path in self.paths:
            bounds = self.bounds(path)
            for start, end in zip(bounds, bounds[1:]):
                bits = {8 * start, 8 * end - 1, *(number.randrange(8 * start, 8 * end) for _ in range(3))}
                for bit in sorted(bits) if end > start else ():
                    self.assert_bit_is_noticed(path, bit, bounds)
        self.assertEqual(self.restored(self.paths), self.full.streams)

    def bounds(self, path):
        """Starts of all blocks, of the padding, and of the footer."""
        data, at = read(path), 4096
        bounds = [0]
        while data[at : at + 4] == b"fbBK":
            bounds.append(at)
            at += 64 + struct.unpack_from("<I", data, at + 48)[0]
        return bounds + [at, len(data) - 4096]

    def test_a_truncated_or_longer_family_is_refused(self):
        number = random.Random(6)
        for path in self.paths:
            data = read(path)
            lengths = {0, 1, 255, 4095, 4096, len(data) - 4096, len(data) - 1, *(number.randrange(len(data)) for _ in range(50))}
            for length in sorted(lengths):
                put(path, data[:length])
                self.assertEqual(self.refused(self.paths).device, path)
            for more in (b"\0", bytes(4096), data[-4096:]):
                put(path, data + more)
                self.assertEqual(self.refused(self.paths).device, path)
            put(path, data)

    def test_missing_doubled_and_unreadable_families_are_refused(self):
        one, two = self.paths
        self.assertIn("family 2 of 2 is missing", self.refused([one]).what)
        self.assertIn("family 1 of 2 is missing", self.refused([two]).what)
        self.assertIn("given twice", self.refused([one, two, two]).what)
        self.assertIn("cannot be read", self.refused([one, self.path("none")]).what)
        self.assertIn("cannot be read", self.refused([one, self.directory]).what)

    def test_families_of_another_set_are_refused(self):
        other = self.write(self.sample(self.full.streams, seed=9), "other")
        for mixed in ([self.paths[0], other[1]], [other[0], self.paths[1]], [*self.paths, other[0]]):
            self.assertIn("of another media set", self.refused(mixed).what)

    def test_a_family_of_another_attempt_at_the_same_set_is_refused(self):
        """The same ids, but other content: only the commit record can tell."""
        streams = dict(self.full.streams, **{"app.db": self.full.streams["app.db"][::-1]})
        other = self.write(self.sample(streams), "other")
        self.assertIn("commit record", self.refused([self.paths[0], other[1]]).what)

    def test_a_differential_without_its_own_full_is_refused(self):
        paths = self.write(self.differential, "diff")
        other = self.write(self.sample(self.full.streams, seed=9), "other")
        self.assertIn("give --base", self.refused(paths).what)
        self.assertIn("not the base", self.refused(paths, other).what)
        self.assertIn("not a full", self.refused(paths, paths).what)
        self.assertIn("has no base", self.refused(self.paths, other).what)

    def test_a_newer_version_is_named_before_its_checksum(self):
        self.flip(self.paths[0], 8 * 8 + 1)
        self.assertIn("newer fullbore", self.refused(self.paths).what)


class EncryptedRoundTrip(RoundTrip):
    encrypted = True


class EncryptedRefusals(Refusals):
    encrypted = True
    test_every_bit_of_headers_and_footers_is_noticed = None  # Nothing there depends on the cipher.

    def refused_with(self, key_file):
        self.key_file = key_file
        return self.refused(self.paths).what

    def test_a_set_without_its_key_is_refused(self):
        self.assertIn("give --key", self.refused_with(None))
        self.assertEqual(self.refused(self.paths).offset, 256)
        wrong = self.path("wrong")
        write_sample.write_key_file(wrong, 5)
        self.assertIn("does not open this set", self.refused_with(wrong))
        self.assertIn("No such file", self.refused_with(self.path("none")))

    def test_every_recipient_opens_the_set(self):
        for name in ("key", "other key"):
            self.key_file = self.path(name)
            self.assertEqual(self.restored(self.paths), self.full.streams)

    def test_a_sidecar_of_a_rotation_opens_the_set_for_a_new_recipient(self):
        self.key_file = self.path("new key")
        record = write_sample.wrap_data_key(self.full, write_sample.write_key_file(self.key_file, 5))
        sidecar = b"fbKEYS" + struct.pack("<HHHI", 0, 0, 1, 0) + self.full.ids["media_set_id"] + record
        put(self.path("sidecar"), sidecar + struct.pack("<I", google_crc32c.value(sidecar)))
        into = self.path("into")
        os.mkdir(into)
        restore.restore(self.paths, into, self.key_file, sidecars=[self.path("sidecar")])
        self.assertEqual(read(os.path.join(into, "app.db")), self.full.streams["app.db"])

    def test_a_forger_who_changes_the_order_and_repairs_the_checksum_of_the_block_is_refused(self):
        """The tag does not cover `order` (§4). The index entry has the checksum of the block's header, and is encrypted."""
        streams = {"dump.sql": b"x" * 100_000}
        path = self.write(self.sample(streams, ordered=("dump.sql",), window=4096, families=1), "ordered")[0]
        self.assertEqual(self.restored([path]), streams)
        forged = bytearray(read(path))
        struct.pack_into("<I", forged, 4096 + 52, 4000)
        struct.pack_into("<I", forged, 4096 + 60, google_crc32c.value(bytes(forged[4096:4156])))
        put(path, forged)
        self.assertIn("index does not fit", self.refused([path]).what)

    def test_a_key_file_that_is_damaged_open_to_others_or_public_is_refused(self):
        text = read(self.key_file)
        for change, what in ((text.replace(b"SECRET", b"PRIVATE"), "no key"), (text + text, "second one"), (b"", "no key in it"),
                             (text.replace(text[60:61], bytes([text[60] ^ 1])), ""), (b"#" * 20_000, "longer"),
                             (b"\n".join(line for line in text.split(b"\n") if b"SECRET" not in line), "no secret key")):
            put(self.key_file, change)
            self.assertIn(what, self.refused_with(self.key_file))
        put(self.key_file, text)
        os.chmod(self.key_file, 0o640)
        self.assertIn("chmod 600", self.refused_with(self.key_file))

    def test_a_forger_who_repairs_every_checksum_is_refused(self):
        """A block: by the GCM tag, which covers bytes 0 … 51 of its header too. A footer: by its mac."""
        path = self.paths[1]
        data, footer = read(path), os.path.getsize(path) - 4096
        tagged = [(bit, "does not decrypt") for bit in [*range(8 * 16, 8 * 22), 8 * 64, 8 * 80, 8 * 100]]
        out_of_bounds = [(bit, "sequence") for bit in range(8 * 22, 8 * 24)]
        for bit, what in tagged + out_of_bounds:
            forged = bytearray(data)
            forged[4096 + bit // 8] ^= 1 << bit % 8
            length = 64 + struct.unpack_from("<I", data, 4096 + 48)[0]
            struct.pack_into("<I", forged, 4096 + 56, google_crc32c.value(bytes(forged[4160 : 4096 + length])))
            struct.pack_into("<I", forged, 4096 + 60, google_crc32c.value(bytes(forged[4096:4156])))
            put(path, forged)
            self.assertIn(what, self.refused(self.paths).what)
        for at in (88, 2176, 2207):
            forged = bytearray(data)
            forged[footer + at] ^= 1
            struct.pack_into("<I", forged, footer + 4092, google_crc32c.value(bytes(forged[footer : footer + 4092])))
            put(path, forged)
            self.assertIn("mac", self.refused(self.paths).what)


class EncryptionExample(Directory):
    """The numbers of media-format-encryption.md, "Example"."""

    media_set_id, data_key = bytes.fromhex("6d6564696120736574206e756d626572"), bytes(range(32))
    record = bytes.fromhex(
        "c120c662fd009e925d9934ed0ab882ab" "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
        "80bd239e1f417a8f3a8e2b00d1c1c3f493bb0ffb30db522d07b2b9acc66a4d0b" "9cd03c150f272c448db5685991c28a32") + bytes(32)

    def setUp(self):
        super().setUp()
        put(self.path("key"), b"FULLBORE-SECRET-KEY-1 dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCr1LwfM\n"
                              b"FULLBORE-PUBLIC-KEY-1 hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo6iEtf\n")
        os.chmod(self.path("key"), 0o600)

    def test_the_record_unwraps_and_the_keys_and_the_block_are_the_documents(self):
        data_key = encryption.unwrap_data_key(self.path("key"), self.media_set_id, [bytes(128), self.record])
        self.assertEqual(data_key, self.data_key)
        keys = encryption.SetKeys(data_key)
        self.assertEqual(keys.footer_key.hex(), "ce4cae76b18475b6e4a780827902b1518b706d8294c021f695bc8908e4ca699e")
        body = bytes.fromhex("0b60fa91cf7ba9987273b4a6f1d736e2" "823120c88c75e8d64c")
        self.assertEqual(keys.open_block(0x102030405060708, b"header", body), b"forty-two")

    def test_the_sidecar_is_read_and_refused_when_a_bit_or_byte_is_wrong(self):
        start = b"fbKEYS\0\0" + struct.pack("<HHI", 0, 1, 0) + self.media_set_id + self.record
        sidecar = start + bytes.fromhex("830d09e9")[::-1]
        put(self.path("sidecar"), sidecar)
        self.assertEqual(encryption.read_sidecar(self.path("sidecar"), self.media_set_id), [self.record])
        flipped = [bytes([*sidecar[:bit // 8], sidecar[bit // 8] ^ 1 << bit % 8, *sidecar[bit // 8 + 1 :]])
                   for bit in range(8 * len(sidecar))]
        for wrong in (*flipped, sidecar + b"\0", sidecar[:-1], b""):
            put(self.path("sidecar"), wrong)
            with self.assertRaises(encryption.WrongKey):
                encryption.read_sidecar(self.path("sidecar"), self.media_set_id)


class LyingWriter(Directory):
    """Media whose checksums are right and whose statements are not."""

    def refused_when(self):
        return self.refused(self.write(self.sample(write_sample.sample_streams()[0]), "lying")).what

    def patch(self, name, replacement):
        original = getattr(write_sample, name)
        setattr(write_sample, name, lambda *arguments: replacement(original, *arguments))
        self.addCleanup(setattr, write_sample, name, original)

    def test_overlapping_runs_are_refused(self):
        self.patch("data_blocks", lambda original, *of: list(original(*of)) + list(original(*of))[:1])
        self.assertIn("overlaps", self.refused_when())

    def test_a_full_with_a_gap_is_refused(self):
        self.patch("data_blocks", lambda original, *of: list(original(*of))[1:])
        self.assertIn("is in no block", self.refused_when())

    def test_runs_out_of_order_or_beyond_the_stream_are_refused(self):
        for runs, what in (([(8192, 4096, 0), (4096, 8192, 0)], "out of order"), ([(1 << 40, 12288, 0)], "beyond the end"),
                           ([(0, 9000, 0), (8192, 3288, 0)], "out of order"), ([(1 << 63, 12288, 0)], "out of order"),
                           ([(0, 12288, 0), (20000, 0, 1)], "out of order"), ([(0, 4096, 0)], "payload of 12288"),
                           ([(0, 12288, 2)], "kind 2")):
            self.patch("data_blocks", lambda original, *of: [(runs, b"x" * 12288)])
            self.assertIn(what, self.refused_when())
            self.doCleanups()
            self.setUp()

    def test_a_run_that_is_not_of_whole_units_is_refused(self):
        self.patch("data_blocks", lambda original, *of: [([(0, 12000, 0)], b"x" * 12000)])
        self.assertIn("whole units", self.refused_when())

    def test_families_of_different_times_are_refused(self):
        times = iter((7, 8))
        self.patch("finished_at", lambda original: next(times))
        self.assertIn("finished_at", self.refused_when())

    def test_a_sequence_number_that_comes_twice_or_is_left_out_is_refused(self):
        for numbers in ((0, 1, 1), (0, 1, 3)):
            self.patch("sequences", lambda original: itertools.chain(numbers, itertools.count(numbers[-1] + 1)))
            self.assertIn("sequence", self.refused_when())
            self.doCleanups()
            self.setUp()

    def test_a_page_map_that_lies_is_refused(self):
        self.patch("map_entry", lambda original, sample, unit: bytes(16) if unit[:6] == b"000001" else original(sample, unit))
        self.assertIn("page map of app.db: unit 1", self.refused_when())

    def test_a_page_map_of_an_open_set_that_lies_is_refused_and_one_that_does_not_know_is_not(self):
        for entry, right in ((b"\1" * 16, False), (bytes(16), False), (open_sample.UNKNOWN, True)):
            full, _ = open_sample.samples()
            known, at = full.entry, full.files[1]
            full.entry = lambda file, number: entry if (file, number) == (at, 6) else known(file, number)
            paths = [self.path(f"{entry[0]}-{n}") for n in (1, 2)]
            open_sample.write(full, paths)
            if right:
                restore.restore(paths, tempfile.mkdtemp(dir=self.directory))
            else:
                self.assertIn("page map of shop/item.ibd: unit 6", self.refused(paths).what)

    def test_a_manifest_that_disagrees_with_the_header_is_refused(self):
        swaps = ((b'"full"', b'"differential"'), (b'"sqlite"', b'"mysql"'), (b'"schema": 0', b'"schema": 1'),
                 (b'"size": 368640', b'"size": 368641'), (b'"size": 368640', b'"size": -1'), (b'"id": 70002', b'"id": 1'),
                 (b'"name": "app.db"', b'"name": ".."'), (b'"name": "app.db"', b'"name": "second.db"'),
                 (b'"unit": 4096', b'"unit": 4096.0'), (b'"family": 2', b'"family": 3'), (b'"streams"', b'"strains"'),
                 (b'{"schema"', b'[' * 20_000 + b'{"schema"'), (b'"xxh3-128"', b'"md5"'), (b'"sqlite"', b'"\xff"'))
        for old, new in swaps:
            self.patch("manifest_of", lambda original, sample: original(sample).replace(old, new))
            self.assertIn("manifest: ", self.refused_when(), new[:40])
            self.doCleanups()
            self.setUp()

    def test_a_stream_name_never_leads_out_of_the_directory(self):
        sample = self.sample({"../../../tmp/escaped": b"x" * 5000})
        self.assertEqual(self.restored(self.write(sample, "named")), {"escaped": b"x" * 5000})

    def test_every_number_of_the_header_out_of_bounds_is_refused(self):
        """With its checksum made right: it is the bound that refuses."""
        path = self.write(self.sample({"a": b"x"}, families=1), "lying")[0]
        data = read(path)
        for offset, letter, values in ((12, "I", (0, 4097, 8192, 1 << 20, 1 << 31)), (48, "H", (0, 2)), (50, "H", (0, 65)),
                                       (52, "H", (1,)), (54, "B", (2,)), (55, "B", (0, 2, 4)), (56, "I", (0, 256, 5000, 1 << 17)),
                                       (60, "I", (0, 65537, 1 << 27)), (64, "I", (4097, 1 << 31)), (68, "B", (4,)), (10, "H", (1,)), (70, "H", (1,)),
                                       (128, "I", (65, 1 << 31)), (132, "I", (1025, 200)), (136, "I", (4097, 4000)),
                                       (140, "I", (1,)), (112, "I", (1,)), (80, "B", (0, 200)), (4095, "B", (1,)),
                                       (256, "H", (0,)), (258, "B", (0, 2, 3)), (259, "B", (1,)), (260, "H", (1,)),
                                       (264, "I", (0, 2048, 5000)), (268, "I", (1 << 20, 1 << 23)), (272, "Q", (1 << 63,)), (287, "B", (1,))):
            for value in values:
                lying = bytearray(data)
                struct.pack_into("<" + letter, lying, offset, value)
                struct.pack_into("<I", lying, 252, 0)
                struct.pack_into("<I", lying, 252, google_crc32c.value(bytes(lying[:4096])))
                put(path, lying)
                with self.assertRaises(Damage, msg=f"{value} at {offset}"):
                    Family(path)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


if __name__ == "__main__":
    unittest.main()
