#!/usr/bin/env python3
"""Rows per second and MiB/s of full backup, log backup, full restore and log restore, by class of machine: a table and a chart.

    bench/mysql-logical/classes.py                              512 MiB, every class, 3 rounds, MySQL 9
    bench/mysql-logical/classes.py --class micro --class large
    bench/mysql-logical/classes.py --kind mariadb-11.8 --size 4GiB
    bench/mysql-logical/classes.py --quick                      64 MiB, 2 rounds: does everything run?

A class is a number of readers, workers and buffers, as a managed service sells its sizes. Backups are logical. The source has three tables: `narrow` with 3
columns, `numeric` with 22, and `records` with texts of 1 to 100 KB. A log backup holds a burst of small transactions: two rows
each. Restores go into a second, running server. A log restore is the time of full and log, less that of the full alone.

Each class runs once in each round, and the first round is discarded. MiB are those of the rows as the set holds them, and
of the log. Results: bench/results/mysql-classes-KIND.json, .md and .svg.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from measure import MIB, TARGET, in_words, machine, say, size_of, write_results  # noqa: E402
from servers import Server  # noqa: E402

# Readers, workers, and buffers of 1 MiB.
CLASSES = {"micro": (1, 1, 24), "small": (2, 1, 32), "medium": (2, 2, 48), "large": (4, 2, 64), "xlarge": (8, 2, 128)}
PHASES = ("full backup", "log backup", "full restore", "log restore")
COLOURS = ("#3b6fb6", "#79a9dc", "#c2703d", "#e5a978")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--class", dest="classes", action="append", choices=CLASSES)
    parser.add_argument("--kind", default="mysql-9", choices=("mysql-9", "mariadb-11.8", "mariadb-10.11"))
    parser.add_argument("--size", type=size_of, default=None, help="bytes of rows, about (512MiB)")
    parser.add_argument("--transactions", type=int, default=None, help="of the burst before each log backup (8000)")
    parser.add_argument("--rounds", type=int, default=None, help="the first is discarded (3)")
    parser.add_argument("--quick", action="store_true", help="64MiB, 1000 transactions and 2 rounds unless said otherwise")
    parser.add_argument("--dir", default="/var/tmp", help="where servers and media are")
    parser.add_argument("--fullbore", type=os.path.abspath, default=os.path.join(TARGET, "release", "fullbore"))
    options = parser.parse_args()
    options.classes = options.classes or list(CLASSES)
    options.size = options.size or (64 if options.quick else 512) * MIB
    options.transactions = options.transactions or (1000 if options.quick else 8000)
    options.rounds = options.rounds or (2 if options.quick else 3)
    if options.rounds < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="classes-", dir=options.dir)
        os.chmod(self.folder, 0o755)
        settings = ["--redo", "1G", "--option", "local_infile=1", "--option", "innodb_flush_log_at_trx_commit=0", "--option", "sync_binlog=0",
                    "--option", "innodb_buffer_pool_size=2G", "--option", "max_allowed_packet=64M"]
        self.source = Server(options.kind, self.at("source"), "--binlog", *settings)
        self.target = Server(options.kind, self.at("target"), *settings)
        self.fill()

    def at(self, name):
        return os.path.join(self.folder, name)

    def fill(self):
        share = self.options.size // 3
        numbers = share // 180
        doubled = "".join(f"INSERT INTO numbers SELECT n + {1 << step} FROM numbers;" for step in range((numbers - 1).bit_length()))
        text = "REPEAT(CONCAT(SUBSTR(SHA2(n, 256), 1, 40), ' a few words '), %s)"
        wide = [f"i{n} BIGINT" for n in range(10)] + [f"d{n} DECIMAL(14,4)" for n in range(6)] + [f"f{n} DOUBLE" for n in range(5)]
        values = [f"n * {7919 + n} % 1000003" for n in range(10)] + [f"n * {31 + n} % 99991 / 100" for n in range(6)] + [f"n / {8 << n}" for n in range(5)]
        # 51 KB in the middle; 53 bytes for each repetition.
        records = max(1, share // (51 << 10))
        self.source.sql(
            f"SET sql_log_bin = 0; CREATE DATABASE made; USE made; CREATE TABLE numbers (n BIGINT PRIMARY KEY); INSERT INTO numbers VALUES (0); {doubled}"
            f"DELETE FROM numbers WHERE n >= {numbers}; CREATE DATABASE shop; USE shop;"
            f"CREATE TABLE narrow (id BIGINT PRIMARY KEY, name VARCHAR(200), at DATETIME); INSERT INTO narrow SELECT n, {text % 3}, "
            "DATE_ADD('2020-01-01', INTERVAL n SECOND) FROM made.numbers ORDER BY n;"
            f"CREATE TABLE `numeric` (id BIGINT PRIMARY KEY, {', '.join(wide)}); INSERT INTO `numeric` SELECT n, {', '.join(values)} FROM made.numbers ORDER BY n;"
            f"CREATE TABLE records (id BIGINT PRIMARY KEY, t MEDIUMTEXT); INSERT INTO records SELECT n, {text % '19 + n * 7919 % 1910'} FROM made.numbers WHERE n < {records};"
            "CREATE TABLE account (id INT PRIMARY KEY, amount BIGINT); INSERT INTO account SELECT n, 1000 FROM made.numbers WHERE n < 1000;"
            "CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(400)); DROP DATABASE made;"
            "ANALYZE TABLE narrow, `numeric`, records")
        self.rows = sum(int(self.source.sql(f"SELECT COUNT(*) FROM shop.`{name}`")) for name in ("narrow", "numeric", "records", "account"))

    def burst(self):
        """Each transaction changes a row and adds one."""
        count = self.options.transactions
        text = "USE shop;\n" + "".join(f"BEGIN; UPDATE account SET amount = amount + 1 WHERE id = {n % 1000}; "
                                       f"INSERT INTO journal (t) VALUES (REPEAT('{n}', 40)); COMMIT;\n" for n in range(count))
        self.source.sql(text)

    def fullbore(self, *words, server):
        report = self.at("report.json")
        scheme = "mysql" if self.options.kind.startswith("mysql") else "mariadb"
        url = f"{scheme}://root@/?socket={server.about['socket'].replace('/', '%2F')}"
        command = [self.options.fullbore, *(url if word == "URL" else word for word in words), "-q", "--password-file", server.about["password_file"],
                   "--report", f"json:{report}"]
        environment = {**os.environ, "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder, "XDG_STATE_HOME": self.at("state")}
        begun = time.monotonic()
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip()[-800:]}")
        with open(report) as file:
            return seconds, json.load(file)

    def once(self, name):
        """Seconds and bytes of the four phases."""
        readers, workers, buffers = CLASSES[name]
        size = ["--workers", str(workers), "--buffer-count", str(buffers)]
        for place in ("full", "log"):
            shutil.rmtree(self.at(place), ignore_errors=True)
        backup = ["backup", "URL", "--compression", "none", "--max-transfer-size", "1MiB", "--mkdir", *size]
        full, told = self.fullbore(*backup, "--method", "logical", "--readers", str(readers), "--to", "full/", server=self.source)
        self.burst()
        log, log_told = self.fullbore(*backup, "--kind", "log", "--base", "full/", "--to", "log/", server=self.source)
        restore = ["restore", "--into", "URL", "--replace", *size, "--from", "full/"]
        alone, _ = self.fullbore(*restore, server=self.target)
        both, _ = self.fullbore(*restore, "--from", "log/", server=self.target)
        held, logged = told["source_bytes"], log_told["source_bytes"]
        rows, changed = self.rows, 2 * self.options.transactions
        return {"full backup": (full, held, rows), "log backup": (log, logged, changed), "full restore": (alone, held, rows),
                "log restore": (max(both - alone, 0.001), logged, changed)}

    def run(self):
        found = {name: [] for name in self.options.classes}
        for number in range(self.options.rounds):
            for name in self.options.classes:
                say(f"round {number}: {name} …")
                found[name].append(self.once(name))
        return {name: {phase: [statistics.median(once[phase][part] for once in rounds[1:]) for part in range(3)] for phase in PHASES}
                for name, rounds in found.items()}


def chart(figures, title):
    """Bars of MiB/s: a group for each class."""
    speeds = {name: [bytes_ / MIB / seconds for seconds, bytes_, _ in phases.values()] for name, phases in figures.items()}
    most = max(max(of_class) for of_class in speeds.values())
    width, height, group = 140 + 150 * len(speeds), 320, 150
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
             f'<rect width="{width}" height="{height}" fill="white"/>', f'<text x="10" y="18" font-size="13">{title}</text>']
    for place, (phase, colour) in enumerate(zip(PHASES, COLOURS)):
        parts.append(f'<rect x="{10 + 110 * place}" y="28" width="10" height="10" fill="{colour}"/><text x="{24 + 110 * place}" y="37">{phase}</text>')
    for number, (name, values) in enumerate(speeds.items()):
        left = 20 + group * number
        for place, (value, colour) in enumerate(zip(values, COLOURS)):
            tall = 210 * value / most
            parts.append(f'<rect x="{left + 32 * place}" y="{290 - tall:.1f}" width="26" height="{tall:.1f}" fill="{colour}"/>'
                         f'<text x="{left + 32 * place + 13}" y="{286 - tall:.1f}" text-anchor="middle">{value:.0f}</text>')
        parts.append(f'<text x="{left + 62}" y="308" text-anchor="middle">{name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main():
    options = arguments()
    bench = Bench(options)
    try:
        figures = bench.run()
    finally:
        bench.source.kill()
        bench.target.kill()
        shutil.rmtree(bench.folder, ignore_errors=True)
    host = machine(options.fullbore, options.dir, {})
    lines = [f"{in_words(host)}", "", f"{bench.source.about['version']}, {bench.rows:,} rows of about {options.size // MIB} MiB, {options.transactions} transactions in the log, "
             f"medians of {options.rounds - 1} rounds", "",
             "| class | readers, workers, buffers of 1 MiB | " + " | ".join(f"{phase}, rows/s | MiB/s" for phase in PHASES) + " |", "|---" * (2 + 2 * len(PHASES)) + "|"]
    for name, phases in figures.items():
        cells = " | ".join(f"{rows / seconds:,.0f} | {bytes_ / MIB / seconds:.1f}" for seconds, bytes_, rows in phases.values())
        lines.append(f"| {name} | {', '.join(map(str, CLASSES[name]))} | {cells} |")
    name = f"mysql-classes-{options.kind}" + ("-quick" if options.quick else "")
    result = {"machine": host, "kind": options.kind, "size": options.size, "rows": bench.rows, "transactions": options.transactions, "classes": figures}
    stem = write_results(name, result, "\n".join([*lines, "", f"![MiB/s by class]({name}.svg)", ""]))
    with open(stem + ".svg", "w") as out:
        out.write(chart(figures, f"MiB/s by class, {options.kind}"))


if __name__ == "__main__":
    main()
