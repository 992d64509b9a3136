#!/usr/bin/env python3
"""Compares logical backups and loads of fullbore with mydumper, myloader, the server's own dump program, LOAD DATA, and a
client that discards rows.

    bench/mysql-logical/compare.py                     512 MiB, 4 rounds, MySQL 9 and MariaDB 11.8
    bench/mysql-logical/compare.py --quick             64 MiB, 2 rounds: does everything run?
    bench/mysql-logical/compare.py --install           first installs mydumper with apt-get
    bench/mysql-logical/compare.py --server mysql-9 --size 768MiB --tables 10000 --only load
    bench/mysql-logical/compare.py --server mysql-9 --size 4GiB --shapes integer numeric --only dump

The same rows are stored in several shapes, each in a database of its own: a table with an integer key, with a string key, with
a composite key, without a key, with two secondary indexes, and many small tables. `numeric` has 22 columns of numbers, and the
rows of `long` have 1 to 100 KB. Large sizes do not fit with all shapes: choose some with --shapes, and --out on a disk. Cases,
rounds and ratios are those of bench/measure.py: every case once in each round, the first round discarded, medians of the ratios
within a round. The rows are in the server's memory; all dumps go to files in memory (--out). All programs use the Unix socket.

A load goes into a second server of the same kind, without a binary log. What the case before it has loaded is dropped, and
written pages are awaited, before the time begins. Where a measurement has to wait for its turn:

    bench/mysql-logical/compare.py --server mysql-9 --make /var/tmp/made --owner $$
    bench/mysql-logical/compare.py --server mysql-9 --made /var/tmp/made --only dump
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from measure import (MIB, TARGET, Case, in_words, machine, median_ratio, run_rounds, say, size_of,  # noqa: E402
                     table, targets, write_results)
from servers import Server  # noqa: E402
from statistics import median  # noqa: E402

KINDS = ("mysql-9", "mariadb-11.8", "mariadb-10.11")
# Bytes of a row of text and of a row of numbers as text, about.
ROW, NUMBERS_ROW = 190, 190
KEYS = {
    "integer": ("id BIGINT", "n", "PRIMARY KEY (id)"),
    "string": ("id VARCHAR(40)", "CONCAT('user', LPAD(n * 7919 % 100000007, 12, '0'))", "PRIMARY KEY (id)"),
    "composite": ("id BIGINT, part VARCHAR(10)", "n DIV 100, CONCAT('p', n % 100)", "PRIMARY KEY (id, part)"),
    "nokey": ("id BIGINT", "n", None),
    "indexed": ("id BIGINT", "n", "PRIMARY KEY (id), KEY (name), KEY (at)"),
}
# Memory in sizes of a shape: the source's pool for each shape; the target's pool; a dump.
POOL, TARGET_POOL, DUMP = 1.35, 3, 1
KEY_SHAPES = ["integer", "string", "composite", "nokey"]
SHAPES = [*KEY_SHAPES, "numeric", "long", "indexed", "many"]
# Databases that stay in a target.
SERVERS_OWN = ("mysql", "sys", "information_schema", "performance_schema", "blank")
# How long a load waits for the pages of the load before it, in seconds.
PAGES_WRITTEN = 60
# The shapes that other programs dump and load, too.
DUMPED, LOADED = ["integer", "numeric", "long", "many"], ["integer", "numeric", "long", "indexed"]
# The shapes whose rows the server's own client loads: what the server needs for each shape, whoever loads it.
RAW = [*KEY_SHAPES, "many"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="bytes of each shape (512MiB)")
    parser.add_argument("--tables", type=int, default=None, help="small tables (2000)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (4)")
    parser.add_argument("--server", action="append", choices=KINDS, help="which server; may be given more than once")
    parser.add_argument("--quick", action="store_true", help="64MiB, 200 tables, 2 rounds unless said otherwise")
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=SHAPES, help="shapes wanted (all)")
    parser.add_argument("--dir", default="/var/tmp", help="where the servers are")
    parser.add_argument("--out", default="/dev/shm", help="where dumps are written: memory")
    parser.add_argument("--make", metavar="DIR", help="start and fill the servers in DIR, and leave them to --owner")
    parser.add_argument("--owner", type=int, help="the process whose end is the end of the servers of --make")
    parser.add_argument("--made", metavar="DIR", help="measure with the servers in DIR")
    parser.add_argument("--install", action="store_true", help="apt-get install mydumper")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    options = parser.parse_args()
    options.size = options.size or (64 * MIB if options.quick else 512 * MIB)
    options.tables = options.tables or (200 if options.quick else 2000)
    options.rounds = options.rounds or (2 if options.quick else 4)
    if "many" in options.shapes and "integer" not in options.shapes:
        parser.error("--shapes: many needs integer, too, because its rows come from there")
    options.loads = not options.only or any("dump" not in word for word in options.only)
    needed = in_memory(options)
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))
    if not options.made and needed > free:
        parser.error(f"--size: the servers and dumps need {int(needed) >> 20} MiB of memory, and {free >> 20} MiB are free")
    options.server = options.server or ["mysql-9", "mariadb-11.8"]
    return options


def chosen(options, shapes):
    return [shape for shape in shapes if shape in options.shapes]


def in_memory(options):
    """The bytes that the servers' pools and the files in --out take."""
    sizes = pool_of_source(options) + DUMP
    if options.loads:
        # A set of each shape, the dumps of mydumper, the text of rows, and the dump of `integer`.
        sizes += TARGET_POOL + len(options.shapes) + len(chosen(options, [*LOADED, *RAW])) + 1
    on_disk = not os.path.realpath(options.out).startswith("/dev/shm")
    return (pool_of_source(options) + (TARGET_POOL if options.loads else 0) if on_disk else sizes) * options.size + (1 << 30)


def pool_of_source(options):
    """In sizes of a shape: every shape, and the numbers that the rows are made from."""
    return POOL * len(options.shapes) + 0.3


def fill(server, size, tables, shapes):
    """The same rows in every shape. Numbers come from a table that is doubled."""
    rows = size // ROW
    text = "CONCAT(MD5(n), ' ', REPEAT('some words ', 8))" if not server.about["version"].startswith("9") else \
        "CONCAT(SUBSTR(SHA2(n, 256), 1, 32), ' ', REPEAT('some words ', 8))"
    doubled = "".join(f"INSERT INTO numbers SELECT n + {1 << step} FROM numbers;" for step in range((rows - 1).bit_length()))
    server.sql("CREATE DATABASE made; USE made; SET SESSION sql_log_bin = 0; CREATE TABLE numbers (n BIGINT PRIMARY KEY); "
               f"INSERT INTO numbers VALUES (0); {doubled} DELETE FROM numbers WHERE n >= {rows}")
    for shape, (columns, values, key) in KEYS.items():
        if shape not in shapes:
            continue
        definition = ", ".join(filter(None, [columns, "name VARCHAR(200)", "amount DECIMAL(12,2)", "at DATETIME", key]))
        server.sql(f"SET sql_log_bin = 0; CREATE DATABASE `{shape}`; USE `{shape}`; CREATE TABLE t ({definition}); INSERT INTO t "
                   f"SELECT {values}, {text}, n / 100, DATE_ADD('2020-01-01', INTERVAL n SECOND) FROM made.numbers ORDER BY n; "
                   "ANALYZE TABLE t")
    if "numeric" in shapes:
        fill_numeric(server, rows * ROW // NUMBERS_ROW)
    if "long" in shapes:
        server.sql("SET sql_log_bin = 0; CREATE DATABASE `long`; USE `long`; CREATE TABLE t (id BIGINT PRIMARY KEY, body LONGTEXT, "
                   f"at DATETIME); INSERT INTO t SELECT n, REPEAT({text}, 8 + n * 7919 % 793), '2026-01-01' FROM made.numbers "
                   f"WHERE n < {max(1, size // 51200)} ORDER BY n; ANALYZE TABLE t")
    if "many" in shapes:
        fill_many(server, rows, tables)


def fill_many(server, rows, tables):
    """The rows of `integer` in small tables."""
    share = max(1, rows // tables)
    made = [f"CREATE TABLE t{number:05} LIKE `integer`.t; INSERT INTO t{number:05} SELECT * FROM `integer`.t "
            f"WHERE id >= {number * share} AND id < {(number + 1) * share};" for number in range(tables)]
    server.sql("SET sql_log_bin = 0; CREATE DATABASE many; USE many; " + "\n".join(made))


def fill_numeric(server, rows):
    """22 columns: a key, ten integers, six decimals, five doubles."""
    columns = [f"i{n} BIGINT" for n in range(10)] + [f"d{n} DECIMAL(14,4)" for n in range(6)] + [f"f{n} DOUBLE" for n in range(5)]
    values = [f"n * {7919 + n} % 1000003" for n in range(10)] + [f"n * {31 + n} % 99991 / 100" for n in range(6)] + \
        [f"n / {8 << n}" for n in range(5)]
    server.sql(f"SET sql_log_bin = 0; CREATE DATABASE `numeric`; USE `numeric`; CREATE TABLE t (id BIGINT PRIMARY KEY, "
               f"{', '.join(columns)}); INSERT INTO t SELECT n, {', '.join(values)} FROM made.numbers WHERE n < {rows} ORDER BY n; "
               "ANALYZE TABLE t")


def url(kind, server, database=""):
    scheme = "mysql" if kind.startswith("mysql") else "mariadb"
    return f"{scheme}://root@{database or '/'}?socket={server.about['socket'].replace('/', '%2F')}"


def dump_program(server):
    for name in ("mysqldump", "mariadb-dump"):
        path = os.path.join(server.about["bin"], name)
        if os.path.exists(path):
            return [path, f"--defaults-extra-file={server.about['client_options']}", "--single-transaction", "--quick",
                    *(["--set-gtid-purged=OFF"] if name == "mysqldump" else [])]
    return None


def of_server(server):
    """The processor seconds of a server so far."""
    ticks = os.sysconf("SC_CLK_TCK")

    def seconds():
        with open(f"/proc/{server.about['pid']}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / ticks
    return seconds


def login(program, server):
    """mydumper and myloader take their login from a file."""
    with open(server.about["password_file"]) as file:
        password = file.read().strip()
    path = os.path.join(server.folder, f"{program}.cnf")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(f"[client]\nuser=root\npassword={password}\nsocket={server.about['socket']}\n"
                  f"[{program}]\nuser=root\npassword={password}\nsocket={server.about['socket']}\n")
    return [program, f"--defaults-file={path}", "--user", "root", "--socket", server.about["socket"], "--threads", "2"]


def mydumper(server, shape, out, *more):
    # About as many rows for each file as fullbore has in a chunk.
    return [*login("mydumper", server), "--rows", "170000", "--database", shape, "--outputdir", out, *more]


def each_table(options, server, out, name, statement):
    """One statement for each of the small tables."""
    path = os.path.join(out, f"{name}.sql")
    os.makedirs(out, exist_ok=True)
    with open(path, "w") as file:
        file.writelines(statement.format(f"t{number:05}") + "\n" for number in range(options.tables))
    return [os.path.join(HERE, "discard.py"), server.about["socket"], server.about["password_file"], "--each", path]


def dump_cases(options, kind, server, out):
    report, cases, cpu = os.path.join(out, "report.json"), [], of_server(server)
    to = os.path.join(out, "dumped")

    def case(name, command, **more):
        cases.append(Case(name, command, options.size, [to], server=cpu, cold=False, **more))
        return cases[-1]

    for shape, codec in [*((shape, "none") for shape in SHAPES if shape != "indexed"), ("integer", "gzip")]:
        if shape not in options.shapes:
            continue
        command = [options.fullbore, "backup", "-q", "--mkdir", url(kind, server, f"/{shape}"), "--method", "logical",
                   "--password-file", server.about["password_file"], "--readers", "2", "--compression", codec, "--to", f"{to}/"]
        case(f"fullbore dump {shape}" + (" gzip" if codec != "none" else ""), command).with_report(report)
    for shape in chosen(options, ("integer", "numeric", "long")):
        case(f"client discards {shape}", [os.path.join(HERE, "discard.py"), server.about["socket"],
                                          server.about["password_file"], f"SELECT * FROM `{shape}`.t"])
    if "many" in options.shapes:
        case("floor of dump many", each_table(options, server, out, "opens", "SELECT * FROM `many`.{} LIMIT 0"))
    program = dump_program(server)
    for shape in chosen(options, DUMPED):
        if program:
            case(f"dump program {shape}", ["sh", "-c", " ".join(program) + f" {shape} > {to}"])
        if shutil.which("mydumper"):
            case(f"mydumper {shape}", mydumper(server, shape, to))
    if shutil.which("mydumper") and "integer" in options.shapes:
        case("mydumper integer gzip", mydumper(server, "integer", to, "--compress"))
    return cases


def load_cases(options, kind, source, target, out):
    """Sets and dumps are made once, outside of the measurement; so is an empty target."""
    cases, cpu, client = [], of_server(target), " ".join(target.client())

    def case(name, command):
        cases.append(Case(name, command, options.size, server=cpu, cold=False, before=lambda: empty(target)))

    for shape in options.shapes:
        command = [options.fullbore, "restore", "-q", "--from", os.path.join(out, f"kept-{shape}"), "--into", url(kind, target),
                   "--password-file", target.about["password_file"]]
        case(f"fullbore load {shape}", command)
    if "many" in options.shapes:
        case("floor of load many", each_table(options, target, out, "creates", "CREATE TABLE loaded.{} LIKE blank.`integer`"))
    if shutil.which("myloader"):
        for shape in chosen(options, LOADED):
            command = [*login("myloader", target), "--directory", f"{out}/my-{shape}", "--database", shape]
            case(f"myloader {shape}", command)
    for shape in chosen(options, RAW):
        clients = " & ".join(f"{client} --local-infile=1 loaded < {script}" for script in raw_scripts(out, shape))
        # `wait` gives the exit code of the first client, if there are two.
        case(f"raw LOAD DATA {shape}", ["sh", "-c", f"{clients} && wait $!"])
    if "integer" not in options.shapes:
        return cases
    if dump_program(source):
        case("SQL text loaded", ["sh", "-c", f"{client} loaded < {out}/dump.sql"])
    return cases


def empty(target):
    """Drops what a load has made, and waits until its pages are on the disk: they are not the work of the next load."""
    made = [name for name in target.sql("SHOW DATABASES").split() if name not in SERVERS_OWN]
    target.sql("".join(f"DROP DATABASE `{name}`;" for name in made) + "CREATE DATABASE loaded; "
               "SET GLOBAL innodb_max_dirty_pages_pct = 0")
    ends = time.monotonic() + PAGES_WRITTEN
    while time.monotonic() < ends and int(target.sql("SHOW STATUS LIKE 'Innodb_buffer_pool_pages_dirty'").split()[1]) > 100:
        time.sleep(0.1)
    target.sql("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")


def keep(options, kind, source, target, out):
    """What the loads read."""
    for shape in options.shapes:
        kept = os.path.join(out, f"kept-{shape}")
        subprocess.run([options.fullbore, "backup", "-q", "--mkdir", url(kind, source, f"/{shape}"), "--method", "logical",
                        "--password-file", source.about["password_file"], "--readers", "2", "--to", f"{kept}/"], check=True)
    if shutil.which("mydumper"):
        for shape in chosen(options, LOADED):
            subprocess.run(mydumper(source, shape, f"{out}/my-{shape}"), check=True)
    target.sql("CREATE DATABASE blank")
    for shape in chosen(options, RAW):
        keep_raw(options, source, target, out, shape)
    program = dump_program(source)
    if program and "integer" in options.shapes:
        subprocess.run(["sh", "-c", " ".join(program) + f" integer > {out}/dump.sql"], check=True)


def raw_scripts(out, shape):
    """What the clients of a raw load run: one for one table, two for many tables."""
    return [os.path.join(out, f"raw-{shape}-{lane}.sql") for lane in range(2 if shape == "many" else 1)]


def keep_raw(options, source, target, out, shape):
    """The rows of each table as one file, and statements that create and load the tables."""
    rows, scripts = os.path.join(out, f"rows-{shape}"), raw_scripts(out, shape)
    subprocess.run([options.fullbore, "restore", "-q", "--from", f"{out}/kept-{shape}", "--into", f"dir:{rows}"], check=True)
    if shape != "many":
        made = source.sql(f"SHOW CREATE TABLE `{shape}`.t").split("\t", 1)[1].replace("\\n", "\n")
        target.sql(f"USE blank; {made}; RENAME TABLE t TO `{shape}`")
    statements = []
    for name in sorted(os.listdir(f"{rows}/{shape}")):
        folder = f"{rows}/{shape}/{name}"
        if os.path.isdir(folder):
            subprocess.run(["sh", "-c", f"for file in *.tsv; do cat $file; rm $file; done > ../{name}.rows"], check=True, cwd=folder)
            like = "integer" if shape == "many" else shape
            statements.append(f"CREATE TABLE {name} LIKE blank.`{like}`; LOAD DATA LOCAL INFILE '{folder}.rows' INTO TABLE {name} "
                              "CHARACTER SET binary;\n")
    for lane, script in enumerate(scripts):
        with open(script, "w") as file:
            file.writelines(["SET foreign_key_checks = 0;\n", *statements[lane::len(scripts)]])


def wanted():
    """The targets of the issue: (what, against the best of, ratio)."""
    rows = [("fullbore dump integer", ["mydumper integer"], 1.4), ("fullbore dump integer", ["dump program integer"], 2.5),
            ("fullbore dump numeric", ["mydumper numeric"], 1.2), ("fullbore dump numeric", ["dump program numeric"], 1.7),
            ("fullbore dump integer gzip", ["mydumper integer gzip"], 4.0),
            ("fullbore load integer", ["myloader integer"], 1.15), ("fullbore load indexed", ["myloader indexed"], 1.8),
            ("fullbore load integer", ["raw LOAD DATA integer"], 0.9), ("fullbore load integer", ["SQL text loaded"], 1.15)]
    for work in ("dump", "load"):
        rows += [(f"fullbore {work} {shape}", [f"fullbore {work} integer"], 1 / 1.2) for shape in KEY_SHAPES[1:]]
    return rows


def many_tables(figures):
    """Many tables against one table of the same rows and the floor of so many statements: no more than 1.2 times."""
    lines = ["", "| many tables | times (one table + floor) | wanted | |", "|---|---:|---:|---|"]
    for work in ("dump", "load"):
        names = (f"fullbore {work} many", f"fullbore {work} integer", f"floor of {work} many")
        if all(name in figures for name in names):
            rounds = zip(*(figures[name] for name in names))
            value = median(many["as_run_s"] / (one["as_run_s"] + floor["as_run_s"]) for many, one, floor in rounds)
            lines.append(f"| {work} | {value:.2f} | ≤ 1.2 | {'met' if value <= 1.2 else f'missed by {value / 1.2 - 1:.0%}'} |")
    return lines if len(lines) > 3 else []


def raw_ratios(figures):
    """Each load against the server's own client with the same rows: of one table one client, of many tables two."""
    lines = ["", "| load | times the raw LOAD DATA: seconds | raw LOAD DATA: integer key against it |", "|---|---:|---:|"]
    for shape in RAW:
        names = (f"fullbore load {shape}", f"raw LOAD DATA {shape}")
        if all(name in figures for name in names):
            own = median(ours["as_run_s"] / raw["as_run_s"] for ours, raw in zip(*(figures[name] for name in names)))
            of_integer = median_ratio(figures, names[1], ["raw LOAD DATA integer"]) if "raw LOAD DATA integer" in figures else None
            lines.append(f"| {shape} | {own:.2f} | {f'{of_integer:.2f}' if of_integer else ''} |")
    return lines if len(lines) > 3 else []


def processor_ratios(figures):
    """Processor seconds of program and server together, against the client that discards: no more than 1.25 times."""
    lines = ["", "| processor time of program and server | times the client that discards | wanted | |", "|---|---:|---:|---|"]
    for shape in ("integer", "numeric"):
        names = (f"fullbore dump {shape}", f"client discards {shape}")
        if all(name in figures for name in names):
            pairs = zip(*(figures[name] for name in names))
            value = median((a["cpu_s"] + a["server_cpu_s"]) / (b["cpu_s"] + b["server_cpu_s"]) for a, b in pairs)
            lines.append(f"| {names[0]} | {value:.2f} | ≤ 1.25 | {'met' if value <= 1.25 else f'missed by {value / 1.25 - 1:.0%}'} |")
    return lines if len(lines) > 3 else []


def least_times(figures):
    """What the processors allow: all cores busy with the work of program and server. A ratio of shapes has this limit, too."""
    cores = os.cpu_count()
    lines = ["", f"| dump | seconds | processor seconds: server, program | least seconds on {cores} cores | integer key against it |", "|---|---:|---:|---:|---:|"]
    least = {}
    for shape in KEY_SHAPES:
        rounds = figures.get(f"fullbore dump {shape}")
        if rounds:
            seconds, server, program = (median(one[name] for one in rounds) for name in ("as_run_s", "server_cpu_s", "cpu_s"))
            least[shape] = (server + program) / cores
            ratio = f"{least['integer'] / least[shape]:.2f}" if "integer" in least else ""
            lines.append(f"| {shape} | {seconds:.2f} | {server:.2f}, {program:.2f} | {least[shape]:.2f} | {ratio} |")
    return lines if least else []


def markdown(result):
    lines = [f"# Logical backups on {result['kind']}, {result['date']}", "",
             f"{result['size'] >> 20} MiB of rows in each shape, {result['tables']} small tables, {result['rounds']} counted "
             f"rounds, {in_words(result['machine'])}", ""]
    lines += table(result["figures"], result["failures"])
    lines += targets(result["ratios"])
    lines += raw_ratios(result["figures"])
    lines += processor_ratios(result["figures"])
    lines += least_times(result["figures"])
    lines += many_tables(result["figures"])
    return "\n".join(lines) + "\n"


def started(options, kind, folder):
    """Both servers, filled."""
    settings = ["--option", "innodb-flush-log-at-trx-commit=2", "--redo", "1G", "--option", "local-infile=1"]
    source_pool, target_pool = (["--option", f"innodb-buffer-pool-size={int(sizes * options.size) + (1 << 28)}"]
                                for sizes in (pool_of_source(options), TARGET_POOL))
    owner = options.owner or os.getpid()
    source = Server(kind, os.path.join(folder, "source"), *settings, *source_pool, "--binlog", owner=owner)
    if kind.startswith("mysql"):
        # mydumper reads its ranges out of the older form of EXPLAIN. Without it, it reads the table in one piece.
        source.sql("SET GLOBAL explain_format = TRADITIONAL")
    fill(source, options.size, options.tables, options.shapes)
    if not options.loads:
        return [source]
    target = Server(kind, os.path.join(folder, "target"), *settings, *target_pool, owner=owner)
    return [source, target]


def compare(options, kind):
    folder = options.made or options.make or tempfile.mkdtemp(prefix="logical-", dir=options.dir)
    out = os.path.join(options.out, "logical-" + os.path.basename(folder))
    os.makedirs(folder, exist_ok=True)
    os.chmod(folder, 0o755)
    servers = []
    try:
        if options.made:
            with open(os.path.join(folder, "made.json")) as made:
                made = json.load(made)
            options.size, options.tables = made["size"], made["tables"]
            for name in [name for name in ("source", "target") if name in made]:
                server = Server.__new__(Server)
                server.folder, server.about = os.path.join(folder, name), made[name]
                servers.append(server)
        else:
            os.makedirs(out)
            servers = started(options, kind, folder)
            if options.loads:
                keep(options, kind, *servers, out)
        if options.make:
            made = {"size": options.size, "tables": options.tables,
                    **{name: server.about for name, server in zip(("source", "target"), servers)}}
            with open(os.path.join(folder, "made.json"), "w") as file:
                json.dump(made, file)
            return
        say(f"{kind}: {options.size >> 20} MiB in each shape, {options.tables} small tables")
        cases = dump_cases(options, kind, servers[0], out) + (load_cases(options, kind, *servers, out) if options.loads else [])
        if options.only:
            cases = [case for case in cases if any(word in case.name for word in options.only)]
        figures, failures = run_rounds(cases, options.rounds, out)
        ratios = [(f"{name} / {others[0]}", median_ratio(figures, name, others), target) for name, others, target in wanted()
                  if name in figures and others[0] in figures]
        result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "kind": kind, "size": options.size,
                  "tables": options.tables, "rounds": options.rounds - 1, "machine": machine(options.fullbore, folder, ()),
                  "figures": figures, "failures": failures, "ratios": ratios}
        words = [*([] if options.shapes == SHAPES else options.shapes), *options.only, *(["quick"] if options.quick else [])]
        name = "-".join([f"logical-{kind}-{result['date'][:10]}", *words])
        write_results(name, result, markdown(result))
    finally:
        if not options.make and not options.made:
            for server in servers:
                server.kill()
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)


def main():
    options = arguments()
    if options.install:
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "mydumper"], check=True)
    for kind in options.server:
        compare(options, kind)


if __name__ == "__main__":
    main()
