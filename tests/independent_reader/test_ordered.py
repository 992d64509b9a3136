"""Tests of the independent reader: sets with ordered streams whose writer lies about them."""

import itertools
import unittest
from unittest import mock

import open_sample
import write_sample
from open_sample import File, OpenSample
from test_reader import Directory
from write_sample import Block, Sample


class LyingOrderedWriter(Directory):
    """Sets with two ordered streams and right checksums. One statement about the ordered streams is wrong."""

    open = False
    streams = {"app.db": b"app " * 5 * 1024, "dump.sql": b"dump row" * 19_000 + b"end", "object.bak": b"\1\2\3" * 20_001}

    def lying_sample(self, **options):
        options = {"window": 3, "families": 1, "public_keys": self.public_keys, **options}
        if not self.open:
            return Sample(self.streams, ordered=("dump.sql", "object.bak"), **options)
        files = {id: File(name, len(data), [(0, 0, data)], f"of {name}", ordered=name != "app.db")
                 for id, (name, data) in write_sample.numbered(self.streams)}
        return OpenSample({}, files=files, **options)

    @staticmethod
    def pieces(sample):
        """All ordered blocks, of 20,000 bytes, of the two streams in turn. "dump.sql" has 8 blocks, "object.bak" has 4."""
        pieces = [[Block(write_sample.DATA, id, [(at, len(data[at : at + 20_000]), 0)], data[at : at + 20_000])
                   for at in range(0, len(data), 20_000)] for id, data in sample.ordered_streams()]
        return [block for pair in itertools.zip_longest(*pieces) for block in pair if block]

    @staticmethod
    def renumber(blocks):
        for number, block in enumerate(blocks, start=1):
            block.order = number
        return blocks

    def written(self, sample, change=lambda blocks: None, arrange=lambda blocks: blocks, others=lambda blocks: None):
        """Writes a set. `change` changes the ordered blocks, `others` the other blocks, `arrange` the order of appending."""
        def ordered_blocks(sample):
            blocks = self.renumber(self.pieces(sample))
            return change(blocks) or blocks

        def dealt(_, other_blocks, in_order):
            other_blocks = list(other_blocks)
            others(other_blocks)
            return [*arrange(list(in_order)), *other_blocks]

        with mock.patch.multiple(write_sample, ordered_blocks=ordered_blocks, dealt=dealt):
            return self.write(sample, "lying")

    def refused_when(self, *lies, sample=None, **more_lies):
        return self.refused(self.written(sample or self.lying_sample(), *lies, **more_lies)).what

    def assert_refused(self, what, *lies, **more_lies):
        self.assertIn(what, self.refused_when(*lies, **more_lies))

    def patch(self, module, name, replacement):
        original = getattr(module, name)
        patched = mock.patch.object(module, name, lambda *arguments, **options: replacement(original, *arguments, **options))
        patched.start()
        self.addCleanup(patched.stop)

    def test_the_set_comes_back_when_nothing_in_it_lies(self):
        self.assertEqual(self.restored(self.written(self.lying_sample())), self.streams)

    # The numbers.

    def test_a_block_of_an_ordered_stream_without_a_number_is_refused(self):
        def change(blocks):
            blocks[4].order = 0
        self.assert_refused("order 0 in a block of 'dump.sql', which is an ordered stream", change)

    def test_a_number_in_a_block_of_another_stream_is_refused(self):
        def others(blocks):
            blocks[0].order = 13
        self.assert_refused("order 13 in a block of 'app.db', which is not an ordered stream", others=others)

    def test_a_number_in_a_block_that_is_not_of_data_is_refused(self):
        block = write_sample.Writer.block
        for kind in (write_sample.MAP, write_sample.INDEX, write_sample.MANIFEST, write_sample.TRAILER):
            def lying(writer, of_kind, *arguments, order=0, **options):
                return block(writer, of_kind, *arguments, order=5 if of_kind == kind else order, **options)

            with mock.patch.object(write_sample.Writer, "block", lying):
                self.assert_refused("order 5 in a block that is not of data")

    def test_a_number_that_comes_twice_is_refused(self):
        def change(blocks):
            blocks[4].order = 4
        self.assert_refused("order 4 is given twice", change)

    def test_a_number_that_is_left_out_is_refused(self):
        for first, what in ((0, "no block has order 1, but one has order 2"), (6, "no block has order 7, but one has order 8"),
                            (11, "no block has order 12, but one has order 13")):
            def change(blocks):
                for block in blocks[first:]:
                    block.order += 1
            self.assert_refused(what, change)

    # The places in the stream.

    def test_a_stream_that_does_not_begin_at_zero_is_refused(self):
        self.assert_refused("order 2 begins at 20000 of 'dump.sql', but the blocks before it end at 0",
                            lambda blocks: self.renumber(blocks[1:]))

        def later(blocks):
            blocks[0].runs, blocks[0].plain = [(7, 19_993, 0)], blocks[0].plain[7:]
        self.assert_refused("order 1 begins at 7 of 'dump.sql', but the blocks before it end at 0", later)

    def test_a_gap_is_refused(self):
        self.assert_refused("order 4 begins at 40000 of 'dump.sql', but the blocks before it end at 20000",
                            lambda blocks: self.renumber(blocks[:2] + blocks[3:]))

        def one_byte(blocks):
            blocks[2].runs, blocks[2].plain = [(20_000, 19_999, 0)], blocks[2].plain[:-1]
        self.assert_refused("order 5 begins at 40000 of 'dump.sql', but the blocks before it end at 39999", one_byte)

    def test_an_overlap_is_refused(self):
        self.assert_refused("order 4 begins at 20000 of 'dump.sql', but the blocks before it end at 40000",
                            lambda blocks: self.renumber(blocks[:3] + [Block(**vars(blocks[2]))] + blocks[3:]))

    def test_blocks_whose_numbers_are_exchanged_are_refused(self):
        def change(blocks):
            blocks[0].order, blocks[2].order = 3, 1
        self.assert_refused("order 1 begins at 20000 of 'dump.sql', but the blocks before it end at 0", change)

    def test_a_stream_that_does_not_reach_its_size_is_refused(self):
        self.assert_refused("the last block of 'dump.sql' ends at 140000, but its size is 152003", lambda blocks: blocks[:-1])

        def one_byte(blocks):
            blocks[-1].runs, blocks[-1].plain = [(140_000, 12_002, 0)], blocks[-1].plain[:-1]
        self.assert_refused("the last block of 'dump.sql' ends at 152002, but its size is 152003", one_byte)
        self.assert_refused("the last block of 'object.bak' ends at 0, but its size is 60003",
                            lambda blocks: self.renumber([block for block in blocks if block.stream != 3]))

    def test_a_block_beyond_the_size_is_refused(self):
        def change(blocks):
            blocks[-1].runs, blocks[-1].plain = [(140_000, 12_004, 0)], blocks[-1].plain + b"x"
        self.assert_refused("run beyond the end of the stream", change)

    # One block.

    def test_a_block_of_two_runs_is_refused(self):
        for runs in ([(20_000, 1000, 0), (21_000, 19_000, 0)], [(20_000, 20_000, 0), (40_000, 10, 1)]):
            def change(blocks):
                blocks[2].runs = runs
            self.assert_refused("2 runs in a block of an ordered stream", change)

    def test_a_run_of_zeros_is_refused(self):
        def change(blocks):
            blocks[2].runs, blocks[2].plain = [(20_000, 20_000, 1)], b""
        self.assert_refused("a run of zeros in a block of an ordered stream", change)

    def test_a_block_that_is_too_long_is_refused(self):
        def change(most):
            def of(blocks):
                dump = self.streams["dump.sql"]
                blocks = [block for block in blocks if block.stream == 3]
                cuts = (0, most, most + 60_000, len(dump))
                pieces = [Block(1, 70_002, [(at, end - at, 0)], dump[at:end]) for at, end in zip(cuts, cuts[1:])]
                return self.renumber(blocks + pieces)
            return of
        self.assert_refused("61441 bytes in a block of an ordered stream, at most 61440 are allowed", change(61_441))
        self.assertEqual(self.restored(self.written(self.lying_sample(), change(61_440))), self.streams)

    def test_a_layer_is_refused(self):
        last = []

        def change(blocks):
            last.append(blocks.pop())
            last[0].layer = 1

        # The block is the last of its family: otherwise its place would be wrong too.
        what = "layer 1 in a block of an ordered stream" if self.open else "layer 1"
        self.assert_refused(what, change, others=lambda blocks: blocks.extend(last))

    # The order of blocks in a family.

    def test_a_block_that_comes_too_early_in_its_family_is_refused(self):
        for lower, higher in ((1, 4), (8, 9), (1, 12), (5, 7)):
            def arrange(blocks):
                blocks.insert(lower - 1, blocks.pop(higher - 1))
                return blocks
            distance = higher - lower
            self.assert_refused(f"order {lower} comes behind order {higher}, but window is {distance}",
                                arrange=arrange, sample=self.lying_sample(window=distance))
            wide_enough = self.lying_sample(window=distance + 1)
            self.assertEqual(self.restored(self.written(wide_enough, arrange=arrange)), self.streams)

    def test_blocks_of_different_families_may_be_at_any_distance(self):
        """A reader cannot see which of two families was written first."""
        sample = self.lying_sample(window=1, families=2)

        def append(sample, writers, blocks):
            for block in blocks:
                writer = writers[1 if 1 <= block.order <= 6 else 0]
                writer.block(block.kind, block.plain, "lz4", block.stream, block.runs, layer=block.layer, order=block.order)

        with mock.patch.object(write_sample, "append", append):
            self.assertEqual(self.restored(self.written(sample)), self.streams)

    # The header and the manifest.

    def test_a_number_in_a_set_without_a_window_is_refused(self):
        sample = self.lying_sample(window=0)
        sample.ordered = ()
        self.patch(open_sample, "manifest_streams", lambda original, sample: [{**record, "ordered": False} for record in original(sample)])
        block = Block(write_sample.DATA, 1, [(0, 4096, 0)], b"x" * 4096)
        self.assert_refused("order 1, but window is 0", lambda blocks: self.renumber([block]), sample=sample)

    def test_an_ordered_stream_in_a_set_without_a_window_is_refused(self):
        what = "stream 70002 is ordered, but window is 0" if self.open else "stream table: an ordered stream, but window is 0"
        self.assert_refused(what, sample=self.lying_sample(window=0))

    def test_a_window_that_is_too_large_is_refused(self):
        self.assert_refused("header: window 4097", sample=self.lying_sample(window=4097))
        self.assertEqual(self.restored(self.written(self.lying_sample(window=4096))), self.streams)

    def test_an_ordered_stream_with_a_page_map_is_refused(self):
        for module in (write_sample, open_sample):
            self.patch(module, "map_window_of", lambda original, sample, _: 16)
        self.assert_refused("is ordered and has a map_window" if self.open else "stream table: map_window of an ordered stream")

    def test_a_map_block_of_an_ordered_stream_is_refused(self):
        def others(blocks):
            blocks.append(Block(write_sample.MAP, 70_002, [(0, 4096, 2)], bytes(16)))
        self.assert_refused("page map begins at 0", others=others)

    def test_ordered_that_is_neither_true_nor_false_is_refused(self):
        for value in (1, None, "true", []):
            for module in (write_sample, open_sample):
                self.patch(module, "manifest_streams", lambda original, sample: [{**record, "ordered": value} for record in original(sample)])
            self.assert_refused("stream 1: ordered is neither true nor false")


class LyingOrderedWriterOfOpenSets(LyingOrderedWriter):
    open = True

    def test_an_ordered_stream_with_a_base_is_refused(self):
        full = self.lying_sample()
        sample = self.lying_sample(kind="differential", base=full, seed=2)
        full.expected
        sample.files[70_002].base = 1
        base_paths = self.write(full, "base")
        paths = self.written(sample)
        self.assertIn("stream 70002 is ordered and has a base", self.refused(paths, base_paths).what)

    def test_a_differential_whose_base_is_an_ordered_stream_is_refused(self):
        full = self.lying_sample()
        full.expected
        sample = OpenSample({}, "differential", full, seed=2, files={5: File("dump.sql", 100, [], "of dump.sql", 70_002)})
        self.assertIn("stream 5: base 70002", self.refused(self.write(sample, "diff"), self.write(full, "full")).what)


class LyingOrderedWriterOfClosedSets(Directory):
    """Wrong statements that are possible only in a set with a stream table."""

    def lying(self, **options):
        return Sample(LyingOrderedWriter.streams, ordered=("dump.sql",), window=3, **options)

    def test_a_manifest_that_disagrees_with_the_role_is_refused(self):
        for id, ordered_in_manifest in ((1, True), (70_002, False), (70_002, None)):
            def manifest_streams(sample, original=write_sample.manifest_streams):
                records = original(sample)
                record = next(record for record in records if record["id"] == id)
                record["ordered"] = ordered_in_manifest
                if ordered_in_manifest is None:
                    del record["ordered"]
                return records
            with mock.patch.object(write_sample, "manifest_streams", manifest_streams):
                self.assertIn(f"stream {id}: ordered is not as in the header", self.refused(self.write(self.lying(), "lying")).what)

    def test_a_page_map_of_some_streams_of_any_order_only_is_refused(self):
        with mock.patch.object(write_sample, "map_window_of", lambda sample, name: 16 if name == "app.db" else 0):
            self.assertIn("map_window of some streams only", self.refused(self.write(self.lying(), "lying")).what)

    def test_a_map_in_the_manifest_of_a_differential_is_refused(self):
        """The ordered stream has no map_window that would contradict it."""
        streams = {"dump.sql": b"x" * 9000}
        full = Sample(streams, ordered=("dump.sql",), window=3)
        differential = Sample(streams, "differential", full, seed=2, ordered=("dump.sql",), window=3)
        differential.map_seed = 5
        paths, base_paths = self.write(differential, "diff"), self.write(full, "full")
        self.assertIn("a map in a set that is not a full", self.refused(paths, base_paths).what)

    def test_a_differential_that_holds_only_a_part_is_refused(self):
        full, differential = write_sample.samples(with_ordered=True)
        base_paths = self.write(full, "full")

        def ordered_blocks(sample, original=write_sample.ordered_blocks):
            return LyingOrderedWriter.renumber(original(sample)[1:])

        with mock.patch.object(write_sample, "ordered_blocks", ordered_blocks):
            paths = self.write(differential, "diff")
        self.assertIn("but the blocks before it end at 0", self.refused(paths, base_paths).what)


class EncryptedLyingOrderedWriter(LyingOrderedWriter):
    """A forger who has the key repairs the tags too."""

    encrypted = True


if __name__ == "__main__":
    unittest.main()
