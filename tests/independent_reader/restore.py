#!/usr/bin/env python3
"""Restores media of fullbore: an independent reader, written from docs/MEDIA_FORMAT.md alone (§ = its sections).

It checks everything that the format lets a reader check and shares no code with fullbore. This file has what the
families of a set say together, and the way of the bytes; family.py has one family, encryption.py the keys.

Exit code 0: every stream stands in DIR under its name. 3: refused, with one line that names the device, the offset and
what is wrong; nothing new stands in DIR then. 2: wrong usage.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import uuid
from types import SimpleNamespace

import encryption
import log_set
import ordered
from family import (DATA, DATA_RUN, DIFFERENTIAL, FOOTER_LENGTH, FULL, HEADER, LOG, MAP, Damage, Family, digest_of,
                    is_power_of_two, is_zero)

KIND_NAMES = {1: "full", 2: "differential", 3: "log"}
MAP_ENTRY_LENGTH = 16
UNKNOWN = b"\xff" * MAP_ENTRY_LENGTH
ZEROS = bytes(1 << 20)


class MediaSet:
    """All families of one backup set, in order; its headers, footers, keys and manifest are checked when it is opened."""

    def __init__(self, paths, key_file=None, sidecars=()):
        self.families = sorted((Family(path) for path in paths), key=lambda family: family.header.family)
        self.first = self.families[0]
        self.check_families()
        if self.first.header.cipher:
            self.open_keys(key_file, sidecars)
        for family in self.families:
            family.require(family.footer.finished_at == self.first.footer.finished_at, family.length - FOOTER_LENGTH,
                           f"footer: finished_at is not that of {self.first.path}")
        self.read_manifest()

    def check_families(self):
        """§3 "All families of a set …", §7 "A set is whole when …"."""
        first, head = self.first, self.first.header
        for number, family in enumerate(self.families, start=1):
            same_set = family.header.media_set_id == head.media_set_id
            family.require(same_set, 0, f"of another media set than {first.path}")
            family.require(family.header.family >= number, 0, f"family {family.header.family} is given twice")
            family.require(family.header.family == number, 0, f"family {number} of {head.families} is missing before it")
            same = all(family.raw_header[a:b] == first.raw_header[a:b] for a, b in ((0, 48), (50, 252), (256, None)))
            family.require(same, 0, f"header: not as in {first.path}")
        count = len(self.families)
        first.require(count == head.families, 0, f"family {count + 1} of {head.families} is missing")
        for family in self.families:
            at = 32 * (family.header.family - 1)
            listed = first.footer.set_digests[at : at + 32]
            family.require(listed == family.footer.family_digest, family.length - FOOTER_LENGTH,
                           f"footer: family_digest is not the one in the commit record of {first.path}")
        self.block_count = first.footer.set_block_count
        first.require(self.block_count == sum(family.footer.block_count for family in self.families),
                      first.length - FOOTER_LENGTH, "footer: set_block_count")

    def open_keys(self, key_file, sidecars):
        """§8: the records of the header, then those of the sidecar of a rotation, if one of this set is there."""
        id, records = self.first.header.media_set_id, self.first.wrapped_keys
        self.first.require(key_file, HEADER.size, "encrypted: give --key")
        try:
            records = records + [record for path in sidecars for record in encryption.read_sidecar(path, id)]
            keys = encryption.SetKeys(encryption.unwrap_data_key(key_file, id, records))
        except encryption.WrongKey as error:
            raise Damage(self.first.path, HEADER.size, str(error)) from None
        for family in self.families:
            family.open_with(keys)

    def read_manifest(self):
        """§9. A damaged manifest is reported at the trailer that refers to it."""
        head = self.first.header

        def check(condition, what):
            self.first.require(condition, self.first.footer.trailer_offset, f"manifest: {what}")

        text = self.first.manifest()
        for family in self.families[1:]:
            family.require(family.manifest() == text, family.footer.trailer_offset, "manifest: not as in family 1")
        try:
            manifest = json.loads(text.decode("utf-8"))
            check(isinstance(manifest, dict) and manifest["schema"] == 0, "schema")
            base = manifest["base_backup_set_id"]
            ids = (manifest["media_set_id"], manifest["backup_set_id"], base or str(uuid.UUID(int=0)))
            check(tuple(uuid.UUID(id).bytes for id in ids)
                  == (head.media_set_id, head.backup_set_id, head.base_backup_set_id), "ids")
            check(manifest["kind"] == KIND_NAMES[head.kind], "kind")
            check(manifest["engine"].encode("ascii") == head.engine.rstrip(b"\0"), "engine")
            check((manifest["block_size"], manifest["transfer_size"]) == (head.block_size, head.transfer_size), "sizes")
            self.position = manifest["position"]
            numbers = [family["family"] for family in manifest["families"]]
            check(numbers == list(range(1, head.families + 1)), "families")
            self.changes = manifest.get("changes", "compared")
            check(self.changes in ("compared", "reported"), f"changes {self.changes}")
            check(self.changes == "compared" or head.kind == DIFFERENTIAL, "changes are reported in a set that is not a differential")
            self.map_seed = None
            if manifest["map"] is not None:
                check(manifest["map"]["hash"] == "xxh3-128", "map hash")
                check(re.fullmatch("[0-9a-f]{16}", manifest["map"]["seed"]), "map seed")
                self.map_seed = int(manifest["map"]["seed"], 16)
                check(head.kind == FULL, "a map in a set that is not a full")
            self.streams = {}
            for record in manifest["streams"]:
                stream = self.check_stream(SimpleNamespace(**record), check)
                check(stream.id not in self.streams, f"stream {stream.id} is listed twice")
                self.streams[stream.id] = stream
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            check(False, f"{type(error).__name__}: {error}")
        names = [stream.name for stream in self.streams.values() if stream.name]
        check(len(set(names)) == len(names), "two streams of one name")
        check(self.first.open_set or list(self.first.streams) == list(self.streams), "not the streams of the header")
        mapped = [stream for stream in self.streams.values() if stream.map_window]
        if self.first.open_set:
            check(head.kind == FULL or not mapped, "a page map in a set that is no full")
            nameless = [stream for stream in self.streams.values() if not stream.name]
            check(all(not stream.identity and stream.base is None for stream in nameless), "an identity without a name")
            check(all(stream.identity for stream in mapped) and (not mapped or self.map_seed is not None), "page map")
            check(len({stream.identity for stream in mapped}) == len(mapped), "two streams of one identity")
            bases = [stream.base for stream in self.streams.values() if stream.base is not None]
            check(len(set(bases)) == len(bases) and (head.kind == DIFFERENTIAL or not bases), "bases")

    def check_stream(self, stream, check):
        """One record of `streams`, against its bounds and the stream table of the header."""
        if not self.first.open_set:
            stream.name = os.path.basename(stream.name)
        # Never a way out of DIR.
        parts = stream.name.split("/")
        nameless = self.first.open_set and stream.name == "" and stream.size == 0
        check(nameless or all(part not in ("", ".", "..") and len(os.fsencode(part)) <= 255 for part in parts)
              and "\0" not in stream.name and len(os.fsencode(stream.name)) <= 4096, "stream name")
        check(all(type(number) is int for number in (stream.id, stream.layer, stream.unit, stream.map_window, stream.size)),
              "stream numbers")
        check(1 <= stream.id < 1 << 32 and 0 <= stream.layer <= 65535, f"stream {stream.id}: id or layer")
        check(is_power_of_two(stream.unit, 4096, 65536), f"stream {stream.id}: unit")
        check(0 <= stream.size < 1 << 63, f"stream {stream.id}: size")
        stream.ordered = getattr(stream, "ordered", False)
        check(type(stream.ordered) is bool, f"stream {stream.id}: ordered is neither true nor false")
        table = self.first.streams.get(stream.id, stream)
        check(table.ordered == stream.ordered, f"stream {stream.id}: ordered is not as in the header")
        longest_run = stream.map_window * stream.unit
        check(0 <= longest_run < 1 << 32, f"stream {stream.id}: map_window")
        if self.first.open_set:
            stream.identity, stream.base = getattr(stream, "identity", ""), getattr(stream, "base", None)
            check(isinstance(stream.identity, str) and len(stream.identity.encode()) <= 256, f"stream {stream.id}: identity")
            check(stream.base is None or type(stream.base) is int, f"stream {stream.id}: base")
            if stream.ordered:
                check(self.first.header.window, f"stream {stream.id} is ordered, but window is 0")
                check(not stream.map_window, f"stream {stream.id} is ordered and has a map_window")
                check(stream.base is None, f"stream {stream.id} is ordered and has a base")
                check(stream.name, f"stream {stream.id} is ordered and has no name")
        elif not stream.ordered:  # The header already says that an ordered stream has no map_window.
            check((stream.map_window > 0) == (self.map_seed is not None), f"stream {stream.id}: map_window without a map")
        check(all(getattr(table, name) == getattr(stream, name) for name in ("layer", "unit", "map_window", "size")),
              f"stream {stream.id}: not as in the stream table of the header")
        return stream

    def restore_into(self, files):
        """Applies every block to `files` (stream id → open file) and checks all of it."""
        if self.first.open_set:
            self.restore_layers(files)
            return
        seen, runs, maps = set(), {id: [] for id in self.streams}, {id: {} for id in self.streams}
        in_order = ordered.Blocks(self.first.header)
        for id, stream in self.streams.items():
            if stream.ordered:
                files[id].truncate(0)  # A differential holds the whole stream.
            files[id].truncate(stream.size)
        for family in self.families:
            in_order.begin_family()
            for block in family.blocks():
                block.check(block.sequence < self.block_count and block.sequence not in seen, "sequence")
                seen.add(block.sequence)
                if block.kind not in (DATA, MAP):
                    continue
                stream = self.streams.get(block.stream)
                block.check(stream is not None, f"stream {block.stream} is not in the manifest")
                block.check(block.layer == stream.layer, f"layer {block.layer}")
                block.check(not block.runs or sum(block.runs[-1][:2]) <= stream.size, "run beyond the end of the stream")
                if block.kind == DATA:
                    in_order.take(block, stream)
                    self.apply(block, files[stream.id])
                    if not stream.ordered:
                        check_units(block, stream)
                        runs[stream.id] += [(start, start + length, block) for start, length, _ in block.runs]
                    block.plain = None
                else:
                    check_map_block(block, stream, maps[stream.id])
        # Every sequence is below block_count, none came twice, and there are block_count blocks: none is missing.
        in_order.check_whole(self.streams, self.require_at_end)
        for id, stream in self.streams.items():
            if not stream.ordered:
                self.check_coverage(stream, sorted(runs[id], key=lambda run: run[:2]))
            if stream.map_window:
                self.check_map(stream, files[id], maps[id])

    def restore_layers(self, files):
        """An open set (§3): one pass over all families for each layer, the lowest first; sizes at the end."""
        layers, done, seen, maps = {0}, set(), set(), {id: {} for id in self.streams}
        in_order = ordered.Blocks(self.first.header)
        while layers - done:
            layer = min(layers - done)
            for family in self.families:
                highest = 0
                in_order.begin_family()
                for block in family.blocks():
                    block.check(block.sequence < self.block_count, "sequence")
                    if not done:
                        block.check(block.sequence not in seen, "sequence")
                        seen.add(block.sequence)
                    if block.kind == MAP and not done:
                        stream = self.streams.get(block.stream)
                        block.check(stream is not None and block.layer == 0, f"page map of stream {block.stream}")
                        check_map_block(block, stream, maps[stream.id])
                    if block.kind != DATA:
                        continue
                    block.check(block.layer >= highest, f"layer {block.layer} behind layer {highest}")
                    highest = block.layer
                    layers.add(block.layer)
                    block.check(block.stream in self.streams, f"stream {block.stream} is not in the manifest")
                    if not done:
                        in_order.take(block, self.streams[block.stream])
                    if block.layer == layer:
                        self.apply(block, files[block.stream])
            done.add(layer)
        in_order.check_whole(self.streams, self.require_at_end)
        for id, stream in self.streams.items():
            files[id].truncate(stream.size)
            if stream.map_window:
                self.check_map(stream, files[id], maps[id])

    def require_at_end(self, condition, what):
        """A rule about all blocks together. An error names the trailer of family 1."""
        self.first.require(condition, self.first.footer.trailer_offset, what)

    def apply(self, block, file):
        """Writes the runs of a DATA block where they belong."""
        at = 0
        for start, length, kind in block.runs:
            file.seek(start)
            if kind == DATA_RUN:
                file.write(block.plain[at : at + length])
                at += length
            elif self.first.header.kind != FULL or block.layer > 0:  # Else the new file has zeros there already.
                for done in range(0, length, len(ZEROS)):
                    file.write(ZEROS[: length - done])

    def check_coverage(self, stream, runs):
        """No byte in two runs, and in a full or a log set no byte in none (§4)."""
        end = 0
        full = self.first.header.kind != DIFFERENTIAL
        for start, stop, block in runs:
            block.check(start >= end, f"overlaps another run of {stream.name} at {start}")
            block.check(start == end or not full, f"{stream.name} is in no block from {end} to {start}")
            end = stop
        self.first.require(end == stream.size or not full, self.first.footer.trailer_offset,
                           f"{stream.name} is in no block from {end} to its end at {stream.size}")

    def check_map(self, stream, file, entries):
        """The page map against the restored bytes (§5)."""
        for first_unit in range(0, -(-stream.size // stream.unit), stream.map_window):
            block = entries.get(first_unit)
            self.first.require(block, self.first.footer.trailer_offset, f"no page map of {stream.name} at unit {first_unit}")
            file.seek(first_unit * stream.unit)
            for at in range(0, block.plain_length, MAP_ENTRY_LENGTH):
                entry = block.plain[at : at + MAP_ENTRY_LENGTH]
                number = first_unit + at // MAP_ENTRY_LENGTH
                if self.first.open_set and entry == UNKNOWN:
                    file.seek((number + 1) * stream.unit)
                    continue
                unit = file.read(min(stream.unit, stream.size - number * stream.unit))
                digest = digest_of(unit, self.map_seed)
                right = is_zero(unit) if is_zero(entry) else entry == (b"\1" + bytes(15) if is_zero(digest) else digest)
                block.check(right, f"page map of {stream.name}: unit {number} is another")


def check_units(block, stream):
    """Runs are of whole units (§4)."""
    for start, length, _ in block.runs:
        stop = start + length
        block.check(start % stream.unit == 0 and (stop % stream.unit == 0 or stop == stream.size), "a run that is not of whole units")


def check_map_block(block, stream, entries):
    """A MAP block covers one whole window of units, or the rest of the stream (§5)."""
    window = stream.unit * stream.map_window
    start, length, _ = block.runs[0]
    block.check(window and start % window == 0, f"page map begins at {start}")
    block.check(length == min(window, stream.size - start), f"page map of {length} bytes")
    block.check(block.plain_length == MAP_ENTRY_LENGTH * -(-length // stream.unit), "page map: length")
    block.check(start // stream.unit not in entries, "page map: given twice")
    entries[start // stream.unit] = block


def check_bases(base, differential):
    """What streams of a differential of an open set begin as (§3)."""
    for stream in differential.streams.values():
        if getattr(stream, "base", None) is not None:
            begins = base.streams.get(stream.base)
            differential.first.require(begins is not None and begins.unit == stream.unit and not begins.ordered
                                       and (begins.map_window or differential.changes == "reported"), 0,
                                       f"stream {stream.id}: base {stream.base}")


def apply_logs(newest, log_paths, key_file, database, begun, stop_at):
    """Log sets, in order, over the database that the full, or its differential, restored to (§11)."""
    before, stands = newest.first.header.backup_set_id, log_set.place(newest.position["last"])
    for number, paths in enumerate(log_paths):
        log = MediaSet(paths, key_file, ())
        head = log.first.header
        log.first.require(head.kind == LOG, 55, "not a log set")
        log.first.require(head.base_backup_set_id == before, 112, "not the successor of the set before it")
        log.first.require(list(log.streams) == [1, 2], 132, "not the two streams of a log set")
        files = {id: begun(f"log {number} {id}") for id in log.streams}
        log.restore_into(files)
        for file in files.values():
            file.seek(0)

        def check(condition, what):
            log.first.require(condition, log.first.footer.trailer_offset, what)

        stands, whole = log_set.apply(check, log.position["first"], log.position["last"], files[1], files[2], database, stands, stop_at)
        if not whole:
            return
        before = head.backup_set_id


BINARY_LOG_MAGIC = b"\xfebin"


def write_binary_logs(log, directory):
    """Writes a log set of MySQL or MariaDB as binary log files (docs/engines/mysql-log.md): a piece that begins behind the start of
    its file has the first events of the file before it. mysqlbinlog and mariadb-binlog read them."""
    log.first.require([stream.name for stream in log.streams.values()] == ["binlog"], 132, "a log set alone is nothing: give the full, "
                      "and this with --log")
    (id,) = log.streams
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=directory) as parts:
        with open(os.path.join(parts, "binlog"), "w+b") as stream:
            log.restore_into({id: stream})
            stream.seek(0)
            for number, piece in enumerate(log.position["last"]["pieces"]):
                name = piece["file"]
                target = os.path.join(directory, name)
                log.first.require(name == os.path.basename(name) and name.strip("."), 0, f"piece {name!r}")
                log.first.require(not os.path.lexists(target), 0, f"{target} exists already")
                length = piece.get("head", 0) + piece["bytes"]
                with open(os.path.join(parts, str(number)), "wb") as file:
                    file.write(BINARY_LOG_MAGIC)
                    while length > 0:
                        some = stream.read(min(length, 1 << 20))
                        log.first.require(some, 0, f"piece {name}: the stream ends inside")
                        file.write(some)
                        length -= len(some)
            log.first.require(not stream.read(1), 0, "the stream goes on behind its pieces")
        for number, piece in enumerate(log.position["last"]["pieces"]):
            os.rename(os.path.join(parts, str(number)), os.path.join(directory, piece["file"]))


def restore(paths, directory, key_file=None, base_paths=(), sidecars=(), base_sidecars=(), log_paths=(), stop_at=None):
    """Restores a full, or a full and its differential, and log sets over it, into `directory`; the names are set when all is checked."""
    newest = MediaSet(paths, key_file, sidecars)
    chain, head = [newest], newest.first.header
    if head.kind == LOG and newest.first.open_set:
        return write_binary_logs(newest, directory)
    if head.kind == DIFFERENTIAL:
        newest.first.require(base_paths, 112, f"differential of {uuid.UUID(bytes=head.base_backup_set_id)}: give --base")
        base = MediaSet(base_paths, key_file, base_sidecars)
        base.first.require(base.first.header.kind == FULL, 55, "the base is not a full")
        base.first.require(base.first.header.backup_set_id == head.base_backup_set_id, 32,
                           f"not the base of {newest.first.path}")
        newest.first.require(base.first.open_set == newest.first.open_set, 70, "flags not as in the base")
        check_bases(base, newest)
        for id in base.streams.keys() & newest.streams.keys() if not newest.first.open_set else ():
            newest.first.require(base.streams[id].unit == newest.streams[id].unit, 0, f"stream {id}: unit not as in the base")
        chain.insert(0, base)
    else:
        newest.first.require(head.kind == FULL, 55, "a log set alone is nothing: give the full, and this with --log")
        newest.first.require(not base_paths, 55, "a full has no base")
    # A stream of an open set without a name is of a file that went while it was copied (§3).
    kept = {id: stream for id, stream in newest.streams.items() if stream.name or not newest.first.open_set}
    for stream in kept.values():
        target = os.path.join(directory, stream.name)
        newest.first.require(not os.path.lexists(target), 0, f"{target} exists already")

    with tempfile.TemporaryDirectory(prefix=".restore-", dir=directory) as parts:
        def begun(name):
            return open(os.path.join(parts, name), "w+b")

        if newest.first.open_set:
            full = {id: begun(f"full {id}") for id in chain[0].streams}
            files = {id: full[stream.base] if getattr(stream, "base", None) is not None else begun(str(id))
                     for id, stream in newest.streams.items()} if len(chain) > 1 else full
            chain[0].restore_into(full)
            if len(chain) > 1:
                newest.restore_into(files)
        else:
            files = {id: begun(str(id)) for media in chain for id in media.streams}
            for media in chain:
                media.restore_into(files)
        if log_paths:
            newest.first.require(list(files) == [1], 132, "--log is for SQLite: a log set of a server is read alone")
            apply_logs(newest, log_paths, key_file, files[1], begun, stop_at)
        paths = {id: file.name for id, file in files.items()}
        for file in files.values():
            file.close()
        for id, stream in kept.items():
            os.makedirs(os.path.dirname(os.path.join(directory, stream.name)), exist_ok=True)
            os.rename(paths[id], os.path.join(directory, stream.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("families", nargs="+", metavar="FAMILY", help="all families of the backup set, in any order")
    parser.add_argument("--stream-into", required=True, metavar="DIR", help="an existing directory")
    parser.add_argument("--key", metavar="KEYFILE", help="the key of encrypted media")
    parser.add_argument("--base", nargs="+", default=[], metavar="FAMILY", help="the full that a differential is based on")
    parser.add_argument("--sidecar", nargs=1, default=[], metavar="FILE", help="the sidecar of a rotation of keys")
    parser.add_argument("--base-sidecar", nargs=1, default=[], metavar="FILE", help="the same for the base")
    parser.add_argument("--log", nargs="+", default=[], action="append", metavar="FAMILY", help="a log set to be applied then; repeatable, in order")
    parser.add_argument("--stop-at", type=int, metavar="MICROSECONDS", help="leave out commits that were seen later than this, since 1970")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.stream_into):
        parser.error(f"{arguments.stream_into}: not a directory")
    try:
        restore(arguments.families, arguments.stream_into, arguments.key, arguments.base, arguments.sidecar,
                arguments.base_sidecar, arguments.log, arguments.stop_at)
    except Damage as damage:
        print(damage, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
