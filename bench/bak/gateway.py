#!/usr/bin/env python3
"""How fast `fullbore gateway` stores objects, as a ratio to versitygw in the same run: the same client (curl), the same
objects, the same TLS certificate, and the same disk. A round is: all objects at once, then `sync`. fullbore answers when a
set is durable, and versitygw does not sync by itself; so the time of a round counts until everything is durable.

    bench/bak/gateway.py /mnt/scratch [--size 512MiB] [--objects 4] [--rounds 5] [--codec none]

The objects are random bytes: no codec makes them shorter.
"""

import argparse
import datetime
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "object-store"))
from measure import MIB, TARGET, say, size_of, write_results  # noqa: E402
from stores import servers_directory  # noqa: E402

WANTED = 0.8
KEY, SECRET, BUCKET, REGION = "FULLBOREBENCH", "0123456789abcdefBENCHSECRET", "nightly", "us-east-1"


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def await_answer(process, address):
    host, port = address.split(":")
    for _ in range(300):
        if process.poll() is not None:
            sys.exit(f"the server at {address} has ended")
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                time.sleep(0.5)
                return
        time.sleep(0.1)
    sys.exit(f"the server at {address} does not answer")


def begin(command, environment, folder, name):
    with open(os.path.join(folder, f"{name}.log"), "wb") as log:
        # setpriv: should this process be killed, the kernel ends the server.
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], cwd=folder, env=environment,
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def versitygw(folder):
    address, data = free_address(), os.path.join(folder, "versitygw-data")
    os.makedirs(os.path.join(data, BUCKET))
    program = os.path.join(servers_directory(), "versitygw", "bin", "versitygw")
    own = {"PATH": os.environ["PATH"], "HOME": folder, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    # It changes into the directory of its data.
    certificate, key = (os.path.join(folder, "tls", f"gateway.{kind}") for kind in ("crt", "key"))
    command = [program, "--cert", certificate, "--key", key, "--keep-alive", "--port", address, "--region", REGION, "posix",
               data]
    return begin(command, own, folder, "versitygw"), address, data


def fullbore(folder, program, codec):
    address, data = free_address(), os.path.join(folder, "fullbore-data")
    os.makedirs(data)
    with open(os.path.join(folder, "fullbore.toml"), "w") as out:
        out.write(f'[repository.{BUCKET}]\nto = ["{data}/"]\ncompression = "{codec}"\n')
    with open(os.open(os.path.join(folder, "keys"), os.O_WRONLY | os.O_CREAT, 0o600), "w") as out:
        out.write(f'[[key]]\nid = "{KEY}"\nsecret = "{SECRET}"\nrights = ["write", "read", "list", "delete"]\n')
    own = {"PATH": os.environ["PATH"], "HOME": folder, "XDG_STATE_HOME": folder}
    command = [program, "gateway", "--repo", BUCKET, "--listen", address, "--tls-cert", "tls/gateway.crt", "--tls-key",
               "tls/gateway.key", "--keys", "keys"]
    return begin(command, own, folder, "fullbore"), address, data


def round_of(folder, address, files, number):
    """Seconds until all objects are stored and durable."""
    begun = time.monotonic()
    clients = []
    for at, path in enumerate(files):
        # The secret goes in by stdin, never by an argument.
        config = (f'user = "{KEY}:{SECRET}"\naws-sigv4 = "aws:amz:{REGION}:s3"\ncacert = "tls/ca.crt"\nnoproxy = "*"\n'
                  f'header = "x-amz-content-sha256: UNSIGNED-PAYLOAD"\nfail\nsilent\nshow-error\nupload-file = "{path}"\n'
                  f'url = "https://{address}/{BUCKET}/round{number}-{at}"\n')
        client = subprocess.Popen(["curl", "-q", "--config", "-"], cwd=folder, stdin=subprocess.PIPE)
        client.stdin.write(config.encode())
        client.stdin.close()
        clients.append(client)
    if any([client.wait() for client in clients]):
        sys.exit(f"a client has failed: see the logs in {folder}")
    os.sync()
    return time.monotonic() - begun


def clear(data):
    """Removes what a round has stored: the disk need not hold all rounds."""
    for place in (data, os.path.join(data, BUCKET)):
        for entry in os.scandir(place) if os.path.isdir(place) else []:
            if entry.is_file():
                os.unlink(entry.path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scratch", help="a directory on the disk to measure")
    parser.add_argument("--size", type=size_of, default=512 * MIB)
    parser.add_argument("--objects", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--program", default=os.path.join(TARGET, "release", "fullbore"))
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(dir=asked.scratch)
    try:
        os.mkdir(os.path.join(folder, "tls"))
        subprocess.run([asked.program, "gateway", "cert", "tls", "--host", "127.0.0.1"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        files = [os.path.join(folder, f"object{at}") for at in range(asked.objects)]
        for path in files:
            with open(path, "wb") as out:
                for _ in range(asked.size // MIB):
                    out.write(os.urandom(MIB))
        servers = {"versitygw": versitygw(folder), "fullbore gateway": fullbore(folder, asked.program, asked.codec)}
        seconds = {name: [] for name in servers}
        try:
            for process, address, _ in servers.values():
                await_answer(process, address)
            for number in range(asked.rounds + 1):
                # Each is first in every second round. The first round warms up, and does not count.
                for name in sorted(servers, reverse=number % 2 == 1):
                    _, address, data = servers[name]
                    os.sync()
                    took = round_of(folder, address, files, number)
                    say(f"round {number}, {name}: {took:.2f} s")
                    clear(data)
                    if number > 0:
                        seconds[name].append(took)
        finally:
            for process, _, _ in servers.values():
                process.terminate()
                process.wait()
        whole = asked.size * asked.objects / MIB
        speed = {name: whole / statistics.median(all_of) for name, all_of in seconds.items()}
        ratios = [theirs / ours for theirs, ours in zip(seconds["versitygw"], seconds["fullbore gateway"])]
        ratio = statistics.median(ratios)
        lines = [f"# Gateway: {asked.objects} objects of {asked.size // MIB} MiB at once, codec {asked.codec}, {asked.rounds} rounds",
                 "", "| server | MiB/s, median |", "|---|---|"]
        lines += [f"| {name} | {value:.0f} |" for name, value in sorted(speed.items())]
        verdict = "reached" if ratio >= WANTED else "missed"
        lines += ["", f"Ratio, median of the rounds: {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}). Target {WANTED}: {verdict}.", ""]
        result = {"seconds": seconds, "mib": whole, "ratio": ratio, "codec": asked.codec, "wanted": WANTED}
        write_results(f"gateway-{datetime.date.today()}", result, "\n".join(lines))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
