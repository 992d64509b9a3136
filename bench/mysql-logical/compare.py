#!/usr/bin/env python3
"""Compares logical backups and loads of fullbore with the server's own dump program, and with a client that discards rows.

    bench/mysql-logical/compare.py                     1 GiB, 5 rounds, MySQL 9 and MariaDB 11.8
    bench/mysql-logical/compare.py --quick             64 MiB, 2 rounds: does everything run?
    bench/mysql-logical/compare.py --server mysql-9    one server
    bench/mysql-logical/compare.py --size 4GiB --tables 10000

The same rows are stored as five shapes, each in a database of its own: a table with an integer key, with a string key, with
a composite key, without a key, and many small tables. Cases, rounds and ratios are those of bench/measure.py: every case
once in each round, the first round discarded, medians of the ratios within a round.

A load goes into a second server of the same kind, with the same settings. mydumper joins in where it is installed.
"""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

from measure import (MIB, TARGET, Case, in_words, machine, median_ratio, run_rounds, say, size_of, table,  # noqa: E402
                     targets, write_results)
from servers import Server  # noqa: E402

KINDS = ("mysql-9", "mariadb-11.8", "mariadb-10.11")
# Bytes of a row of text, about.
ROW = 190
KEYS = {
    "integer": ("id BIGINT", "n", "PRIMARY KEY (id)"),
    "string": ("id VARCHAR(40)", "CONCAT('user', LPAD(n * 7919 % 100000007, 12, '0'))", "PRIMARY KEY (id)"),
    "composite": ("id BIGINT, part VARCHAR(10)", "n DIV 100, CONCAT('p', n % 100)", "PRIMARY KEY (id, part)"),
    "nokey": ("id BIGINT", "n", None),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="bytes of each shape (1GiB)")
    parser.add_argument("--tables", type=int, default=None, help="small tables (2000)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (5)")
    parser.add_argument("--server", action="append", choices=KINDS, help="which server; may be given more than once")
    parser.add_argument("--quick", action="store_true", help="64MiB, 200 tables, 2 rounds unless said otherwise")
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--dir", default="/var/tmp", help="where the files are made")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    options = parser.parse_args()
    options.size = options.size or (64 * MIB if options.quick else 1 << 30)
    options.tables = options.tables or (200 if options.quick else 2000)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.server = options.server or ["mysql-9", "mariadb-11.8"]
    return options


def fill(server, size, tables):
    """The same rows in every shape. Numbers come from a table that is doubled."""
    rows = size // ROW
    text = "CONCAT(MD5(n), ' ', REPEAT('some words ', 8))" if not server.about["version"].startswith("9") else \
        "CONCAT(SUBSTR(SHA2(n, 256), 1, 32), ' ', REPEAT('some words ', 8))"
    doubled = "".join(f"INSERT INTO numbers SELECT n + {1 << step} FROM numbers;" for step in range((rows - 1).bit_length()))
    server.sql("CREATE DATABASE made; USE made; SET SESSION sql_log_bin = 0; CREATE TABLE numbers (n BIGINT PRIMARY KEY); "
               f"INSERT INTO numbers VALUES (0); {doubled} DELETE FROM numbers WHERE n >= {rows}")
    for shape, (columns, values, key) in KEYS.items():
        definition = ", ".join(filter(None, [columns, "name VARCHAR(200)", "amount DECIMAL(12,2)", "at DATETIME", key]))
        server.sql(f"SET sql_log_bin = 0; CREATE DATABASE {shape}; USE {shape}; CREATE TABLE t ({definition}); INSERT INTO t "
                   f"SELECT {values}, {text}, n / 100, DATE_ADD('2020-01-01', INTERVAL n SECOND) FROM made.numbers ORDER BY n; "
                   "ANALYZE TABLE t")
    share = max(1, rows // tables)
    made = [f"CREATE TABLE t{number:05} LIKE integer.t; INSERT INTO t{number:05} SELECT * FROM integer.t "
            f"WHERE id >= {number * share} AND id < {(number + 1) * share};" for number in range(tables)]
    server.sql("SET sql_log_bin = 0; CREATE DATABASE many; USE many; " + "\n".join(made).replace("integer.t", "`integer`.t"))


def url(kind, server, database=""):
    scheme = "mysql" if kind.startswith("mysql") else "mariadb"
    return f"{scheme}://root@127.0.0.1:{server.about['port']}{database}"


def dump_program(server):
    for name in ("mysqldump", "mariadb-dump"):
        path = os.path.join(server.about["bin"], name)
        if os.path.exists(path):
            return [path, f"--defaults-extra-file={server.about['client_options']}", "--single-transaction", "--quick"]
    return None


def dump_cases(options, kind, server, work):
    report, cases = os.path.join(work, "report.json"), []
    for shape in [*KEYS, "many"]:
        command = [options.fullbore, "backup", "-q", url(kind, server, f"/{shape}"), "--method", "logical", "--password-file",
                   server.about["password_file"], "--readers", "2", "--compression", "none", "--to", "nul:"]
        cases.append(Case(f"fullbore dump {shape}", command, options.size).with_report(report))
    client = " ".join(server.client())
    cases.append(Case("client discards integer", ["sh", "-c", f"{client} --quick -e 'SELECT * FROM `integer`.t' > /dev/null"],
                      options.size))
    program = dump_program(server)
    if program:
        for shape in ("integer", "many"):
            cases.append(Case(f"dump program {shape}", ["sh", "-c", " ".join(program) + f" {shape} > /dev/null"], options.size))
    if shutil.which("mydumper"):
        cases.append(Case("mydumper integer", ["mydumper", f"--defaults-file={server.about['client_options']}", "--threads", "2",
                                               "--rows", "250000", "--database", "integer", "--outputdir", f"{work}/mydumper"],
                          options.size, [f"{work}/mydumper"]))
    return cases


def load_cases(options, kind, source, target, work):
    """Sets and dumps are made once; each case drops what the last one loaded."""
    cases = []
    client, drop = " ".join(target.client()), "DROP DATABASE IF EXISTS"
    for shape in [*KEYS, "many"]:
        kept = os.path.join(work, f"kept-{shape}")
        subprocess.run([options.fullbore, "backup", "-q", "--mkdir", url(kind, source, f"/{shape}"), "--method", "logical",
                        "--password-file", source.about["password_file"], "--readers", "2", "--to", f"{kept}/"], check=True)
        command = [options.fullbore, "restore", "-q", "--from", kept, "--into", url(kind, target), "--password-file",
                   target.about["password_file"], "--replace"]
        cases.append(Case(f"fullbore load {shape}", command, options.size))
    out = os.path.join(work, "rows")
    subprocess.run([options.fullbore, "restore", "-q", "--from", f"{work}/kept-integer", "--into", f"dir:{out}"], check=True)
    subprocess.run(["sh", "-c", f"cat {out}/integer/t/*.tsv > {work}/rows.tsv"], check=True)
    shutil.rmtree(out)
    raw = (f"{drop} raw; CREATE DATABASE raw; CREATE TABLE raw.t LIKE empty.t; SET foreign_key_checks = 0; "
           f"LOAD DATA LOCAL INFILE '{work}/rows.tsv' INTO TABLE raw.t CHARACTER SET binary")
    source_table = source.sql("SHOW CREATE TABLE `integer`.t").split("\t", 1)[1].replace("\\n", "\n")
    target.sql(f"CREATE DATABASE empty; USE empty; {source_table}")
    cases.append(Case("raw LOAD DATA", ["sh", "-c", f'{client} --local-infile=1 -e "{raw}"'], options.size))
    program = dump_program(source)
    if program:
        subprocess.run(["sh", "-c", " ".join(program) + f" integer > {work}/dump.sql"], check=True)
        load = f"{client} -e '{drop} sql_text; CREATE DATABASE sql_text' && {client} sql_text < {work}/dump.sql"
        cases.append(Case("dump program loaded", ["sh", "-c", load], options.size))
    return cases


def wanted():
    """The targets of the issue: (what, against the best of, ratio)."""
    rows = [("fullbore dump integer", ["dump program integer"], 2.5), ("fullbore dump integer", ["mydumper integer"], 1.4),
            ("fullbore dump integer", ["client discards integer"], 1.0), ("fullbore load integer", ["raw LOAD DATA"], 0.9),
            ("fullbore load integer", ["dump program loaded"], 1.15), ("fullbore dump many", ["dump program many"], 1.0)]
    rows += [(f"fullbore dump {shape}", ["fullbore dump integer"], 1 / 1.2) for shape in ("string", "composite", "nokey")]
    return rows + [(f"fullbore load {shape}", ["fullbore load integer"], 1 / 1.2) for shape in ("string", "composite", "nokey")]


def markdown(result):
    lines = [f"# Logical backups on {result['kind']}, {result['date']}", "",
             f"{result['size'] >> 20} MiB of rows in each shape, {result['tables']} small tables, {result['rounds']} counted "
             f"rounds, {in_words(result['machine'])}", ""]
    lines += table(result["figures"], result["failures"])
    lines += targets(result["ratios"])
    return "\n".join(lines) + "\n"


def compare(options, kind):
    work = tempfile.mkdtemp(prefix="logical-", dir=options.dir)
    os.chmod(work, 0o755)
    servers = []
    try:
        settings = ["--option", "innodb-flush-log-at-trx-commit=2", "--redo", "1G", "--binlog", "--option", "local-infile=1"]
        source = Server(kind, os.path.join(work, "source"), *settings)
        servers.append(source)
        fill(source, options.size, options.tables)
        target = Server(kind, os.path.join(work, "target"), *settings)
        servers.append(target)
        say(f"{kind}: {options.size >> 20} MiB in each shape, {options.tables} small tables")
        cases = dump_cases(options, kind, source, work) + load_cases(options, kind, source, target, work)
        if options.only:
            cases = [case for case in cases if any(word in case.name for word in options.only)]
        figures, failures = run_rounds(cases, options.rounds, work)
        ratios = [(f"{name} / {others[0]}", median_ratio(figures, name, others), target) for name, others, target in wanted()
                  if name in figures and others[0] in figures]
        result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "kind": kind, "size": options.size,
                  "tables": options.tables, "rounds": options.rounds - 1, "machine": machine(options.fullbore, work, ()),
                  "figures": figures, "failures": failures, "ratios": ratios}
        name = f"logical-{kind}-{result['date'][:10]}" + ("-quick" if options.quick else "")
        write_results(name, result, markdown(result))
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(work, ignore_errors=True)


def main():
    options = arguments()
    for kind in options.server:
        compare(options, kind)


if __name__ == "__main__":
    main()
