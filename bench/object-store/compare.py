#!/usr/bin/env python3
"""Compares fullbore on S3 servers with the plainest parallel client that the same server ever answers, and with other tools.

    bench/object-store/compare.py                    2 GiB, 5 rounds, MinIO and versitygw: about an hour and a half
    bench/object-store/compare.py --quick            128 MiB, 2 rounds: does everything run?
    bench/object-store/compare.py --install          first gets the other tools (tools.py) and the servers (tests/servers/install-stores)
    bench/object-store/compare.py --server minio     one of minio, versitygw
    bench/object-store/compare.py --group backup ... of backup, restore, tools
    bench/object-store/compare.py --only NAME ...    only the cases whose name holds one of these words

Everything runs on one machine: clients and server share its cores and its disk. Cases, rounds, ratios and the dropped page cache are
those of bench/measure.py: every case once in each round, the first round discarded, medians of the ratios within a round.

The ceiling is what crates/core/examples/store_ceiling gets out of the same server in the same round: the object_store crate, parts of one
size, so many in flight, nothing else. Sizes and flights are tried before (`settings`), and the two best are run in every round: the
better one of the round counts, with as many objects as fullbore writes.

    backup, none    it reads the same file past the page cache and sends it, without checksums of its parts. Shown beside it: the same with
                    checksums (the crate's, CRC-64/NVME), and as many bytes as fullbore stored out of memory, which no backup can do
                    without its source
    backup, lz4     it packs the same file in blocks of 1 MiB on the way: the store's and the codec's limits while both use the same cores,
                    measured and not computed
    restore, none   it fetches the objects that fullbore wrote, into a file, until that is durable
    restore, lz4    the same with the objects that it has packed itself
    `reserved`      the same with all room of the file reserved first, as fullbore does it step by step: shown
    `to memory`     what is fetched is forgotten: shown, for no restore can do without its target; a verification is judged by it

Results: bench/results/object-store-DATE.json and .md. Only the standard library is used.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import peers  # noqa: E402
import shown  # noqa: E402
import tools  # noqa: E402
from measure import MIB, ROOT, TARGET, Case, Failed, machine, measure, run_rounds, say, size_of  # noqa: E402
from stores import Store  # noqa: E402

SERVERS = ("minio", "versitygw")
GROUPS = ("backup", "restore", "tools")
CODECS = ("none", "lz4")
OBJECTS = (1, 4, 8)
CEILING = os.path.join(TARGET, "release", "examples", "store_ceiling")
# Sizes of parts in MiB, and how many of them in flight, that the ceiling is looked for among.
SETTINGS = {"backup none": [(part, flight) for part in (8, 16, 32) for flight in (2, 4, 8, 16)],
            # Of a part that packs well more than 5 MiB has to be left: S3 takes no less.
            "backup lz4": [(part, flight) for part in (32, 64) for flight in (2, 4, 8)],
            "restore": [(part, flight) for part in (4, 8, 16) for flight in (2, 4, 8)]}
BEST = 2


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="size of the database (2GiB)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (5)")
    parser.add_argument("--tool-rounds", type=int, default=None, help="the same of the other tools (3)")
    parser.add_argument("--quick", action="store_true", help="128MiB and 2 rounds unless said otherwise")
    parser.add_argument("--server", action="append", choices=SERVERS, help="which server; may be given more than once")
    parser.add_argument("--group", action="append", choices=GROUPS, help="which group of cases; may be given more than once")
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--dir", default=os.path.join(TARGET, "bench"), help="where everything is made; a real disk")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    parser.add_argument("--tools", default=os.path.join(TARGET, "bench-tools"), help="where the other tools are, or are put")
    parser.add_argument("--install", action="store_true", help="get servers and other tools")
    parser.add_argument("--no-build", action="store_true", help="take the binaries as they are")
    options = parser.parse_args()
    options.size = options.size or (128 * MIB if options.quick else 2 << 30)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.tool_rounds = options.tool_rounds or (2 if options.quick else 3)
    options.server, options.group = options.server or list(SERVERS), options.group or list(GROUPS)
    if min(options.rounds, options.tool_rounds) < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


class Bench:
    """One server, one database, and what is measured on them."""

    def __init__(self, options, kind, work, database):
        self.options, self.work, self.database = options, work, database
        self.size = os.path.getsize(database)
        self.store = Store(kind, os.path.join(work, kind), ["put", "get"])
        self.report, self.target = os.path.join(work, "report.json"), os.path.join(work, "restored")
        self.result = {"kind": kind, "settings": {}, "figures": {}, "failures": {}}

    def run(self, command):
        done = subprocess.run(command, env={**os.environ, **self.store.variables}, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()[:600]}")
        return done.stdout

    def remove(self, bucket, prefix="x"):
        """What stands below the prefix goes, so that nothing of an earlier case costs room."""
        self.run([CEILING, "remove", f"bucket={bucket}", f"prefix={prefix}"])

    def case(self, name, command, *, writes=(), before=None, environment=None, own_time=None):
        environment = {**self.store.variables, **(environment or {})}
        return Case(name, command, self.size, writes, before=before, environment=environment, own_time=own_time,
                    server=self.store.cpu_seconds)

    def ceiling(self, name, verb, bucket, *words, prefix="x", writes=(), before=None):
        command = [CEILING, verb, f"bucket={bucket}", f"prefix={prefix}", *words]
        return self.case(name, command, writes=writes, before=before, own_time=lambda text: json.loads(text)["seconds"])

    def best_of(self, what, settings, case_of):
        """The best settings of the ceiling, each tried once; `case_of(part, flight)` is the trial."""
        tried = {}
        for part, flight in settings:
            figure = measure(case_of(part, flight), self.work)
            tried[f"{part} MiB x {flight}"] = figure["as_run_s"]
            say(f"{what}, {part} MiB x {flight}: {figure['as_run_s']:.2f} s")
        self.result["settings"][what] = tried
        return sorted(settings, key=lambda setting: tried[f"{setting[0]} MiB x {setting[1]}"])[:BEST]

    def rounds(self, cases, rounds):
        if self.options.only:
            cases = [case for case in cases if any(word in case.name for word in self.options.only)]
        if cases:
            figures, failures = run_rounds(cases, rounds, self.work)
            self.result["figures"] |= figures
            self.result["failures"] |= failures

    def fullbore(self, verb, *words):
        return [self.options.fullbore, verb, "-q", *words]

    def backup_words(self, codec, objects, bucket="put", prefix="x"):
        return [f"sqlite:{self.database}", "--to", f"s3://{bucket}/{prefix}/", "--stripes", str(objects), "--compression", codec]

    # Backups.

    def backups(self):
        for codec in CODECS:
            self.backups_of(codec)

    def backups_of(self, codec):
        def clear():
            self.remove("put")

        file = [f"from={self.database}"] + ([f"lz4={self.work}/index"] if codec == "lz4" else [])

        def put(name, part, flight, objects, *source):
            settings = [f"part={part * MIB}", f"flight={flight}", f"objects={objects}"]
            return self.ceiling(name, "put", "put", *settings, *source, before=clear)

        stored = self.stored_bytes(codec)
        self.result.setdefault("stored", {})[codec] = stored
        best = self.best_of(f"backup {codec}", SETTINGS[f"backup {codec}"], lambda part, flight: put("trial", part, flight, 4, *file))
        cases = []
        for objects in OBJECTS:
            cases += [put(f"ceiling {number + 1}, backup {codec}, {objects} objects", part, flight, objects, *file)
                      for number, (part, flight) in enumerate(best)]
            command = self.fullbore("backup", *self.backup_words(codec, objects))
            cases.append(self.case(f"fullbore backup {codec}, {objects} objects", command, before=clear).with_report(self.report))
        part, flight = best[0]
        cases.append(put(f"ceiling with checksums of parts, backup {codec}, 4 objects", part, flight, 4, *file, "checksum=yes"))
        if codec == "none":
            cases.append(put(f"ceiling out of memory, backup {codec}, 4 objects", part, flight, 4, f"bytes={stored}"))
        self.rounds(cases, self.options.rounds)
        clear()

    def stored_bytes(self, codec):
        """How long a set is: measured by a backup to nowhere."""
        self.run(self.fullbore("backup", f"sqlite:{self.database}", "--to", "nul:", "--compression", codec, "--report", f"json:{self.report}"))
        with open(self.report) as report:
            return json.load(report)["stored_bytes"]

    # Restores.

    def restores(self):
        for codec in CODECS:
            self.restores_of(codec)
            for objects in OBJECTS:
                self.remove("get", f"f{objects}")
                self.remove("get", f"c{objects}")

    def restores_of(self, codec):
        index = {objects: [f"lz4={self.work}/index-{objects}"] if codec == "lz4" else [] for objects in OBJECTS}
        for objects in OBJECTS:
            self.run(self.fullbore("backup", *self.backup_words(codec, objects, "get", f"f{objects}")))
            if codec == "lz4":
                self.run([CEILING, "put", "bucket=get", f"prefix=c{objects}", f"objects={objects}", f"part={64 * MIB}", "flight=4",
                          f"from={self.database}", *index[objects]])

        def get(name, part, flight, objects, *words):
            prefix = f"{'c' if codec == 'lz4' else 'f'}{objects}"
            settings = [f"part={part * MIB}", f"flight={flight}", *index[objects]]
            return self.ceiling(name, "get", "get", *settings, *words, prefix=prefix, writes=[self.target])

        into = f"into={self.target}"
        best = self.best_of(f"restore {codec}", SETTINGS["restore"], lambda part, flight: get("trial", part, flight, 4, into))
        cases = []
        for objects in OBJECTS:
            cases += [get(f"ceiling {number + 1}, restore {codec}, {objects} objects", part, flight, objects, into)
                      for number, (part, flight) in enumerate(best)]
            given = ["--from", f"s3://get/f{objects}/"]
            restore = self.fullbore("restore", *given, "--into", f"sqlite:{self.target}")
            cases.append(self.case(f"fullbore restore {codec}, {objects} objects", restore, writes=[self.target]).with_report(self.report))
        part, flight = best[0]
        cases.append(get(f"ceiling through the page cache, restore {codec}, 4 objects", part, flight, 4, into, "buffered=yes"))
        cases.append(get(f"ceiling with its room reserved, restore {codec}, 4 objects", part, flight, 4, into, "reserved=yes"))
        cases.append(get(f"ceiling to memory, {codec}, 4 objects", part, flight, 4))
        verify = self.fullbore("verify", "--from", "s3://get/f4/")
        cases.append(self.case(f"fullbore verify {codec}, 4 objects", verify).with_report(self.report))
        self.rounds(cases, self.options.rounds)

    # Other tools.

    def others(self):
        self.rounds(peers.backups(self), self.options.tool_rounds)
        self.remove("put")
        self.rounds(peers.restores(self), self.options.tool_rounds)


def prepare(options):
    """Servers, tools and binaries."""
    if options.install:
        subprocess.run([os.path.join(ROOT, "tests", "servers", "install-stores"), *SERVERS], check=True)
        tools.install(options.tools)
    if not options.no_build:
        for what in (["-p", "fullbore", "-p", "fullbore-testdata"], ["-p", "fullbore-core", "--example", "store_ceiling"]):
            subprocess.run(["cargo", "build", "--release", "--locked", *what], cwd=ROOT, check=True)


def main():
    options = arguments()
    prepare(options)
    os.makedirs(options.dir, exist_ok=True)
    need = options.size * 6
    if shutil.disk_usage(options.dir).free < need:
        sys.exit(f"{options.dir}: {need >> 20} MiB free are needed; choose another --dir or a smaller --size")
    work = tempfile.mkdtemp(prefix="object-store-", dir=options.dir)
    result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "rounds": options.rounds - 1,
              "tool_rounds": options.tool_rounds - 1, "machine": machine(options.fullbore, work, []),
              "tools": {name: recipe for name, recipe in tools.RECIPES.items() if os.path.exists(os.path.join(options.tools, name))},
              "servers": []}
    try:
        database = os.path.join(work, "bench.db")
        testdata = os.path.join(TARGET, "release", "fullbore-testdata")
        subprocess.run([testdata, "make", database, "--size", f"{options.size >> 20}MiB"], check=True, stdout=sys.stderr)
        result["size"] = os.path.getsize(database)
        for kind in options.server:
            bench = Bench(options, kind, work, database)
            try:
                groups = {"backup": bench.backups, "restore": bench.restores, "tools": bench.others}
                result["servers"].append(bench.result)
                for group in options.group:
                    groups[group]()
                    shown.write(result, options)
            finally:
                bench.store.stop()
                shutil.rmtree(os.path.join(work, kind))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
