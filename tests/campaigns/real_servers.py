"""Real servers and sessions for the campaigns of this folder."""

import json, os, re, subprocess, time

SERVER = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../servers/server")
KINDS = ("mysql-9", "mariadb-10.11", "mariadb-11.8")
# What a session is told when its server is gone.
GONE = ("ERROR 2002", "ERROR 2003", "ERROR 2006", "ERROR 2013", "ERROR 2055", "ERROR 1053", "ERROR 4031")
# What a client is told that loses its connection to a server that is there.
LOST = ("ERROR 2006", "ERROR 2013", "ERROR 2026")


class Failure(Exception):
    """A copy did not hold what was promised."""


class Gone(Exception):
    """The server went away."""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **options)


def as_their_user(directory, home):
    """How to run the program in a directory as the user of the servers: a server that it starts must not run as root."""
    user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    environment = {**os.environ, "HOME": home, "NO_COLOR": "1", "XDG_RUNTIME_DIR": home, "XDG_STATE_HOME": home}
    return {"cwd": directory, "env": environment, **user}


class Server:
    """A real server, by the script that the tests use too; ended with this process at the latest."""

    def __init__(self, kind, directory, *arguments):
        self.kind, self.directory, self.arguments = kind, directory, arguments
        self.is_mysql = kind.startswith("mysql")
        self.start()

    def start(self):
        done = run([SERVER, "start", self.kind, "--dir", self.directory, "--owner", str(os.getpid()), *self.arguments])
        if done.returncode != 0:
            raise Failure(f"{self.kind} does not start: {done.stderr}")
        self.facts = json.loads(done.stdout)

    def client(self):
        return [self.facts["client"], f"--defaults-file={self.facts['client_options']}", "--batch", "--skip-column-names"]

    def url(self):
        return f"{'mysql' if self.is_mysql else 'mariadb'}://root@127.0.0.1:{self.facts['port']}"

    def sql(self, text, check=True):
        done = run(self.client(), input=text)
        for _ in range(5):
            # On a busy machine a handshake takes longer than the server waits for it.
            if not check or done.returncode == 0 or not done.stderr.startswith(LOST):
                break
            time.sleep(1)
            done = run(self.client(), input=text)
        if check and done.returncode != 0:
            raise Failure(f"{done.stderr.strip()}\nin: {text[:300]}")
        return done.stdout

    def program(self, name):
        return os.path.join(self.facts["bin"], name)

    def end(self, how="kill"):
        run([SERVER, how, self.directory])

    def transactions(self):
        """How many there were: the number in its GTID. Without GTIDs, the commits in tables, which are more."""
        if self.is_mysql and self.sql("SELECT @@gtid_mode").strip() == "OFF":
            text = self.sql("SHOW GLOBAL STATUS LIKE 'Handler_commit'")
        else:
            text = self.sql("SELECT @@gtid_executed" if self.is_mysql else "SELECT @@gtid_binlog_pos").strip()
        numbers = re.findall(r"\d+", text)
        return int(numbers[-1]) if numbers else 0


class Session:
    """One connection that lives on between statements, and tells of each what became of it."""

    def __init__(self, server):
        command = [*server.client(), "--unbuffered", "--force"]
        self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        self.number = 0

    def run(self, statement):
        """None, or the error; and what came before it."""
        self.number += 1
        mark = f"-- end of {self.number} --"
        try:
            self.client.stdin.write(f"{statement}\n;\nSELECT '{mark}';\n")
            self.client.stdin.flush()
        except (OSError, ValueError) as error:
            raise Gone(str(error))
        lines, error = [], None
        for line in self.client.stdout:
            line = line.rstrip("\n")
            if line == mark:
                return error, lines
            if line.startswith(GONE):
                raise Gone(line)
            if line.startswith("ERROR") and "No query specified" not in line:
                error = error or line
            else:
                lines.append(line)
        raise Gone("the client ended")

    def end(self):
        self.client.kill()
        self.client.wait()
