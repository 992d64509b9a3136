#!/usr/bin/env python3
"""How fast `fullbore unpack` unpacks a compressed backup of SQL Server, as a ratio to limits of the same run.

Two figures:

1. One core: `crates/engines/examples/unpack_speed.rs` unpacks every block in memory, then does the same work with LZ4,
   with gzip (libdeflate) and by a plain copy. All of them count the processor time of one thread.
2. The whole program: `fullbore unpack FILE --to nul:` with one worker and with one per core. The limit is the first
   figure times the workers. The page cache is warm.

    bench/bak/unpack.py app.bak [--repeat 20] [--rounds 5]

`--repeat` makes a larger container: the records of the backup, this many times (the second figure needs some seconds).
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from measure import ROOT, TARGET, say, write_results  # noqa: E402

WANTED = 250
HEADER, HEAD = 0x1E0, 24


def records(container):
    """The range of each data record, up to the first record of another kind behind them."""
    at, found = HEADER, []
    while at < len(container):
        if container[at : at + 4] == b"SFMB":
            at += struct.unpack_from("<H", container, at + 8)[0]
            continue
        kind, length = container[at], struct.unpack_from("<H", container, at + 2)[0]
        if kind == 0x24:
            at += HEAD + length
        elif kind == 0x21:
            found.append((at, at + HEAD + 4 + length))
            at = found[-1][1]
        else:
            break
    return found


def larger(container, repeat):
    """The container with the data records of its set this many times: enough blocks for all workers."""
    found = records(container)
    # The first record is the media header. The rest is the set, whose records follow each other.
    start, end = found[1][0], found[-1][1]
    # Without its index, whose place would be wrong. The soft filemark behind it begins at a multiple of 512 bytes.
    filemark = end + HEAD + struct.unpack_from("<I", container, end + HEAD + 8)[0]
    missing = -(start + (end - start) * repeat + HEAD) % 512
    pad = bytes([0x24, 0]) + struct.pack("<H", missing) + bytes(20) + bytes(missing)
    return container[:start] + container[start:end] * repeat + pad + container[filemark:]


def one_core(file):
    example = os.path.join(TARGET, "release", "examples", "unpack_speed")
    return json.loads(subprocess.run([example, file], check=True, capture_output=True, text=True).stdout)


def whole(file, workers, rounds):
    """MB/s of plain bytes, the median of the rounds."""
    speeds = []
    for _ in range(rounds):
        command = [os.path.join(TARGET, "release", "fullbore"), "unpack", file, "--to", "nul:", "-q"]
        done = subprocess.run(command + ["--workers", str(workers), "--report", "json"], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        report = json.loads(done.stdout)
        speeds.append(report["source_bytes"] / report["elapsed_s"] / 1e6)
    return statistics.median(speeds)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("file")
    arguments.add_argument("--repeat", type=int, default=100)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    build = ["cargo", "build", "--release", "--bin", "fullbore"]
    subprocess.run(build, cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "--release", "-p", "fullbore-engines", "--example", "unpack_speed"], cwd=ROOT, check=True)
    say("one core …")
    core = one_core(given.file)
    speeds = core["mb_per_s_of_one_core"]
    cores = os.cpu_count()
    with open(given.file, "rb") as file, tempfile.NamedTemporaryFile(suffix=".bak") as large:
        large.write(larger(file.read(), given.repeat))
        large.flush()
        rows = []
        for workers in sorted({1, cores}):
            say(f"{workers} of {cores} cores …")
            speed = whole(large.name, workers, given.rounds)
            rows.append({"workers": workers, "mb_per_s": round(speed), "of_limit": speed / (speeds["unpack"] * workers)})
    result = {"one_core": core, "program": rows, "cores": cores, "wanted_mb_per_s_of_one_core": WANTED}
    lines = ["# Unpacking a compressed backup of SQL Server", "", "`bench/bak/unpack.py`, MB/s of plain bytes (10^6).", ""]
    lines += ["| one core | MB/s | unpack is |", "|---|---:|---:|"]
    for name, speed in speeds.items():
        lines.append(f"| {name} | {speed:.0f} | {100 * speeds['unpack'] / speed:.0f} % |")
    met = "met" if speeds["unpack"] >= WANTED else "**missed**"
    lines += ["", f"Wanted: {WANTED} MB/s of one core: {met}.", ""]
    lines += [f"| program, of {cores} cores | MB/s | of workers × one core |", "|---|---:|---:|"]
    lines += [f"| {row['workers']} workers | {row['mb_per_s']} | {100 * row['of_limit']:.0f} % |" for row in rows]
    write_results("unpack", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
