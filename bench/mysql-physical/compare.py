#!/usr/bin/env python3
"""Compares fullbore on MariaDB with mariadb-backup, and on MySQL with the server's own remote CLONE.

    bench/mysql-physical/compare.py                   4 GiB in 160 tables, 6 rounds, both servers
    bench/mysql-physical/compare.py --quick           128 MiB in 20 tables, 2 rounds: does everything run?
    bench/mysql-physical/compare.py --server mysql-9  one of mariadb-11.8, mariadb-10.11, mysql-9
    bench/mysql-physical/compare.py --matrix          also threads 1, 2, 4 x codec x backup and restore, once each

The servers are those of tests/servers (install them first: tests/servers/install). Each is filled, shut down and started
again, so that it is idle and its redo log is short. Cases, rounds, ratios and the dropped page cache are those of
bench/measure.py: every case once in each round, the first round discarded, medians of the ratios within a round.

A restore is measured to the end that counts: until the restored server answers. `mariadb-backup` needs extraction and
--prepare for that, fullbore a restore; both then start the same server on the directory.
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

import blocked  # noqa: E402
from measure import (DEPTH, MIB, TARGET, TRANSFER, Case, Failed, fio_engine, fio_seconds, in_words,  # noqa: E402
                     machine, measure, median_ratio, run_rounds, say, size_of, table, targets, write_results)
from servers import Server, data_files, fill  # noqa: E402

KINDS = ("mariadb-11.8", "mariadb-10.11", "mysql-9")
CODECS = ("none", "lz4", "zstd:1", "gzip:1")
PACKERS = {"lz4": "lz4 -1 -c", "zstd:1": "zstd -1 -T2 -c", "gzip:1": "pigz -1 -p 2 -c"}
PEERS = ("fio", "lz4", "zstd", "pigz")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="bytes of data in all (4GiB)")
    parser.add_argument("--tables", type=int, default=None, help="tables (160)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (6); 0: only limits, blocked writers and the matrix")
    parser.add_argument("--server", action="append", choices=KINDS, help="which server; may be given more than once")
    parser.add_argument("--quick", action="store_true", help="128MiB, 20 tables, 2 rounds unless said otherwise")
    parser.add_argument("--matrix", action="store_true", help="threads x codecs as well")
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--dir", default="/var/tmp", help="where the files are made; a real disk that user nobody can reach")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    parser.add_argument("--started", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.size = options.size or (128 * MIB if options.quick else 4 << 30)
    options.tables = options.tables or (20 if options.quick else 160)
    if options.rounds is None:
        options.rounds = 2 if options.quick else 6
    options.server = options.server or ["mariadb-11.8", "mysql-9"]
    return options


def fullbore_url(kind, server):
    scheme = "mysql" if kind.startswith("mysql") else "mariadb"
    place = "" if scheme == "mysql" else f"?datadir={server.about['datadir']}"
    return f"{scheme}://root@127.0.0.1:{server.about['port']}{place}"


def raw_case(server, size):
    # Below the directory: fio takes a list of names of some 4,000 characters at most.
    base = server.about["datadir"]
    names = [os.path.relpath(path, base) for path in data_files(server)]
    command = ["fio", "--name=raw", "--direct=1", f"--bs={TRANSFER}", f"--iodepth={DEPTH}", "--thread", "--output-format=json",
               f"--ioengine={fio_engine('/var/tmp')}", "--rw=read", "--readonly", "--file_service_type=sequential",
               f"--directory={base}", "--filename=" + ":".join(names)]
    return Case("fio read", command, size, own_time=fio_seconds)


def backup_command(options, kind, server, readers=2):
    command = [options.fullbore, "backup", "-q", "--mkdir", fullbore_url(kind, server), "--password-file",
               server.about["password_file"], "--max-transfer-size", str(TRANSFER), "--readers", str(readers)]
    return command + (["--install-clone-plugin"] if kind.startswith("mysql") else [])


def fullbore_cases(options, kind, server, work, size):
    report = os.path.join(work, "report.json")
    folders = [os.path.join(work, name) for name in ("a", "b")]
    cases = []
    for codec in CODECS:
        command = backup_command(options, kind, server) + ["--compression", codec]
        cases.append(Case(f"fullbore {codec} to nul:", command + ["--to", "nul:"], size).with_report(report))
        to_disk = [f"--to={folder}/" for folder in folders]
        cases.append(Case(f"fullbore {codec} to disk", command + to_disk, size, folders).with_report(report))
    return cases


def mariadb_cases(options, kind, server, work, size):
    about, out = server.about, os.path.join(work, "out")
    tool = os.path.join(about["bin"], "mariadb-backup")
    stream = [tool, f"--defaults-extra-file={about['client_options']}", "--backup", "--parallel=2",
              f"--datadir={about['datadir']}", f"--target-dir={out}.tmp"]
    shown = " ".join(stream)
    cases = [
        Case("mariadb-backup to null", ["sh", "-c", f"{shown} --stream=mbstream > /dev/null"], size, [f"{out}.tmp"]),
        Case("mariadb-backup to a directory", stream[:-1] + [f"--target-dir={out}"], size, [out]),
    ]
    for codec, packer in PACKERS.items():
        piped = f"{shown} --stream=mbstream | {packer}"
        for place, end in (("null", "/dev/null"), ("disk", out)):
            cases.append(Case(f"mariadb-backup, {packer[:-3]}, to {place}", ["bash", "-o", "pipefail", "-c", f"{piped} > {end}"], size,
                              [f"{out}.tmp"] + ([out] if place == "disk" else [])))
    # One backup of each tool, restored again and again, until the server answers.
    kept = os.path.join(work, "kept")
    os.makedirs(kept)
    subprocess.run(["bash", "-o", "pipefail", "-c", f"{shown} --stream=mbstream | lz4 -1 -c > {kept}/stream.lz4"], check=True,
                   capture_output=True)
    shutil.rmtree(f"{out}.tmp", ignore_errors=True)
    subprocess.run(backup_command(options, kind, server) + ["--compression", "lz4", "--to", f"{kept}/a/", "--to", f"{kept}/b/"],
                   check=True)
    restored = os.path.join(work, "restored")
    again = [sys.executable, os.path.abspath(__file__), "--fullbore", options.fullbore, "--started"]
    rest = [kind, restored, about["password_file"], kept, about["bin"]]
    for name in ("mariadb-backup", "fullbore"):
        cases.append(Case(f"{name} lz4 restored to a started server", again + [name] + rest, size, [restored]))
    return cases


def restore_to_started(options, tool, kind, restored, password, kept, programs):
    """Restores, and starts the server on it: what the cases `restored to a started server` run."""
    data = os.path.join(restored, "data")
    os.makedirs(restored)
    os.chmod(restored, 0o755)
    if tool == "fullbore":
        subprocess.run([options.fullbore, "restore", "-q", "--from", f"{kept}/a", "--from", f"{kept}/b", "--into", f"dir:{data}"],
                       check=True)
    else:
        os.mkdir(data)
        extract = f"lz4 -d -c {kept}/stream.lz4 | {programs}/mbstream -x -p 2 -C {data}"
        subprocess.run(["bash", "-o", "pipefail", "-c", extract], check=True, capture_output=True)
        subprocess.run([f"{programs}/mariadb-backup", "--prepare", f"--target-dir={data}"], check=True, capture_output=True)
    begun = time.monotonic()
    server = Server(kind, os.path.join(restored, "server"), "--datadir", data, "--password-file", password)
    print(f"started in {time.monotonic() - begun:.2f} s")
    server.kill()


def mysql_cases(server, recipient, work, size):
    """The server's own CLONE from another server of the same version, over TCP, into a directory."""
    about, out = server.about, os.path.join(work, "cloned")
    with open(about["password_file"]) as file:
        password = file.read().strip()
    recipient.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
    plugins = server.sql("SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone'")
    if plugins.strip() == "0":
        server.sql("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
    recipient.sql(f"SET GLOBAL clone_valid_donor_list = '127.0.0.1:{about['port']}'")
    statement = os.path.join(work, "clone.sql")
    with open(os.open(statement, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(f"CLONE INSTANCE FROM root@127.0.0.1:{about['port']} IDENTIFIED BY '{password}' DATA DIRECTORY = '{out}';")
    command = ["sh", "-c", " ".join(recipient.client()) + f" < {statement}"]
    return [Case("remote CLONE", command, size, [out])]


def wanted(kind):
    """The targets of the issue: (what, against the best of, ratio)."""
    if kind.startswith("mysql"):
        return [(f"fullbore {codec} to disk", ["remote CLONE"], target)
                for codec, target in zip(CODECS, (0.9, 0.9, 0.6, 0.6))]
    rows = [("fullbore none to nul:", ["mariadb-backup to null"], 1.5), ("fullbore none to nul:", ["fio read"], 0.9)]
    for codec, target in (("lz4", 2.5), ("zstd:1", 1.6), ("gzip:1", 3.5)):
        for place, device in (("null", "nul:"), ("disk", "disk")):
            rows.append((f"fullbore {codec} to {device}", [f"mariadb-backup, {PACKERS[codec][:-3]}, to {place}"], target))
    rows.append(("fullbore none to disk", ["mariadb-backup to a directory"], 1.0))
    rows.append(("fullbore lz4 restored to a started server", ["mariadb-backup lz4 restored to a started server"], 2))
    return rows


def ratios(figures, rows):
    """(what, measured, target) of each of `rows`."""
    return [(f"{name} / {' or '.join(others)}", median_ratio(figures, name, others), target) for name, others, target in rows]


def matrix(options, kind, server, work, size):
    """Threads x codecs, as the tables that DBAs publish: rows of Markdown."""
    lines = ["", "| threads | codec | | seconds | MiB/s | stored MiB | limit |", "|---:|---|---|---:|---:|---:|---|"]
    folders, report = [os.path.join(work, name) for name in ("a", "b")], os.path.join(work, "report.json")
    restored = os.path.join(work, "restored")
    for threads in (1, 2, 4):
        for codec in CODECS:
            number = ["--workers", str(threads)]
            backup = backup_command(options, kind, server, readers=threads)
            backup += number + ["--compression", codec] + [f"--to={folder}/" for folder in folders]
            restore = [options.fullbore, "restore", "-q", *number, "--into", f"dir:{restored}"]
            restore += [word for folder in folders for word in ("--from", folder)]
            for verb, command in (("backup", backup), ("restore", restore)):
                case = Case(f"{verb} {codec}, {threads} threads", command, size).with_report(report)
                try:
                    figures = measure(case, work)
                except Failed as error:
                    lines.append(f"| {threads} | {codec} | {verb} | failed: {str(error).splitlines()[-1]} | | | |")
                    continue
                speed = size / MIB / figures["durable_s"]
                lines.append(f"| {threads} | {codec} | {verb} | {figures['durable_s']:.1f} | {speed:.0f} | "
                             f"{figures['written'] / MIB:.0f} | {(figures.get('bottleneck') or {}).get('stage', '–')} |")
            for path in [*folders, restored]:
                shutil.rmtree(path, ignore_errors=True)
    return lines


def limits(options, kind, server, work):
    """How near each codec comes to what its path could do, measured by the program in the same run: rows of Markdown."""
    lines = ["", "| to `nul:` | MiB/s | slowest stage alone | MiB/s of it | percent |", "|---|---:|---|---:|---:|"]
    path = os.path.join(work, "report.json")
    for codec in CODECS:
        command = backup_command(options, kind, server) + ["--compression", codec, "--to", "nul:", "--measure-limit"]
        subprocess.run(command + ["--report", f"json:{path}"], check=True, capture_output=True)
        with open(path) as file:
            report = json.load(file)
        limit = report["limit"] or {"stage": "not measured", "mib_per_s": 0, "percent": 0}
        lines.append(f"| {codec} | {report['mib_per_s']:.0f} | {limit['stage']} | {limit['mib_per_s']:.0f} | {limit['percent']:.0f} |")
    return lines


def markdown(result):
    lines = [f"# fullbore on {result['kind']}, {result['date']}", "",
             f"{result['size'] >> 20} MiB in {result['tables']} tables, {max(result['rounds'], 0)} counted rounds, "
             f"{in_words(result['machine'])}", ""]
    lines += table(result["figures"], result["failures"])
    lines += targets(result["ratios"])
    return "\n".join(lines + result["limits"] + result["blocked"] + result["matrix"]) + "\n"


def compare(options, kind):
    work = tempfile.mkdtemp(prefix="physical-", dir=options.dir)
    os.chmod(work, 0o755)
    servers = []
    try:
        settings = ["--option", "innodb-flush-log-at-trx-commit=2", "--redo", "64M", "--binlog"]
        server = Server(kind, os.path.join(work, "server"), *settings)
        fill(server, options.size, options.tables)
        server.stop()
        server = Server(kind, os.path.join(work, "server"), *settings)
        servers.append(server)
        size = sum(map(os.path.getsize, data_files(server)))
        say(f"{kind}: {size >> 20} MiB in {options.tables} tables")
        if kind.startswith("mysql"):
            # The recipient's user writes the clone.
            shutil.chown(work, "nobody") if os.geteuid() == 0 else None
            recipient = Server(kind, os.path.join(work, "recipient"))
            servers.append(recipient)
            cases = mysql_cases(server, recipient, work, size)
        else:
            cases = mariadb_cases(options, kind, server, work, size)
        cases = [raw_case(server, size)] + cases + fullbore_cases(options, kind, server, work, size)
        if options.only:
            cases = [case for case in cases if any(word in case.name for word in options.only)]
        figures, failures = run_rounds(cases, options.rounds, work)
        result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "kind": kind, "size": size,
                  "tables": options.tables, "rounds": options.rounds - 1, "machine": machine(options.fullbore, work, PEERS),
                  "figures": figures, "failures": failures, "ratios": ratios(figures, wanted(kind)),
                  "limits": [] if options.only else limits(options, kind, server, work),
                  "blocked": [] if options.only else blocked.measure(
                      kind.split("-")[0], server, backup_command(options, kind, server) + ["--compression", "lz4", "--to", "nul:"], work),
                  "matrix": matrix(options, kind, server, work, size) if options.matrix else []}
        name = f"{kind}-{result['date'][:10]}" + ("-quick" if options.quick else "") + ("-part" if options.only else "")
        write_results(name, result, markdown(result))
    finally:
        for server in servers:
            server.kill()
        shutil.rmtree(work, ignore_errors=True)


def main():
    options = arguments()
    if options.started:
        return restore_to_started(options, *options.started)
    for kind in options.server:
        compare(options, kind)


if __name__ == "__main__":
    main()
