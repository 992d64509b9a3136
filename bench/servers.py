"""Real servers of tests/servers for comparisons, and the tables that they are filled with."""

import json
import os
import random
import subprocess
import sys

from measure import ROOT, files_under

SERVER = os.path.join(ROOT, "tests", "servers", "server")
# Bytes of a row, about; a table is filled with as many as its share needs.
ROW_BYTES = 420


class Server:
    """A real server of tests/servers, which ends with this process."""

    def __init__(self, kind, folder, *options, owner=None):
        self.folder = folder
        command = [SERVER, "start", kind, "--dir", folder, "--owner", str(owner or os.getpid()), *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{kind} does not start: {done.stderr.strip()[-800:]}")
        self.about = json.loads(done.stdout)

    def client(self):
        return [self.about["client"], f"--defaults-extra-file={self.about['client_options']}", "--batch", "--skip-column-names"]

    def sql(self, text):
        done = subprocess.run(self.client(), input=text, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"SQL failed: {done.stderr.strip()[-800:]}")
        return done.stdout

    def stop(self):
        subprocess.run([SERVER, "stop", self.folder], check=True, capture_output=True)

    def kill(self):
        """As a power cut would; nothing happens where it does not run."""
        subprocess.run([SERVER, "kill", self.folder], capture_output=True)


def fill(server, size, tables):
    """Tables with text, numbers, dates, a blob that does not compress, and indexes; the same ones in every run."""
    rows, dice = max(100, size // tables // ROW_BYTES), random.Random(7)
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(3, 10))) for _ in range(2000)]
    seed = ("id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60), note VARCHAR(400), amount DECIMAL(12,2), "
            "at DATETIME, mark BINARY(32), KEY (name), KEY (at)")
    statements = [f"SET sql_log_bin = 0; CREATE DATABASE bench; USE bench; CREATE TABLE seed ({seed}); SET unique_checks = 0;"]
    for begin in range(0, rows, 500):
        values = []
        for number in range(begin, min(begin + 500, rows)):
            name, note = " ".join(dice.choices(words, k=3)), " ".join(dice.choices(words, k=dice.randint(5, 40)))[:400]
            mark = "%064x" % dice.getrandbits(256)
            values.append(f"('{name}', '{note}', {dice.randint(0, 10**9) / 100}, "
                          f"DATE_ADD('2020-01-01', INTERVAL {number * 37} SECOND), x'{mark}')")
        statements.append(f"INSERT INTO seed (name, note, amount, at, mark) VALUES {', '.join(values)};")
    server.sql("\n".join(statements))
    for number in range(tables - 1):
        server.sql(f"SET sql_log_bin = 0; USE bench; CREATE TABLE t{number:03} LIKE seed; INSERT INTO t{number:03} SELECT * FROM seed")


def data_files(server):
    return [path for path in files_under(server.about["datadir"]) if path.endswith((".ibd", ".ibu")) or "ibdata" in path]
