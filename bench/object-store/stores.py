"""One S3 server of tests/servers for the comparison: started on a directory of its own, ended with this process."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid

from measure import ROOT

REGION = "us-east-1"
TICKS = os.sysconf("SC_CLK_TCK")


def servers_directory():
    """The same rule as in tests/servers/install-stores."""
    if os.environ.get("FULLBORE_TEST_SERVERS"):
        return os.environ["FULLBORE_TEST_SERVERS"]
    if os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "fullbore", "servers")
    return "/var/cache/fullbore/servers" if os.geteuid() == 0 else os.path.expanduser("~/.cache/fullbore/servers")


class Store:
    """A server, its buckets, and the variables by which clients reach it."""

    def __init__(self, kind, folder, buckets):
        program = os.path.join(servers_directory(), kind, "bin", kind)
        if not os.path.exists(program):
            sys.exit(f"{kind} is not installed: tests/servers/install-stores {kind}")
        data = os.path.join(folder, "data")
        for bucket in buckets:
            os.makedirs(os.path.join(data, bucket))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        key, secret = "fullborebench", uuid.uuid4().hex
        self.endpoint = f"http://{self.address}"
        self.variables = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION,
                          "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_EC2_METADATA_DISABLED": "true"}
        own = {"PATH": os.environ["PATH"], "HOME": folder}
        if kind == "versitygw":
            own |= {"ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
            command = [program, "--keep-alive", "--port", self.address, "--region", REGION, "posix", data]
        else:
            own |= {"MINIO_ROOT_USER": key, "MINIO_ROOT_PASSWORD": secret, "MINIO_REGION": REGION, "MINIO_BROWSER": "off"}
            command = [program, "server", "--quiet", "--address", self.address, "--console-address", "127.0.0.1:0", data]
        self.log = os.path.join(folder, "log")
        with open(self.log, "wb") as log:
            # setpriv: should this process be killed, the kernel ends the server.
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], env=own, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        self.await_answer()

    def await_answer(self):
        for _ in range(300):
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(self.address.split(":")[1]))) == 0:
                    time.sleep(1)  # MinIO listens before it serves.
                    return
            time.sleep(0.1)
        with open(self.log) as log:
            sys.exit(f"the server does not start: {log.read()[-600:]}")

    def cpu_seconds(self):
        """What the server has taken of the processors so far."""
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
