#!/usr/bin/env python3
"""Compares fullbore on a SQLite database with the raw limits of the machine and with the usual tools.

    bench/sqlite.py                  4 GiB, 6 rounds: the table of docs/how-fast.md (about half an hour)
    bench/sqlite.py --quick          256 MiB, 3 rounds: does everything run?
    bench/sqlite.py --install        first installs fio, sqlite3, zstd, lz4, pigz and restic with apt-get
    bench/sqlite.py --kopia          also builds kopia from the Go module proxy, where there is a Go toolchain
    bench/sqlite.py --only NAME ...  only the cases whose name holds one of these words

Every case runs once in each round, in an order that turns by one from round to round; the page cache is dropped before
each run. The first round is discarded: the host's own cache makes it up to twice as slow. A ratio is taken within one
round, and its median over the rounds is what counts. Times are of the whole process, and twice: as the tool ends
(`as run`), and until its output is on the disk (`durable`: an fsync of every file that it wrote, which fullbore does
itself). The ratios are of durable times, and the other is shown beside. fio's is its own time, without its start.

Results: bench/results/sqlite-DATE.json and .md. Only the standard library is used.
"""

import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from measure import (DEPTH, MIB, ROOT, TARGET, TRANSFER, Case, files_under, fio_engine, fio_seconds, in_words, judged,
                     machine, median_ratio, run_rounds, say, size_of, speeds, table, write_results)

STRIPES = 4
CODECS = ("none", "lz4", "zstd:1", "gzip:1")
PEERS = ("fio", "sqlite3", "zstd", "lz4", "pigz", "restic")
MEMORY_BESIDE_POOL = 64 * MIB


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=size_of, default=None, help="size of the database (4GiB)")
    parser.add_argument("--rounds", type=int, default=None, help="rounds, the first of which is discarded (6)")
    parser.add_argument("--quick", action="store_true", help="256MiB and 3 rounds unless said otherwise")
    parser.add_argument("--dir", default=os.path.join(TARGET, "bench"), help="where the files are made; a real disk")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    parser.add_argument("--only", nargs="*", default=[], help="words of the cases wanted")
    parser.add_argument("--install", action="store_true", help="apt-get install the peers")
    parser.add_argument("--kopia", action="store_true", help="build kopia with Go")
    parser.add_argument("--no-build", action="store_true", help="take the binaries as they are")
    options = parser.parse_args()
    options.size = options.size or (256 * MIB if options.quick else 4 << 30)
    options.rounds = options.rounds or (3 if options.quick else 6)
    if options.rounds < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


HUGE_PAGES = "/proc/sys/vm/nr_hugepages"


def take_huge_pages():
    """Reserves huge pages for fio's buffers, where that is allowed; without them that case fails and says so."""
    with open(HUGE_PAGES) as switch:
        before = int(switch.read())
    set_huge_pages(max(before, 32))
    return before


def set_huge_pages(count):
    try:
        with open(HUGE_PAGES, "w") as switch:
            switch.write(f"{count}\n")
    except OSError:
        pass


def raw_cases(work, database, size, media):
    engine = fio_engine(work) if shutil.which("fio") else "psync"
    out = os.path.join(work, "out")
    fio = ["fio", "--name=raw", "--direct=1", f"--bs={TRANSFER}", f"--iodepth={DEPTH}", f"--ioengine={engine}",
           "--output-format=json", "--thread"]
    both = ["fio", "--direct=1", f"--bs={TRANSFER}", f"--iodepth={DEPTH}", f"--ioengine={engine}", "--output-format=json",
            "--thread"]

    def at_once(files, name):
        """Reads `files` and writes as much as the database is, at the same time."""
        command = both + ["--name=read", "--rw=read", "--file_service_type=sequential", "--filename=" + ":".join(files),
                          "--name=write", "--rw=write", f"--filename={out}", f"--size={size}", "--end_fsync=1"]
        return Case(name, command, size, [out], own_time=fio_seconds)

    huge = ["--iomem=shmhuge", "--rw=read", "--readonly", f"--filename={database}"]
    cases = [
        Case("fio read", fio + ["--rw=read", "--readonly", f"--filename={database}"], size, own_time=fio_seconds),
        Case("fio read, huge pages", fio + huge, size, own_time=fio_seconds),
        at_once([database], "fio read and write at once"),
        Case("fio write", fio + ["--rw=write", f"--filename={out}", f"--size={size}", "--end_fsync=1"], size, [out],
             own_time=fio_seconds),
        Case("dd to null", ["dd", f"if={database}", "of=/dev/null", f"bs={TRANSFER}", "iflag=direct"], size),
        Case("cp", ["cp", "--reflink=never", database, out], size, [out]),
        Case("dd direct", ["dd", f"if={database}", f"of={out}", f"bs={TRANSFER}", "iflag=direct", "oflag=direct"], size,
             [out]),
    ]
    for codec, folders in media.items():
        files = [file for folder in folders for file in files_under(folder)]
        command = fio + ["--rw=read", "--readonly", "--file_service_type=sequential", "--filename=" + ":".join(files)]
        cases.append(Case(f"fio read of the {codec} media", command, sum(map(os.path.getsize, files)),
                          own_time=fio_seconds))
        cases.append(at_once(files, f"fio read of the {codec} media and write at once"))
    return cases


def peer_cases(work, database, size):
    out, repository = os.path.join(work, "out"), os.path.join(work, "repository")
    secret = {"RESTIC_PASSWORD": "bench", "KOPIA_PASSWORD": "bench", "KOPIA_CHECK_FOR_UPDATES": "false",
              "KOPIA_CONFIG_PATH": os.path.join(work, "kopia.config"), "HOME": work}

    def made_ready(*command):
        return lambda: subprocess.run(command, check=True, capture_output=True, env={**os.environ, **secret})

    kopia = shutil.which("kopia") or os.path.join(TARGET, "bench-tools", "kopia")
    return [
        Case("sqlite3 .backup", ["sqlite3", database, f".backup {out}"], size, [out]),
        Case("VACUUM INTO", ["sqlite3", database, f"VACUUM INTO '{out}'"], size, [out]),
        Case("zstd -T0 -1", ["zstd", "-T0", "-1", "-q", "-f", database, "-o", out], size, [out]),
        Case("lz4 -1", ["lz4", "-1", "-q", "-f", database, out], size, [out]),
        Case("pigz -1", ["pigz", "-1", "-c", database], size, [out], stdout=out),
        Case("restic", ["restic", "-q", "--no-cache", "-r", repository, "backup", database], size, [repository],
             before=made_ready("restic", "-q", "--no-cache", "-r", repository, "init"), environment=secret),
        Case("kopia", [kopia, "snapshot", "create", "--no-progress", database], size, [repository], environment=secret,
             before=made_ready(kopia, "repository", "create", "filesystem", "--path", repository)),
    ]


def fullbore_cases(options, work, database, size, media):
    report = os.path.join(work, "report.json")
    folders = [os.path.join(work, name) for name in ("a", "b")]
    sizes = ["--max-transfer-size", str(TRANSFER), "--queue-depth", str(DEPTH)]
    backup = [options.fullbore, "backup", "-q", "--mkdir", f"sqlite:{database}"] + sizes
    to_disk = [f"--to={folder}/" for folder in folders] + ["--stripes", str(STRIPES)]
    cases = []
    for codec in CODECS:
        compressed = ["--compression", codec]
        cases.append(Case(f"fullbore {codec} to nul:", backup + compressed + ["--to", "nul:"], size).with_report(report))
        cases.append(Case(f"fullbore {codec} to disk", backup + compressed + to_disk, size, folders).with_report(report))
    many = ["--compression", "lz4", "--to", "nul:", "--stripes", "64"]
    cases.append(Case("fullbore lz4 to nul:, 64 stripes", backup + many, size).with_report(report))
    copy = os.path.join(work, "copy.db")
    for codec, kept in media.items():
        given = [word for folder in kept for word in ("--from", folder)]
        stored = sum(os.path.getsize(file) for folder in kept for file in files_under(folder))
        restore = [options.fullbore, "restore", "-q"] + given + ["--into", f"sqlite:{copy}"]
        cases.append(Case(f"fullbore restore of {codec}", restore, size, [copy]).with_report(report))
        cases.append(Case(f"fullbore verify of {codec}", [options.fullbore, "verify", "-q"] + given, stored)
                     .with_report(report))
    return cases


def make_media(options, work, database):
    """One backup set per codec that restore and verify read again and again."""
    media = {}
    for codec in ("none", "lz4"):
        folders = [os.path.join(work, "media", codec.replace(":", ""), name) for name in ("a", "b")]
        command = [options.fullbore, "backup", "-q", "--mkdir", f"sqlite:{database}", "--stripes", str(STRIPES),
                   "--compression", codec] + [f"--to={folder}/" for folder in folders]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
            problem = done.stderr.strip()[-400:] if done.returncode else ""
        except OSError as error:
            problem = str(error)
        if problem or not any(files_under(folder) for folder in folders):
            say(f"no {codec} media, so no restore and no verify of them: {problem or 'nothing was written'}")
        else:
            media[codec] = folders
    return media


def codec_speeds(database):
    """Codec and checksums in memory, on one core: crates/core/examples/codec_speed.rs, given a file, prints one JSON
    object {"lz4": bytes_per_second_in, …}. Without it the compressed targets are judged by the disk limit alone."""
    if not os.path.exists(os.path.join(ROOT, "crates", "core", "examples", "codec_speed.rs")):
        return {}
    for features in (["--features", "isal"], []):
        command = ["cargo", "run", "--release", "--quiet", "--locked", "-p", "fullbore-core", "--example", "codec_speed",
                   *features, "--", "json", database]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            break
    if done.returncode:
        say(f"codec_speed failed: {done.stderr.strip()[-400:]}")
        return {}
    return json.loads(done.stdout)


def ratios(figures, codecs, cores):
    """The targets: (what, measured, target, as-run measured or None). A ratio is the median of the rounds' ratios."""
    def against(name, others, target):
        durable, as_run = (median_ratio(figures, name, others, key) for key in ("durable_s", "as_run_s"))
        found.append((f"{name} / {' or '.join(others)}", durable, target, as_run))

    found = []
    against("fullbore none to nul:", ["fio read"], 0.95)
    against("fullbore none to nul:", ["fio read, huge pages"], 0.95)
    against("fullbore none to disk", ["cp", "dd direct"], 0.95)
    against("fullbore none to disk", ["fio read and write at once"], 0.9)
    against("fullbore none to disk", ["sqlite3 .backup"], 2)
    against("fullbore none to disk", ["VACUUM INTO"], 6)
    for codec, peer, target in (("zstd:1", "zstd -T0 -1", 1.15), ("lz4", "lz4 -1", 1.6), ("gzip:1", "pigz -1", 3.5)):
        against(f"fullbore {codec} to disk", [peer], target)
    for peer in ("restic", "kopia"):
        against("fullbore zstd:1 to disk", [peer], 3)
    disk = [max(pair) for pair in zip(speeds(figures, "cp") or speeds(figures, "dd direct"), speeds(figures, "dd direct") or speeds(figures, "cp"))]
    for codec in CODECS[1:]:
        limit = cores * codecs[codec] if codec in codecs else None
        rows = [own / min(best, limit or best) for own, best in zip(speeds(figures, f"fullbore {codec} to disk"), disk)]
        what = f"min(disk, {cores} cores × codec in memory)" if limit else "disk (codec in memory was not measured)"
        found.append((f"fullbore {codec} to disk / {what}", statistics.median(rows) if rows else None, 0.9, None))
    for codec in ("none", "lz4"):
        against(f"fullbore restore of {codec}", ["fio write"], 0.9)
        # The media are on the disk that is written: this is what it can do for a restore.
        against(f"fullbore restore of {codec}", [f"fio read of the {codec} media and write at once"], 0.9)
    against("fullbore verify of none", ["fio read of the none media"], 0.95)
    against("fullbore verify of lz4", ["fio read of the lz4 media"], 0.95)
    return found


def bounds(figures):
    """The targets that are no ratios: (what, measured, bound, unit)."""
    found = []
    for name, rounds in figures.items():
        if "pool" in rounds[0]:
            beside = max(max(figure["peak_rss"], figure["peak_rss_reported"] or 0) - figure["pool"] for figure in rounds)
            found.append((f"{name}: peak memory beside the pool", beside / MIB, MEMORY_BESIDE_POOL / MIB, "MiB"))

    def cpu_per_gb(name):
        return statistics.median(figure["cpu_s"] / (figure["bytes"] / 1e9) for figure in figures[name])

    if "fullbore none to nul:" in figures and "dd to null" in figures:
        found.append(("fullbore none to nul:: CPU per GB", cpu_per_gb("fullbore none to nul:"),
                      cpu_per_gb("dd to null") + 0.2, "s"))
    return found


def markdown(result):
    """The same as a table for people."""
    lines = [f"# fullbore on SQLite, {result['date']}", "",
             f"{result['size'] >> 20} MiB database, {result['rounds']} counted rounds, {in_words(result['machine'])}", ""]
    if not result["cold"]:
        lines += ["**The page cache could not be dropped (not root): these are warm figures.**", ""]
    lines += table(result["figures"], result["failures"])
    lines += ["", "| target | durable | as run | wanted | |", "|---|---:|---:|---:|---|"]
    for what, value, target, as_run in result["ratios"]:
        shown, verdict = judged(value, target)
        lines.append(f"| {what} | {shown} | {'' if as_run is None else f'{as_run:.2f}'} | ≥ {target} | {verdict} |")
    for what, value, bound, unit in result["bounds"]:
        verdict = "met" if value <= bound else "over"
        lines.append(f"| {what} | {value:.2f} {unit} | | ≤ {bound:.2f} {unit} | {verdict} |")
    return "\n".join(lines) + "\n"


def prepare(options):
    """Tools and binaries."""
    if options.install:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PEERS], check=True,
                       stdout=subprocess.DEVNULL)
    if options.kopia and not shutil.which("kopia"):
        tools = os.path.join(TARGET, "bench-tools")
        os.makedirs(tools, exist_ok=True)
        done = subprocess.run(["go", "install", "github.com/kopia/kopia@v0.21.1"], env={**os.environ, "GOBIN": tools},
                              capture_output=True, text=True)
        if done.returncode:
            say(f"kopia cannot be had: {done.stderr.strip()[-300:]}")
    if not options.no_build:
        for package in (["fullbore", "--features", "isal"], ["fullbore-testdata"]):
            built = ["cargo", "build", "--release", "--locked", "-p"]
            if subprocess.run(built + package, cwd=ROOT).returncode:
                say(f"{' '.join(package)} cannot be built; trying without features")
                subprocess.run(built + package[:1], cwd=ROOT, check=True)


def main():
    options = arguments()
    prepare(options)
    os.makedirs(options.dir, exist_ok=True)
    need = options.size * 7
    if shutil.disk_usage(options.dir).free < need:
        sys.exit(f"{options.dir}: {need >> 20} MiB free are needed; choose another --dir or a smaller --size")
    work = tempfile.mkdtemp(prefix="sqlite-", dir=options.dir)
    huge_pages = take_huge_pages()
    try:
        database = os.path.join(work, "data", "bench.db")
        os.mkdir(os.path.dirname(database))
        testdata = os.path.join(TARGET, "release", "fullbore-testdata")
        subprocess.run([testdata, "make", database, "--size", f"{options.size >> 20}MiB"], check=True, stdout=sys.stderr)
        size = os.path.getsize(database)
        media = make_media(options, work, database)
        cases = (raw_cases(work, database, size, media) + peer_cases(work, database, size)
                 + fullbore_cases(options, work, database, size, media))
        if options.only:
            cases = [case for case in cases if any(word in case.name for word in options.only)]
        if not cases:
            sys.exit("--only leaves no case")
        host = machine(options.fullbore, work, PEERS)
        codecs = codec_speeds(database)
        figures, failures = run_rounds(cases, options.rounds, work)
        cold = all(figure["cold"] for rounds in figures.values() for figure in rounds)
        result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "size": size, "rounds": options.rounds - 1,
                  "cold": cold, "machine": host, "codecs_in_memory": codecs, "figures": figures, "failures": failures,
                  "ratios": ratios(figures, codecs, host["cores"]), "bounds": bounds(figures)}
        name = f"sqlite-{result['date'][:10]}" + ("-quick" if options.quick else "") + ("-part" if options.only else "")
        stem = write_results(name, result, markdown(result))
        say(f"written: {stem}.json and .md")
    finally:
        shutil.rmtree(work)
        set_huge_pages(huge_pages)


if __name__ == "__main__":
    main()
