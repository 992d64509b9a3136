#!/usr/bin/env python3
"""fullbore on backup files of SQL Server, as ratios to limits of the same run.

    bench/bak/compare.py                 2 GiB, 4 rounds
    bench/bak/compare.py --quick         128 MiB, 2 rounds: does everything run?
    bench/bak/compare.py --only copy     only the cases whose name holds one of these words
    bench/bak/compare.py --check         looks at itself: nothing is measured

`fullbore-testdata bak` writes the files: a full, the same full with 5 % of its pages changed, and a compressed one. The
cases, rounds and the dropped page cache are those of bench/measure.py: every case once in each round, in an order that
turns; the first round is discarded. A ratio is taken within one round, and its median counts.

    verify        fullbore verify of the full; the limit is fio or dd, which read the same file past the page cache
    copy CODEC    fullbore copy into a new repository; the limit is fullbore backup of a SQLite database with the same
                  bytes (blobs of 1 MiB in pages of 8 KiB) into a new repository, with this codec
    second full   bytes in the repository after the second full, less those before it, over the bytes of its changed pages
    unpack        fullbore unpack of the compressed full to nul:, on one worker: 10^6 plain bytes per second of processor
                  time. `unpack.py` measures the blocks of a genuine backup
    export        fullbore export to Parquet: 10^6 bytes of the pages of rows per second of processor time, which is one
                  core's speed. The time has everything: reading the backup, writing its pages, Parquet, fsync
    memory        the greatest resident set, less the pool that the report names. verify, unpack and export have no pool

Results: bench/results/bak-DATE.json and .md. Only the standard library is used.
"""

import argparse
import datetime
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from measure import (DEPTH, MIB, TARGET, TRANSFER, Case, files_under, fio_engine, fio_seconds, in_words, judged,  # noqa: E402
                     machine, median_ratio, run_rounds, say, size_of, table, write_results)

CODECS = ("none", "lz4", "zstd:1")
PAGE = 8192
BESIDE_POOL = 64 * MIB
WANTED = {"verify": 0.9, "copy": 0.9, "second full": 1.1, "unpack": 250, "export": 150}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="bytes of pages in the full (2GiB)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (4)")
    parser.add_argument("--quick", action="store_true", help="128MiB and 2 rounds unless said otherwise")
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--dir", default=os.path.join(TARGET, "bench"), help="where the files are made; a real disk")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    parser.add_argument("--testdata", default=os.path.join(TARGET, "release", "fullbore-testdata"))
    parser.add_argument("--name", help="of the result (bak-DATE)")
    parser.add_argument("--check", action="store_true", help="look at what is summed up and shown; measure nothing")
    options = parser.parse_args()
    options.size = options.size or (128 * MIB if options.quick else 2 << 30)
    options.rounds = options.rounds or (2 if options.quick else 4)
    if options.rounds < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


class Bench:
    """The files, and the cases on them."""

    def __init__(self, options, work):
        self.options, self.work = options, work
        self.report = os.path.join(work, "report.json")
        self.full, self.second, self.packed = (os.path.join(work, name) for name in ("full.bak", "second.bak", "full.bak.packed"))
        self.database, self.repository = os.path.join(work, "same.db"), os.path.join(work, "repository")
        self.config = os.path.join(work, "fullbore.toml")
        self.environment = {"XDG_CONFIG_HOME": work, "XDG_STATE_HOME": os.path.join(work, "state"), "HOME": work}
        with open(self.config, "w") as config:
            config.write(f'[repository.night]\nto = ["{self.repository}/"]\n')
        self.written = self.make()

    def make(self):
        size = ["--size", f"{self.options.size // MIB}MiB"]
        say("the full and its compressed twin …")
        first = self.testdata("bak", self.full, *size, "--packed")
        say("the second full …")
        second = self.testdata("bak", self.second, *size, "--changed", "5%")
        say("the SQLite database with the same bytes …")
        same_bytes(self.full, self.database)
        return {"full": first, "second": second, "database": os.path.getsize(self.database)}

    def testdata(self, *words):
        done = subprocess.run([self.options.testdata, *words], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def fullbore(self, *words):
        return [self.options.fullbore, words[0], "-q", "--config", self.config, *words[1:]]

    def case(self, name, reads, words, writes=()):
        return Case(name, self.fullbore(*words), reads, writes, before=lambda: os.makedirs(self.repository, exist_ok=True),
                    environment=self.environment).with_report(self.report)

    def cases(self):
        bytes_, rows = self.written["full"]["bytes"], self.written["full"]["row_pages"] * PAGE
        out = os.path.join(self.work, "out")
        found = [Case("dd direct", ["dd", f"if={self.full}", "of=/dev/null", f"bs={TRANSFER}", "iflag=direct"], bytes_)]
        if shutil.which("fio"):
            fio = ["fio", "--name=raw", "--direct=1", f"--bs={TRANSFER}", f"--iodepth={DEPTH}", "--thread", "--readonly",
                   f"--ioengine={fio_engine(self.work)}", "--output-format=json", "--rw=read", f"--filename={self.full}"]
            found.append(Case("fio read", fio, bytes_, own_time=fio_seconds))
        found.append(self.case("verify", bytes_, ["verify", "--from", self.full]))
        places = [self.repository, os.path.join(self.work, "state")]
        for codec in CODECS:
            into = ["--compression", codec]
            copy = ["copy", "--from", self.full, "--to-repo", "night", *into]
            backup = ["backup", f"sqlite:{self.database}", "--repo", "night", *into]
            found.append(self.case(f"copy {codec}", bytes_, copy, places))
            found.append(self.case(f"SQLite {codec}", self.written["database"], backup, places))
        found.append(self.case("unpack", bytes_, ["unpack", self.packed, "--to", "nul:", "--workers", "1"]))
        export = ["export", "--from", self.full, "--format", "parquet", "--into", f"dir:{out}"]
        found.append(self.case("export", rows, export, [out]))
        words = self.options.only
        return [case for case in found if not words or any(word in case.name for word in words)]

    def second_full(self):
        """Stored bytes of the second full beside those of its changed pages, for one codec without packing."""
        shutil.rmtree(self.repository, ignore_errors=True)
        os.makedirs(self.repository)
        sizes = [0]
        for file in (self.full, self.second):
            words = self.fullbore("copy", "--from", file, "--to-repo", "night", "--compression", "none")
            subprocess.run(words, check=True, capture_output=True, env={**os.environ, **self.environment})
            sizes.append(sum(map(os.path.getsize, files_under(self.repository))))
        shutil.rmtree(self.repository)
        changed = self.written["second"]["changed_pages"] * PAGE
        return {"first": sizes[1], "second": sizes[2] - sizes[1], "changed": changed,
                "kept": self.written["second"]["bytes"] - self.written["second"]["pages"] * PAGE}


def same_bytes(file, database):
    """A SQLite database of blobs with the bytes of the file, in pages as large as those of SQL Server."""
    if os.path.exists(database):
        os.unlink(database)
    with sqlite3.connect(database) as connection, open(file, "rb") as bytes_:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("CREATE TABLE pieces (id INTEGER PRIMARY KEY, piece BLOB NOT NULL)")
        while piece := bytes_.read(MIB):
            connection.execute("INSERT INTO pieces (piece) VALUES (?)", (piece,))
    connection.close()


def per_core(figures, name):
    """10^6 bytes per second of processor time, the median of the rounds."""
    rounds = figures.get(name)
    return statistics.median(figure["bytes"] / figure["cpu_s"] / 1e6 for figure in rounds) if rounds else None


def targets(figures, second):
    """The targets that are not of memory: (what, measured, wanted, and whether more is better)."""
    found = []
    limits = [name for name in ("fio read", "dd direct") if name in figures]
    found.append(("verify / the best plain read", median_ratio(figures, "verify", limits), WANTED["verify"], True))
    for codec in CODECS:
        ratio = median_ratio(figures, f"copy {codec}", [f"SQLite {codec}"])
        found.append((f"copy {codec} / SQLite {codec}", ratio, WANTED["copy"], True))
    share = second and second["second"] / second["changed"]
    found.append(("stored bytes of the second full / its changed pages", share, WANTED["second full"], False))
    for name in ("unpack", "export"):
        found.append((f"{name}, MB/s of one core", per_core(figures, name), WANTED[name], True))
    return found


def memory(figures):
    """Of each case the greatest memory beside its pool, in bytes."""
    def beside(figure):
        return max(figure["peak_rss"], figure["peak_rss_reported"] or 0) - figure["pool"]
    return {name: max(map(beside, rounds)) for name, rounds in figures.items() if "pool" in rounds[0]}


def shown(result):
    second = result["second_full"]
    lines = [f"# Backup files of SQL Server, {result['date']}", "",
             f"`bench/bak/compare.py`: a full of {result['size'] >> 20} MiB, {result['rounds']} counted rounds, "
             f"{in_words(result['machine'])}", ""]
    if not result["cold"]:
        lines += ["**The page cache could not be dropped (not root): these are warm figures.**", ""]
    lines += table(result["figures"], result["failures"])
    lines += ["", "| target | measured | wanted | |", "|---|---:|---:|---|"]
    for what, value, wanted, more in result["targets"]:
        if more:
            number, verdict = judged(value, wanted)
        else:
            number, verdict = ("–", "not measured") if value is None else (f"{value:.2f}", "met" if value <= wanted else "over")
        lines.append(f"| {what} | {number} | {'≥' if more else '≤'} {wanted} | {verdict} |")
    for name, beside in result["memory"].items():
        verdict = "met" if beside <= BESIDE_POOL else "over"
        lines.append(f"| {name}: memory beside the pool | {beside / MIB:.0f} MiB | ≤ {BESIDE_POOL >> 20} MiB | {verdict} |")
    if second:
        lines += ["", f"The second full: {second['second'] / MIB:.1f} MiB stored for {second['changed'] / MIB:.1f} MiB in changed pages "
                      f"and {second['kept'] / MIB:.1f} MiB of log and descriptions."]
    return "\n".join(lines) + "\n"


def check():
    """What is summed up and shown, on figures that are made up."""
    def figure(seconds, **more):
        return {"bytes": 10**9, "durable_s": seconds, "as_run_s": seconds, "cpu_s": 2 * seconds, "written": 0, "peak_rss": 90 * MIB, **more}
    own = {"pool": 40 * MIB, "peak_rss_reported": 100 * MIB}
    figures = {"dd direct": [figure(2), figure(2)], "fio read": [figure(1), figure(3)], "verify": [figure(2, **own), figure(2, **own)],
               "export": [figure(4, **own)], "copy none": [figure(2, **own)], "SQLite none": [figure(1, **own)]}
    found = dict((what, value) for what, value, _, _ in targets(figures, {"second": 11, "changed": 10}))
    assert found["verify / the best plain read"] == 0.75, "in each round the faster limit counts: 1/2 and 1"
    assert found["copy none / SQLite none"] == 0.5 and found["copy lz4 / SQLite lz4"] is None
    assert found["export, MB/s of one core"] == 125 and found["stored bytes of the second full / its changed pages"] == 1.1
    assert memory(figures)["export"] == 60 * MIB and "dd direct" not in memory(figures)
    host = {"cpu": "x", "cores": 2, "kernel": "y", "file_system": "z", "load_at_start": 0.0, "commit": "c"}
    text = shown({"date": "today", "size": 1 << 30, "rounds": 2, "machine": host, "cold": True, "figures": figures, "failures": {},
                  "targets": targets(figures, None), "memory": memory(figures), "second_full": None})
    assert "| export, MB/s of one core | 125.00 | ≥ 150 | short by 17% |" in text, text
    assert "| export: memory beside the pool | 60 MiB | ≤ 64 MiB | met |" in text and "not measured" in text
    with tempfile.TemporaryDirectory() as work:
        file, database = os.path.join(work, "a"), os.path.join(work, "b")
        with open(file, "wb") as out:
            out.write(os.urandom(3 * MIB + 5))
        same_bytes(file, database)
        with sqlite3.connect(database) as connection:
            pieces = connection.execute("SELECT piece FROM pieces ORDER BY id").fetchall()
        connection.close()
        with open(file, "rb") as bytes_:
            assert b"".join(piece for piece, in pieces) == bytes_.read()
    say("the sums and the table are right")


def main():
    options = arguments()
    if options.check:
        return check()
    os.makedirs(options.dir, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bak-", dir=options.dir) as work:
        about = machine(options.fullbore, work, ["fio", "dd"])
        bench = Bench(options, work)
        figures, failures = run_rounds(bench.cases(), options.rounds, work)
        second = None if options.only and "second" not in options.only else bench.second_full()
    result = {"date": str(datetime.date.today()), "size": options.size, "rounds": options.rounds - 1, "machine": about,
              "written": bench.written, "figures": figures, "failures": failures, "second_full": second,
              "cold": all(figure["cold"] for rounds in figures.values() for figure in rounds),
              "targets": targets(figures, second), "memory": memory(figures)}
    write_results(options.name or f"bak-{result['date']}", result, shown(result))


if __name__ == "__main__":
    main()
