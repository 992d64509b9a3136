"""What the comparisons share: a case is run in rounds with a cold page cache, and its figures are kept for each of them."""

import argparse
import json
import mmap
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
MIB = 1 << 20
TRANSFER, DEPTH = 1 << 20, 8


class Failed(Exception):
    """A case that could not run; the others go on, and the table says so."""


class Case:
    """One thing to measure: a command, what it reads, where it writes, what has to be made ready before, and who else works for it:
    `server` gives the processor seconds of that one so far. `cold`: with nothing in the page cache, also no program."""

    def __init__(self, name, command, reads, writes=(), stdout=None, before=None, environment=None, own_time=None, server=None,
                 cold=True):
        self.name, self.command, self.reads, self.writes = name, command, reads, list(writes)
        self.stdout, self.before, self.environment, self.own_time = stdout, before, environment, own_time
        self.server, self.cold = server, cold
        self.report = None

    def with_report(self, path):
        """fullbore writes its own account there."""
        self.command, self.report = self.command + ["--report", f"json:{path}"], path
        return self


def size_of(text):
    for unit, factor in (("GiB", 1 << 30), ("MiB", MIB)):
        if text.endswith(unit):
            return int(text[: -len(unit)]) * factor
    raise argparse.ArgumentTypeError(f"{text}: write 4GiB or 256MiB")


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def write_results(name, result, text):
    """Writes a result and its Markdown beside each other into bench/results, shows the latter, and gives their path without an ending."""
    stem = os.path.join(ROOT, "bench", "results", name)
    os.makedirs(os.path.dirname(stem), exist_ok=True)
    with open(stem + ".json", "w") as out:
        json.dump(result, out, indent=1)
    with open(stem + ".md", "w") as out:
        out.write(text)
    print(text)
    return stem


def drop_caches():
    """Whether the page cache could be dropped: root only."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as switch:
            switch.write("3\n")
        return True
    except OSError:
        return False


def processor_seconds():
    """Seconds that all cores take to unpack 24 MiB each, median of three.

    The processor of a virtual machine is not always as fast: what runs beside it on the host takes its share."""
    words = random.Random(1).choices([b"%d," % number for number in range(5000)], k=100_000)
    packed = zlib.compress(b"".join(words), 6)
    return statistics.median(together(os.cpu_count(), lambda _: [zlib.decompress(packed) for _ in range(50)]) for _ in range(3))


def disk_seconds(path):
    """Seconds to read 256 MiB of a file past the page cache, four reads of 1 MiB under way, median of three: the disk of a virtual machine is shared too."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        blocks = min(256, os.fstat(file).st_size // MIB)

        def every_fourth(start):
            memory = mmap.mmap(-1, MIB)
            for block in range(start, blocks, 4):
                os.preadv(file, [memory], block * MIB)

        return statistics.median(together(4, every_fourth) for _ in range(3))
    finally:
        os.close(file)


def together(count, work):
    """Seconds that so many threads take for `work(number)`, side by side."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def files_under(path):
    if os.path.isfile(path):
        return [path]
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sorted(filter(os.path.isfile, paths))  # Not a server's socket.


def make_durable(paths):
    for path in (file for each in paths for file in files_under(each)):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def measure(case, work):
    """Runs the case once: seconds as run and durable, CPU seconds, peak memory, bytes written."""
    for path in case.writes:
        remove(path)
    if case.before:
        case.before()
    cold = case.cold and drop_caches()
    log = os.path.join(work, "log")
    server_before = case.server() if case.server else None
    with open(log, "wb") as errors, open(case.stdout or log + ".out", "wb") as out:
        begun = time.monotonic()
        child = subprocess.Popen(case.command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                 env={**os.environ, **(case.environment or {})})
        _, status, usage = os.wait4(child.pid, 0)
        as_run = time.monotonic() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        with open(log, "rb") as errors:
            text = errors.read()[-600:].decode(errors="replace").strip()
        raise Failed(f"exit code {child.returncode}: {text}")
    make_durable(case.writes)
    durable = time.monotonic() - begun
    server_cpu = case.server() - server_before if case.server else None
    if case.own_time:
        with open(case.stdout or log + ".out") as out:
            as_run = durable = case.own_time(out.read())
    figures = {"as_run_s": as_run, "durable_s": durable, "cpu_s": usage.ru_utime + usage.ru_stime,
               "peak_rss": usage.ru_maxrss * 1024, "cold": cold,
               "written": sum(os.path.getsize(file) for path in case.writes for file in files_under(path))}
    if case.server:
        figures["server_cpu_s"] = server_cpu
    if case.report:
        with open(case.report) as report:
            report = json.load(report)
        figures["pool"] = report["pool"]["bytes"]
        figures["planned"] = sum(report["pool"][part] for part in ("bytes", "codec_bytes", "part_bytes"))
        figures["peak_rss_reported"] = report.get("peak_rss_bytes")
        figures["bottleneck"] = report.get("bottleneck")
        figures["written"] = figures["written"] or report["stored_bytes"]
    for path in case.writes:
        remove(path)
    return figures


def fio_seconds(text):
    """fio's own run time, in seconds: that of the longer job where there are two."""
    jobs = json.loads(text[text.index("{"):])["jobs"]
    sides = [job["read"] if job["read"]["io_bytes"] else job["write"] for job in jobs]
    return max(side["runtime"] for side in sides) / 1000 or 0.001


def fio_engine(folder):
    """io_uring where the kernel allows it, as fullbore does it; else the next best."""
    for engine in ("io_uring", "libaio", "psync"):
        probe = ["fio", "--name=probe", "--size=1M", "--rw=write", f"--ioengine={engine}", f"--directory={folder}",
                 "--unlink=1"]
        if subprocess.run(probe, capture_output=True).returncode == 0:
            return engine
    return "psync"


def run_rounds(cases, rounds, work):
    """Figures of each case, one entry per counted round; `None` where it failed."""
    figures, failures = {case.name: [] for case in cases}, {}
    for number in range(rounds):
        turn = number % len(cases)
        for case in cases[turn:] + cases[:turn]:
            if case.name in failures:
                continue
            try:
                figure = measure(case, work)
            except (Failed, OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
                failures[case.name] = str(error) or type(error).__name__
                say(f"round {number}: {case.name}: {failures[case.name]}")
                for path in case.writes:
                    remove(path)
                continue
            figure["bytes"] = case.reads
            say(f"round {number}: {case.name}: {case.reads / MIB / figure['durable_s']:.0f} MiB/s"
                + ("" if number else " (discarded)"))
            if number:
                figures[case.name].append(figure)
    return {name: each for name, each in figures.items() if each and name not in failures}, failures


def machine(fullbore, work, peers):
    def first(command):
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        except OSError:
            return "not there"
        return (done.stdout or done.stderr).strip().split("\n")[0]

    with open("/proc/cpuinfo") as cpus:
        model = next((line.split(":")[1].strip() for line in cpus if line.startswith("model name")), "unknown")
    return {"cpu": model, "cores": os.cpu_count(), "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
            "kernel": platform.release(), "file_system": first(["findmnt", "-no", "FSTYPE,SOURCE,OPTIONS", "-T", work]),
            "load_at_start": os.getloadavg()[0], "commit": first(["git", "rev-parse", "--short", "HEAD"]),
            "fullbore": first([fullbore, "--version"]),
            "peers": {name: first([name, "version" if name == "restic" else "--version"]) for name in peers}}


def in_words(host):
    """The machine of a result, for the head of its table."""
    return (f"{host['cpu']}, {host['cores']} cores, kernel {host['kernel']}, {host['file_system']}, load at the start "
            f"{host['load_at_start']:.1f}, commit {host['commit']}.")


def peak(figure):
    """Greatest resident set in bytes: fullbore's own account, else the kernel's, which is at least that of this script."""
    return figure.get("peak_rss_reported") or figure["peak_rss"]


def table(figures, failures):
    """One row for each case, of medians over the rounds."""
    lines = ["| case | MiB/s durable | MiB/s as run | written, MiB | CPU s/GB | peak MiB |", "|---|---:|---:|---:|---:|---:|"]
    for name, rounds in figures.items():
        def middle(of):
            return statistics.median(of(figure) for figure in rounds)
        speed = [middle(lambda f, key=key: f["bytes"] / MIB / f[key]) for key in ("durable_s", "as_run_s")]
        lines.append(f"| {name} | {speed[0]:.0f} | {speed[1]:.0f} | {middle(lambda f: f['written']) / MIB:.0f} | "
                     f"{middle(lambda f: f['cpu_s'] / (f['bytes'] / 1e9)):.2f} | {middle(peak) / MIB:.0f} |")
    return lines + [f"| {name} | failed: {reason.splitlines()[-1]} | | | | |" for name, reason in failures.items()]


def speeds(figures, name, key="durable_s"):
    """Bytes per second of a case, round by round; none where it did not run."""
    return [figure["bytes"] / figure[key] for figure in figures.get(name, [])]


def median_ratio(figures, name, others, key="durable_s"):
    """A case against the best of others: the median of the ratios within the rounds. None where either did not run."""
    columns = [speeds(figures, other, key) for other in others if other in figures]
    rounds = list(zip(speeds(figures, name, key), *columns))
    return statistics.median(row[0] / max(row[1:]) for row in rounds) if columns and rounds else None


def targets(ratios):
    """The ratios of a run (what, value, wanted) as a table."""
    lines = ["", "| target | ratio | wanted | |", "|---|---:|---:|---|"]
    for what, value, target in ratios:
        shown, verdict = judged(value, target)
        lines.append(f"| {what} | {shown} | ≥ {round(target, 2)} | {verdict} |")
    return lines


def judged(value, target):
    """A ratio and what to say of it, for a table."""
    if value is None:
        return "–", "not measured"
    return f"{value:.2f}", "met" if value >= target else f"short by {1 - value / target:.0%}"
