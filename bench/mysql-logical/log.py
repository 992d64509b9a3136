#!/usr/bin/env python3
"""Log backups and points in time of MySQL and MariaDB, against the server's own programs: ratios of medians, in one run.

    bench/mysql-logical/log.py --fullbore target/release/fullbore --kind mysql-9 --transactions 20000 --rounds 3

- archive: `backup --kind log` of the server's files to a directory, uncompressed, against `mysqlbinlog --raw` of the same files.
- point in time: `restore` of a full and its logs, less `restore` of the full alone, against `mysqlbinlog FILES | mysql` into a
  server on the same full, with the same relaxed settings.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from measure import say, write_results  # noqa: E402
from servers import Server  # noqa: E402

RELAXED = ("--option=sync_binlog=0", "--option=innodb_flush_log_at_trx_commit=0", "--option=innodb_doublewrite=0")


class Bench:
    def __init__(self, arguments):
        self.arguments, self.is_mysql = arguments, arguments.kind.startswith("mysql")
        self.folder = tempfile.mkdtemp(prefix="bench-log-", dir=arguments.directory)
        os.chmod(self.folder, 0o777)
        self.server = Server(arguments.kind, self.at("server"), "--binlog")
        shutil.copy(self.server.about["password_file"], self.at("password"))
        os.chmod(self.at("password"), 0o644)
        scheme = "mysql" if self.is_mysql else "mariadb"
        self.url = f"{scheme}://root@127.0.0.1:{self.server.about['port']}"

    def at(self, name):
        return os.path.join(self.folder, name)

    def program(self, name):
        return os.path.join(self.server.about["bin"], name)

    def fullbore(self, *words):
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        environment = {**os.environ, "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder}
        begun = time.monotonic()
        done = subprocess.run([self.arguments.fullbore, *words, "--quiet"], cwd=self.folder, env=environment, capture_output=True, text=True, **user)
        if done.returncode not in (0, 4):
            sys.exit(f"{words}: {done.stderr}")
        return time.monotonic() - begun

    def backup(self, *words):
        return self.fullbore("backup", self.url, "--password-file", "password", "--compression", "none", "--mkdir", *words)

    def fill(self):
        """One client for each thread commits small transactions: an update of a row, and a journal row of some hundred bytes."""
        install = "INSTALL PLUGIN clone SONAME 'mysql_clone.so';" if self.is_mysql else ""
        self.server.sql(
            f"{install} CREATE DATABASE bench; CREATE TABLE bench.account (id INT PRIMARY KEY, amount BIGINT, KEY (amount));"
            "CREATE TABLE bench.journal (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(400));"
            + "".join(f"INSERT INTO bench.account VALUES ({n}, 1000);" for n in range(1000))
            + "SET GLOBAL sync_binlog = 0; SET GLOBAL innodb_flush_log_at_trx_commit = 0;")
        self.backup("--to", "full/")
        self.server.sql("FLUSH BINARY LOGS")
        threads, share = 4, self.arguments.transactions // 4
        clients = []
        for thread in range(threads):
            text = "USE bench;\n" + "".join(
                f"BEGIN; UPDATE account SET amount = amount + 1 WHERE id = {(thread * 250 + n * 7 % 250) % 1000};"
                f"INSERT INTO journal (t) VALUES (REPEAT('{thread}{n}', 40)); COMMIT;\n" for n in range(share))
            client = subprocess.Popen(self.server.client(), stdin=subprocess.PIPE, text=True)
            client.stdin.write(text)
            client.stdin.close()
            clients.append(client)
        if any(client.wait() for client in clients):
            sys.exit("a client failed")
        self.server.sql("FLUSH BINARY LOGS")
        rows = [line.split("\t") for line in self.server.sql("SHOW BINARY LOGS").splitlines()]
        self.names = [row[0] for row in rows][1:-1]
        self.bytes = sum(int(row[1]) for row in rows if row[0] in self.names)
        say(f"{self.bytes / (1 << 20):.1f} MiB of log in {len(self.names)} files")

    def archive(self):
        ours, theirs = [], []
        for number in range(self.arguments.rounds):
            ours.append(self.backup("--kind", "log", "--base", "full/", "--to", f"log{number}/"))
            os.mkdir(self.at(f"raw{number}"))
            reader = self.program("mysqlbinlog" if self.is_mysql else "mariadb-binlog")
            begun = time.monotonic()
            subprocess.run([reader, f"--defaults-file={self.server.about['client_options']}", "--read-from-remote-server", "--raw",
                            f"--result-file={self.at(f'raw{number}')}/", *self.names], check=True)
            theirs.append(time.monotonic() - begun)
            for name in self.names:
                with open(self.at(f"raw{number}/{name}"), "rb") as file:
                    os.fsync(file.fileno())
        return statistics.median(ours), statistics.median(theirs)

    def point(self):
        ours, theirs, program = [], [], self.program("mysqld" if self.is_mysql else "mariadbd")
        for number in range(self.arguments.rounds):
            whole = self.fullbore("restore", "--from", "full/", "--from", "log0/", "--into", f"dir:{self.at(f'all{number}')}", "--server-program", program)
            alone = self.fullbore("restore", "--from", "full/", "--into", f"dir:{self.at(f'alone{number}')}")
            shutil.rmtree(self.at(f"all{number}"))
            ours.append(whole - alone)
            target = Server(self.arguments.kind, self.at(f"target{number}"), "--binlog", "--datadir", self.at(f"alone{number}"),
                            "--password-file", self.server.about["password_file"], *RELAXED)
            reader = self.program("mysqlbinlog" if self.is_mysql else "mariadb-binlog")
            paths = [os.path.join(self.server.about["datadir"], name) for name in self.names]
            begun = time.monotonic()
            events = subprocess.Popen([reader, *paths], stdout=subprocess.PIPE)
            subprocess.run([*target.client(), "--binary-mode"], stdin=events.stdout, check=True, stdout=subprocess.DEVNULL)
            theirs.append(time.monotonic() - begun)
            target.kill()
            shutil.rmtree(self.at(f"alone{number}"))
        return statistics.median(ours), statistics.median(theirs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fullbore", required=True, type=os.path.abspath)
    parser.add_argument("--kind", default="mysql-9")
    parser.add_argument("--transactions", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    try:
        bench.fill()
        archive, point = bench.archive(), bench.point()
    finally:
        bench.server.kill()
        shutil.rmtree(bench.folder, ignore_errors=True)
    lines = [f"{arguments.kind}, {arguments.transactions} transactions, {bench.bytes / (1 << 20):.1f} MiB of log, medians of {arguments.rounds} rounds", "",
             "| | fullbore, s | the server's programs, s | ratio |", "|---|---|---|---|"]
    for name, (ours, theirs) in (("archive", archive), ("point in time", point)):
        lines.append(f"| {name} | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f} |")
    result = {"kind": arguments.kind, "bytes": bench.bytes, "transactions": arguments.transactions, "archive": archive, "point": point}
    write_results(f"mysql-log-{arguments.kind}", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
