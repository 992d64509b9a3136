#!/usr/bin/env python3
"""Compares two builds of fullbore, run after run, in turns.

    bench/compare_builds.py OLD NEW                      two binaries: SQLite, MariaDB and MySQL, 1 GiB, 7 rounds
    bench/compare_builds.py OLD NEW --size 256MiB --rounds 5 --engines sqlite

Each round runs each case with both builds, one directly after the other, in a random order; the page cache is dropped before each
run, but not the program. The first round is discarded. The table has the median of the pairs' ratios of time (new / old), their lowest and highest, and the
greatest peak of memory of both. A backup goes to one file beside the database; then it is verified and restored. Wanted: all
medians within 3 %, and no more memory.

Run it as root on a quiet machine. Servers: tests/servers/install first. Results: bench/results/builds-DATE.json and .md. Only Python's
standard library is used.
"""

import argparse
import datetime
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

from measure import MIB, TARGET, drop_caches, machine, remove, say, size_of, write_results
from servers import Server, fill

KINDS = {"mariadb": "mariadb-11.8", "mysql": "mysql-9"}
CODECS = ["none", "lz4", "zstd:1"]
# The exit code of a job that is done, with warnings.
WARNINGS = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the binary to compare with")
    parser.add_argument("new", help="the binary that is judged")
    parser.add_argument("--size", type=size_of, default=1 << 30, help="of each database (1GiB)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, the first of which is discarded (7)")
    parser.add_argument("--engines", nargs="+", choices=["sqlite", *KINDS], default=["sqlite", *KINDS])
    parser.add_argument("--dir", default=os.path.join(TARGET, "bench"), help="where the files are made; a real disk")
    parser.add_argument("--testdata", default=os.path.join(TARGET, "release", "fullbore-testdata"))
    parser.add_argument("--name", help="of the result (builds-DATE)")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


class Cases:
    """The cases: for each engine and codec a backup, its verification and its restore."""

    def __init__(self, options, work):
        self.options, self.work, self.servers = options, work, []
        self.report = os.path.join(work, "report.json")
        self.environment = {**os.environ, "XDG_CONFIG_HOME": work, "XDG_STATE_HOME": work, "HOME": work}
        self.sources = {engine: self.source(engine) for engine in options.engines}

    def source(self, engine):
        """The words for the database, which is made now, and the target of its restore."""
        if engine == "sqlite":
            path = os.path.join(self.work, "app.db")
            subprocess.run([self.options.testdata, "make", path, "--size", f"{self.options.size // MIB}MiB"], check=True, capture_output=True)
            return [f"sqlite:{path}"], f"sqlite:{self.work}/back.db"
        server = Server(KINDS[engine], os.path.join(self.work, engine))
        fill(server, self.options.size, 8)
        self.servers.append(server)
        if engine == "mysql":
            server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
        url = f"{engine}://root@127.0.0.1:{server.about['port']}"
        return [url, "--password-file", server.about["password_file"]], f"dir:{self.work}/back"

    def all(self):
        return [(engine, codec, verb) for engine in self.sources for codec in CODECS for verb in ("backup", "verify", "restore")]

    def run(self, name, binary, case):
        """Seconds of the whole process, and its peak memory. Each build reads its own media: an older one may not know newer media."""
        (engine, codec, verb), (source, target) = case, self.sources[case[0]]
        family = os.path.join(self.work, f"{engine}-{codec.replace(':', '')}-{name}.bore")
        if verb == "backup":
            remove(family)
            words = ["backup", *source, "--to", family, "--compression", codec]
        elif verb == "verify":
            words = ["verify", "--from", family]
        else:
            remove(target.split(":", 1)[1])
            words = ["restore", "--from", family, "--into", target]
        drop_caches()
        warm(binary)
        begun = time.monotonic()
        done = subprocess.run([binary, *words, "-q", "--report", f"json:{self.report}"], env=self.environment, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        if done.returncode not in (0, WARNINGS):
            raise SystemExit(f"{binary} {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[:600]}")
        with open(self.report) as report:
            return seconds, json.load(report)["peak_rss_bytes"]

    def end(self):
        for server in self.servers:
            server.kill()


def warm(binary):
    """Reads the program, so that its own size does not count."""
    with open(binary, "rb") as program:
        while program.read(MIB):
            pass


def measured(cases, options):
    """Of each case the pairs (old, new) of seconds, and the peaks of memory."""
    figures = {case: {"old": [], "new": []} for case in cases.all()}
    builds = [("old", options.old), ("new", options.new)]
    for number in range(options.rounds):
        for case in cases.all():
            for name, binary in random.sample(builds, 2):
                found = cases.run(name, binary, case)
                if number:
                    figures[case][name].append(found)
        say(f"round {number} of {options.rounds - 1} is done")
    return figures


def shown(figures, options):
    about = machine(options.new, options.dir, {})
    lines = [f"# Two builds of fullbore, {datetime.date.today()}", "",
             f"{options.size // MIB} MiB, {options.rounds - 1} counted rounds; {about['cpu']}, {about['cores']} cores, kernel {about['kernel']}", "",
             "| engine | codec | | old s | new s | new / old (lowest to highest) | memory old → new, MiB |", "|---|---|---|---:|---:|---:|---:|"]
    for (engine, codec, verb), builds in figures.items():
        old, new = builds["old"], builds["new"]
        ratios = [after[0] / before[0] for before, after in zip(old, new)]
        median = statistics.median(ratios)
        mark = "" if 0.97 <= median <= 1.03 else " **beyond 3 %**"
        seconds = [statistics.median(one for one, _ in runs) for runs in (old, new)]
        peaks = [max(peak for _, peak in runs) / MIB for runs in (old, new)]
        lines.append(f"| {engine} | {codec} | {verb} | {seconds[0]:.2f} | {seconds[1]:.2f} | {median:.3f} ({min(ratios):.2f} to "
                     f"{max(ratios):.2f}){mark} | {peaks[0]:.0f} → {peaks[1]:.0f} |")
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    os.makedirs(options.dir, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="builds-", dir=options.dir) as work:
        os.chmod(work, 0o755)  # Servers run as another user.
        cases = Cases(options, work)
        try:
            figures = measured(cases, options)
        finally:
            cases.end()
    result = [{"engine": engine, "codec": codec, "verb": verb, **builds} for (engine, codec, verb), builds in figures.items()]
    write_results(options.name or f"builds-{datetime.date.today()}", result, shown(figures, options))


if __name__ == "__main__":
    main()
