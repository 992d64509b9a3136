"""The databases that are foreseen and then backed up: where they are on the volume, how they are made, and what fullbore is told of them."""

import os
import subprocess
import sys

from measure import MIB, files_under, remove, say
from servers import Server, fill

SQLITE = "sqlite"
MARIADBS = ("mariadb-11.8", "mariadb-10.11")
ENGINES = (SQLITE, *MARIADBS)
# Tables of a server: as many in every size.
TABLES = 4
# An empty data directory, and the redo log as it is set below: what a server needs beside its tables.
EMPTY_MIB, REDO_MIB = 64, 32
# What would read and write by itself while something is measured: pages of the last run, and their list at the end.
IDLE = ("innodb-buffer-pool-load-at-startup=OFF", "innodb-buffer-pool-dump-at-shutdown=OFF", "innodb-flush-log-at-trx-commit=2")


def family(engine):
    """What shares a profile: codecs are measured on the data of that kind."""
    return engine.split("-")[0]


def profile_name(engine, volume):
    """Those of SQLite are called as the volumes are."""
    return volume if engine == SQLITE else f"{volume}-{family(engine)}"


class Sqlite:
    """Files, made by fullbore-testdata."""

    def __init__(self, engine, folder, testdata):
        self.engine, self.folder, self.testdata = engine, folder, testdata

    def path(self, size_mib):
        return os.path.join(self.folder, f"data-{size_mib}.db")

    def make(self, size_mib):
        """What an earlier run has made stays."""
        if os.path.exists(self.path(size_mib)):
            return
        subprocess.run([self.testdata, "make", self.path(size_mib), "--size", f"{size_mib}MiB"], check=True, stdout=sys.stderr)

    def to_calibrate(self, size_mib):
        """What `calibrate --read` is given."""
        return self.path(size_mib)

    def source(self, size_mib):
        """The words that name it for backup and estimate."""
        return [f"sqlite:{self.path(size_mib)}"]

    def target(self):
        """Where it is restored to: the word for --into, and the path."""
        path = os.path.join(self.folder, "restored.db")
        return f"sqlite:{path}", path

    def rest(self):
        """Nothing of it runs by itself."""

    end = rest


class Mariadb:
    """A server of tests/servers for each size, whose data directory is on the volume. At most one runs at a time, and none while others are measured."""

    def __init__(self, engine, folder, _testdata):
        self.engine, self.folder, self.running = engine, folder, None

    def path(self, size_mib):
        return os.path.join(self.folder, f"{self.engine}-{size_mib}")

    def make(self, size_mib):
        """Its tables take what an empty data directory leaves of the size; it is stopped once, so that its redo log is short."""
        if os.path.exists(os.path.join(self.path(size_mib), "filled")):
            return
        remove(self.path(size_mib))
        fill(self.started(size_mib), max(16, size_mib - EMPTY_MIB) * MIB, TABLES)
        self.rest()
        held = sum(map(os.path.getsize, files_under(os.path.join(self.path(size_mib), "data"))))
        say(f"{self.engine}: {held >> 20} MiB for {size_mib}, its redo log of {REDO_MIB} MiB included")
        with open(os.path.join(self.path(size_mib), "filled"), "w") as mark:
            mark.write(f"{held}\n")

    def to_calibrate(self, size_mib):
        return os.path.join(self.path(size_mib), "data", "bench")

    def started(self, size_mib):
        """The server of that size, running."""
        if self.running and self.running.folder != self.path(size_mib):
            self.rest()
        if not self.running:
            options = [word for option in IDLE for word in ("--option", option)]
            self.running = Server(self.engine, self.path(size_mib), "--redo", f"{REDO_MIB}M", *options)
        return self.running

    def source(self, size_mib):
        about = self.started(size_mib).about
        return [f"mariadb://root@127.0.0.1:{about['port']}", "--password-file", about["password_file"]]

    def target(self):
        path = os.path.join(self.folder, "restored")
        return f"dir:{path}", path

    def rest(self):
        """Nothing of it runs any more."""
        if self.running:
            self.running.stop()
        self.running = None

    def end(self):
        """The same, whatever state it is in."""
        if self.running:
            self.running.kill()
        self.running = None


def database(engine, folder, testdata):
    return (Sqlite if engine == SQLITE else Mariadb)(engine, folder, testdata)


def room(engine, size_mib):
    """Bytes that it takes on its volume, at most."""
    return (size_mib + (0 if engine == SQLITE else EMPTY_MIB + REDO_MIB)) * MIB
