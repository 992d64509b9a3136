#!/usr/bin/env python3
"""Foresees what backups and restores will take, writes that down, and then looks what they took.

    bench/foresee/compare.py                       40 configurations, 28 of SQLite and 12 of MariaDB, 128 and 384 MiB
    bench/foresee/compare.py --engines mariadb-11.8=6 mariadb-10.11=6    those of MariaDB
    bench/foresee/compare.py --engines sqlite=8    a pilot
    bench/foresee/compare.py --only c03 c17        these of them
    bench/foresee/compare.py --check               looks at itself: nothing is measured
    bench/foresee/compare.py --volumes uncapped --sizes 512 1024    the disk as it is
    bench/foresee/compare.py --seed 7              others
    bench/foresee/compare.py --volumes local --seed 21 22 23    this machine's own disk: 8 for each seed, of 1 and 4 GiB
    bench/foresee/compare.py --resume DIR          what a run that was stopped with --keep has left to do

How it measures. Two volumes are made, for the database and for the media: loop devices past the page cache, with ext4, whose bytes and
operations per second the kernel caps (volumes.py, four profiles of caps). For each profile of caps `fullbore calibrate` measures the two
mounts. Configurations are drawn from a seed (draw.py). `fullbore estimate` foresees all of them, and every prediction is on the disk,
synced, before the first run begins; its SHA-256 is in the result. Then each configuration is backed up, and restored from what it
wrote, in four rounds, each in another random order: page cache dropped before each run, the first round discarded. What counts is the time
of the whole process, from its start to its end, as somebody with a clock sees it; the median of the rounds is compared with P50, and
with the interval from P10 to P90. Predictions know nothing of the runs: the catalog is an empty one of its own.

A MariaDB is a real server (tests/servers/install first) with its data directory on the volume of the database: filled once, idle while it is
backed up, and stopped while others are measured. It is started without caps, because a start is nothing that is foreseen. Its restore is that of
the directory; what the server does when it starts there comes after it.

With `--volumes local` there are no volumes: database and media are directories on the disk of --dir, without caps and without loop devices. gzip and
short transfers are drawn besides. The page cache is dropped before each run there too. Wanted there: a median error of at most 10 %, a worst one of at
most 30 %, and 80 % of the runs within the interval.

Before each run, and beside each calibration, a fixed piece of work shows how fast the processor is at that moment; on a local disk another shows how
fast the disk is. The result has both, as columns, and the figures of the runs that found the machine as fast as at its calibration, within a tenth.
Nothing is corrected by that.

Run it as root on a quiet machine. Results: bench/results/foresee-DATE.json and .md. Only the standard library is used.
"""

import argparse
import datetime
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import check  # noqa: E402
import databases  # noqa: E402
import draw  # noqa: E402
import shown  # noqa: E402
from measure import MIB, TARGET, disk_seconds, drop_caches, machine, processor_seconds, remove, say  # noqa: E402
from volumes import CAPPED, LOCAL, PROFILES, LocalDisk, Volumes, missing  # noqa: E402

ROUNDS = 4
# The forty of the proof.
DRAWN = {"sqlite": 28, "mariadb-11.8": 6, "mariadb-10.11": 6}
# On a local disk, for each seed, and of which sizes.
DRAWN_LOCALLY, LOCAL_SIZES = {"sqlite": 8}, [1024, 4096]
# Room beside databases, restored databases and sets: the file system itself, and what calibration writes.
BESIDE = 192 * MIB
# Calibration may write so much in each volume.
CALIBRATION_SPACE = 384 * MIB
# The exit code of a job that is done, with warnings.
WARNINGS = 4


def engine_and_count(text):
    name, _, count = text.partition("=")
    if name not in databases.ENGINES or not count.isdigit():
        raise argparse.ArgumentTypeError(f"{text}: write one of {', '.join(databases.ENGINES)}, and how many: sqlite=28")
    return name, int(count)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=engine_and_count, nargs="+", metavar="NAME=N",
                        help=f"configurations of each ({' '.join(f'{name}={count}' for name, count in DRAWN.items())})")
    parser.add_argument("--seed", type=int, nargs="+", default=[6], help="what they are drawn from (6); of several, as many for each")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="MIB", help="of the databases (128 384; locally 1024 4096)")
    parser.add_argument("--volumes", nargs="+", choices=(*PROFILES, LOCAL), default=CAPPED, metavar="NAME",
                        help="profiles of caps that are drawn from (the four with caps; also: uncapped); or local, the disk itself")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds, the first of which is discarded (4)")
    parser.add_argument("--calibration-seconds", type=int, default=30, help="of each profile of volumes (30)")
    parser.add_argument("--only", nargs="*", default=[], metavar="ID", help="the configurations wanted: c01 c02 …")
    parser.add_argument("--dir", default=os.path.join(TARGET, "bench"), help="where everything is made; a real disk")
    parser.add_argument("--keep", action="store_true", help="keep profiles, predictions and runs in DIR/foresee-…, for --resume")
    parser.add_argument("--resume", metavar="DIR", help="go on with what --keep has left: its profiles, predictions and runs stand")
    parser.add_argument("--fullbore", default=os.path.join(TARGET, "release", "fullbore"))
    parser.add_argument("--estimator", help="another fullbore, which foresees: to try a model without a release build (that of --fullbore)")
    parser.add_argument("--testdata", default=os.path.join(TARGET, "release", "fullbore-testdata"))
    parser.add_argument("--name", help="of the result (foresee-DATE)")
    parser.add_argument("--check", action="store_true", help="look at what is drawn, summed up and shown; measure nothing")
    options = parser.parse_args()
    options.local = LOCAL in options.volumes
    if options.local and len(options.volumes) > 1:
        parser.error("--volumes local: the disk itself is no volume with caps; measure it by itself")
    options.engines = dict(options.engines or (DRAWN_LOCALLY if options.local else DRAWN))
    options.sizes = options.sizes or (LOCAL_SIZES if options.local else [128, 384])
    if options.rounds < 2:
        parser.error("--rounds: the first is discarded, so 2 at least")
    return options


class Comparison:
    """Databases on one volume, media on the other, and all that is asked of fullbore there."""

    def __init__(self, options, work, volumes, configurations):
        self.options, self.work, self.volumes = options, work, volumes
        # Of each engine the sizes that are asked for.
        self.sizes = {}
        for one in configurations:
            self.sizes.setdefault(one["engine"], set()).add(one["size_mib"])
        self.databases = {engine: databases.database(engine, volumes.database.path, options.testdata) for engine in self.sizes}
        self.media = os.path.join(volumes.media.path, "set")
        self.key = os.path.join(work, "key")
        self.environment = {**os.environ, "XDG_CONFIG_HOME": os.path.join(work, "config"), "XDG_STATE_HOME": os.path.join(work, "state")}
        self.runs_file = os.path.join(work, "runs.jsonl")
        self.paces_file = os.path.join(work, "paces.jsonl")

    def fullbore(self, *words, program=None):
        done = subprocess.run([program or self.options.fullbore, *words], env=self.environment, capture_output=True, text=True)
        if done.returncode not in (0, WARNINGS):
            raise RuntimeError(f"fullbore {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[:600]}")
        return done.stdout

    def prepare(self):
        """Databases, the key and an empty catalog; what is there from an earlier run stays."""
        folder = os.path.join(self.work, "config", "fullbore")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "fullbore.toml"), "w") as out:
            out.write(f'catalog = "{self.work}/catalog.db"\n')
        if not os.path.exists(self.key):
            self.fullbore("key", "new", self.key, "--no-recovery")
        self.volumes.become(None)
        for engine, sizes in self.sizes.items():
            for size in sorted(sizes):
                self.databases[engine].make(size)

    def source(self, one):
        """The words for its database, whose server runs then, and no other."""
        self.volumes.become(None)
        for engine, other in self.databases.items():
            if engine != one["engine"]:
                other.rest()
        return self.databases[one["engine"]].source(one["size_mib"])

    def calibrate(self):
        """A profile of each kind of volume and of data that was not measured yet; no server runs meanwhile."""
        for database in self.databases.values():
            database.rest()
        for volume in self.options.volumes:
            for engine, sizes in self.sizes.items():
                name = databases.profile_name(engine, volume)
                if os.path.exists(os.path.join(self.work, "state", "fullbore", "profiles", f"{name}.json")):
                    continue
                begun = time.monotonic()
                self.volumes.become(volume)
                drop_caches()
                before = self.pace(engine)
                # On a local disk calibration takes what it takes for everybody.
                space = [] if self.options.local else ["--space", str(CALIBRATION_SPACE)]
                self.fullbore("calibrate", "-q", "--name", name, "--read", self.databases[engine].to_calibrate(max(sizes)),
                              "--write", self.volumes.database.path, "--write", self.volumes.media.path,
                              "--seconds", str(self.options.calibration_seconds), *space)
                self.note_pace(name, before, self.pace(engine))
                say(f"calibrated {name}: {time.monotonic() - begun:.0f} s")

    def pace(self, engine):
        """Seconds of a fixed piece of work for the processor, and of one for the disk: of an engine whose database is one file on an uncapped disk."""
        pace = {"processor_s": processor_seconds()}
        if self.options.local and engine == "sqlite":
            pace["disk_s"] = disk_seconds(self.databases[engine].to_calibrate(max(self.sizes[engine])))
        return pace

    def note_pace(self, profile, before, after):
        """How fast the machine was while a profile was measured: beside the profiles, for a run that is resumed."""
        with open(self.paces_file, "a") as out:
            out.write(json.dumps({"profile": profile, **{what: (before[what] + after[what]) / 2 for what in before}}) + "\n")

    def paces(self):
        """Of each profile, how fast the machine was. Empty where an older run was resumed."""
        if not os.path.exists(self.paces_file):
            return {}
        with open(self.paces_file) as kept:
            return {one["profile"]: one for one in map(json.loads, kept)}

    def foresee(self, one):
        profile = databases.profile_name(one["engine"], one["volume"])
        words = ["estimate", *self.source(one), "--to", self.media + "/", "--profile", profile]
        words += draw.words(one, draw.SHAPE + draw.OF_BACKUP) + draw.words(one, draw.OF_RESTORE, of_restore=True)
        words += ["--encrypted"] if one["encrypted"] else []
        return json.loads(self.fullbore(*words, "--report", "json", program=self.options.estimator))

    def foresee_all(self, configurations):
        """What estimate says of each, on the disk before anything runs; and the digest of that file."""
        path = os.path.join(self.work, "predictions.json")
        if not os.path.exists(path):
            foreseen = {one["id"]: self.foresee(one) for one in configurations}
            with open(path, "w") as out:
                json.dump({"configurations": configurations, "foreseen": foreseen}, out, indent=1)
                out.flush()
                os.fsync(out.fileno())
        with open(path, "rb") as kept:
            text = kept.read()
        kept = json.loads(text)
        if kept["configurations"] != configurations:
            sys.exit(f"{path}: those are predictions of other configurations; give the --seed, --engines and --only that they were made with")
        return kept["foreseen"], hashlib.sha256(text).hexdigest()

    def timed(self, one, direction, words):
        """Seconds of the whole process, and its own account."""
        report = os.path.join(self.work, "report.json")
        self.volumes.become(one["volume"])
        pace = self.pace(one["engine"])
        cold = drop_caches()
        begun = time.monotonic()
        self.fullbore(*words, "--report", f"json:{report}")
        seconds = time.monotonic() - begun
        with open(report) as account:
            account = json.load(account)
        verdict = account.get("verdict") or {}
        return {"id": one["id"], "direction": direction, "seconds": seconds, "pace": pace, "cold": cold, "own_s": account["elapsed_s"],
                "limit": verdict.get("limit"), "stored_bytes": account["stored_bytes"], "stages": account["stages"]}

    def backup(self, one):
        words = ["backup", "-q", "--mkdir", *self.source(one), "--to", self.media + "/"]
        words += draw.words(one, draw.SHAPE + draw.OF_BACKUP) + (["--encrypt-to", self.key + ".pub"] if one["encrypted"] else [])
        return self.timed(one, "backup", words)

    def restore(self, one):
        words = ["restore", "-q", "--from", self.media, "--into", self.databases[one["engine"]].target()[0], *draw.words(one, draw.OF_RESTORE)]
        return self.timed(one, "restore", words + (["--key", self.key] if one["encrypted"] else []))

    def run_all(self, configurations):
        """Every configuration in every round; what is in the file of runs is not run again."""
        runs = []
        if os.path.exists(self.runs_file):
            with open(self.runs_file) as kept:
                runs = [json.loads(line) for line in kept if line.endswith("\n")]
        done = {(run["round"], run["id"]) for run in runs if run["direction"] == "restore" or "failed" in run}
        with open(self.runs_file, "a") as out:
            for number in range(self.options.rounds):
                order = list(configurations)
                random.Random(f"{' '.join(map(str, self.options.seed))} {number}").shuffle(order)
                for one in order:
                    if (number, one["id"]) in done:
                        continue
                    for run in self.once(one):
                        runs.append(run | {"round": number})
                        out.write(json.dumps(runs[-1]) + "\n")
                    out.flush()
        return runs

    def once(self, one):
        runs = []
        try:
            for job in (self.backup, self.restore):
                runs.append(job(one))
                say(f"{one['id']} {runs[-1]['direction']}: {runs[-1]['seconds']:.2f} s")
        except RuntimeError as error:
            say(error)
            runs.append({"id": one["id"], "direction": "backup" if not runs else "restore", "failed": str(error)})
        finally:
            self.volumes.become(None)
            remove(self.media)
            remove(self.databases[one["engine"]].target()[1])
        return runs

    def end(self):
        for database in self.databases.values():
            database.end()


def main():
    options = arguments()
    if options.check:
        return check.run()
    if os.geteuid() != 0:
        sys.exit("the page cache is dropped before each run, and that is for root")
    if not options.local and missing():
        sys.exit(f"no volumes of a known speed here: {missing()}")
    # A signal ends it as an exception does: volumes and caps go.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit("ended by a signal"))
    os.makedirs(options.dir, exist_ok=True)
    work = options.resume or tempfile.mkdtemp(prefix="foresee-", dir=options.dir)
    os.chmod(work, 0o711)  # A server runs as another user.
    if len(options.seed) > 1 or options.local:
        knobs = draw.LOCAL_KNOBS if options.local else draw.KNOBS
        configurations = draw.of_seeds(options.seed, options.engines, options.sizes, options.volumes, knobs)
    else:
        configurations = draw.configurations(options.seed[0], options.engines, options.sizes, options.volumes)
    configurations = [one for one in configurations if not options.only or one["id"] in options.only]
    rooms = {(one["engine"], one["size_mib"]): databases.room(one["engine"], one["size_mib"]) for one in configurations}
    media_bytes = max(rooms.values()) + CALIBRATION_SPACE + BESIDE
    database_bytes = sum(rooms.values()) + media_bytes
    if shutil.disk_usage(work).free < database_bytes + media_bytes:
        sys.exit(f"{work}: {(database_bytes + media_bytes) >> 20} MiB free are needed; choose another --dir or smaller --sizes")
    begun = time.monotonic()
    host = machine(options.fullbore, work, [])
    try:
        with LocalDisk(work) if options.local else Volumes(work, database_bytes, media_bytes) as volumes:
            comparison = Comparison(options, work, volumes, configurations)
            try:
                comparison.prepare()
                comparison.calibrate()
                foreseen, digest = comparison.foresee_all(configurations)
                say(f"{len(foreseen)} predictions are on the disk, SHA-256 {digest}")
                runs = comparison.run_all(configurations)
            finally:
                comparison.end()
        result = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "minutes": (time.monotonic() - begun) / 60,
                  "seed": options.seed[0] if len(options.seed) == 1 else options.seed, "engines": options.engines, "rounds": options.rounds - 1, "calibration_s": options.calibration_seconds, "machine": host,
                  "volumes": {name: PROFILES.get(name) for name in options.volumes}, "predictions_sha256": digest, "paces": comparison.paces(), "configurations": configurations, "foreseen": foreseen,
                  "runs": runs}
        shown.write(result, options.name or f"foresee-{result['date'][:10]}")
    finally:
        if not (options.keep or options.resume):
            shutil.rmtree(work)
        else:
            say(f"kept: {work}")


if __name__ == "__main__":
    main()
