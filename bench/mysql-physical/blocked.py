"""How long a backup keeps writers from committing: asked of the engine, and seen by a client that commits all the time."""

import json
import os
import statistics
import subprocess
import threading
import time

# A commit that took longer than this, in seconds, was kept waiting.
WAITED = 0.010


class Committer(threading.Thread):
    """Commits one small change after another and keeps how long each took, in seconds."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = subprocess.Popen(client + ["--unbuffered"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.taken, self.ended = [], False

    def run(self):
        while not self.ended:
            begun = time.monotonic()
            self.client.stdin.write("UPDATE bench.committed SET v = v + 1 WHERE id = 1; SELECT v FROM bench.committed WHERE id = 1;\n")
            self.client.stdin.flush()
            self.client.stdout.readline()
            self.taken.append(time.monotonic() - begun)

    def end(self):
        self.ended = True
        self.join()
        self.client.stdin.close()
        self.client.wait()
        return self.taken


def said_by(engine, report):
    """What the engine says that it blocked, in seconds."""
    blocked = report["position"]["last"].get("blocked_ms") or {}
    return blocked["commits"] / 1000 if engine == "mariadb" and "commits" in blocked else report["writers_blocked_s"]


def measure(engine, server, command, work, times=10):
    """Rows of Markdown: `times` backups by `command`, each beside a client that commits."""
    server.sql("CREATE TABLE IF NOT EXISTS bench.committed (id INT PRIMARY KEY, v BIGINT); REPLACE INTO bench.committed VALUES (1, 0)")
    path = os.path.join(work, "report.json")
    said, longest, waited, commits, quiet = [], [], [], [], []
    for _ in range(times):
        alone = Committer(server.client())
        alone.start()
        time.sleep(2)
        quiet.append(max(alone.end()))
        committer = Committer(server.client())
        committer.start()
        try:
            subprocess.run(command + ["--report", f"json:{path}"], check=True, capture_output=True)
        finally:
            taken = committer.end()
        with open(path) as report:
            said.append(said_by(engine, json.load(report)))
        longest.append(max(taken))
        waited.append(sum(each for each in taken if each > WAITED))
        commits.append(len(taken))

    def row(what, figures):
        return f"| {what} | {statistics.median(figures) * 1000:.1f} | {max(figures) * 1000:.1f} |"

    return ["", f"Writers, in {times} backups to `nul:` beside a client that commits without a pause "
            f"({statistics.median(commits):.0f} commits in each), milliseconds:", "",
            "| | median | longest |", "|---|---:|---:|",
            row("commits blocked, as the backup reports it", said),
            row("longest commit that the client saw", longest),
            row(f"all of its commits that took over {WAITED * 1000:.0f} ms, together", waited),
            row("longest commit in 2 s without a backup", quiet)]
