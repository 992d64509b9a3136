#!/usr/bin/env python3
"""How long it takes to list a repository of many sets: from the catalog, and from the bare repository, in a directory and in a store.

    cargo build --release -p fullbore --features isal
    tests/servers/install-stores versitygw
    bench/repository.py --fullbore target/release/fullbore [--sets 10000] [--rounds 5]

One real set is backed up; its record is then written down again under other ids, with families of one byte. A store's files are put where
versitygw keeps them. Medians; the first round is not counted. README.md beside this script has the figures.
"""

import argparse, json, os, shutil, socket, statistics, subprocess, sys, tempfile, time, uuid

CACHE = "/var/cache/fullbore/servers/versitygw/bin/versitygw"


def run(fullbore, home, line, variables):
    environment = dict(os.environ, XDG_STATE_HOME=os.path.join(home, "state"), HOME=home, **variables)
    begun = time.monotonic()
    done = subprocess.run([fullbore, *line], cwd=home, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(line)}: exit {done.returncode}\n{done.stderr}")
    return time.monotonic() - begun, done.stdout


def fill(place, sets):
    """Writes so many sets beside the one that is there."""
    folder = os.path.join(place, ".fullbore/sets")
    with open(os.path.join(folder, os.listdir(folder)[0])) as file:
        model = json.load(file)
    for number in range(sets - 1):
        model["backup_set_id"], model["media_set_id"] = str(uuid.uuid4()), str(uuid.uuid4())
        model["started_at"] += 1
        model["families"] = [{"place": 0, "name": f"app-full-{number}-{model['media_set_id'][-4:]}.bore", "bytes": 1}]
        with open(os.path.join(place, model["families"][0]["name"]), "w") as file:
            file.write(" ")
        with open(os.path.join(folder, f"{model['backup_set_id']}.json"), "w") as file:
            json.dump(model, file)


def measure(name, fullbore, home, repository, sets, rounds, variables):
    times = {"catalog": [], "bare": [], "again": []}
    for _ in range(rounds + 1):
        shutil.rmtree(os.path.join(home, "state"), ignore_errors=True)
        for what, more in (("bare", []), ("again", []), ("catalog", ["--catalog"])):
            seconds, out = run(fullbore, home, ["list", "--repo", repository, "--json", *more], variables)
            listed = len(json.loads(out)["sets"])
            if listed != sets:
                sys.exit(f"{listed} sets were listed, and {sets} are there")
            times[what].append(seconds)
    row = [statistics.median(times[what][1:]) for what in ("catalog", "again", "bare")]
    print(f"| {name} | {sets:,} | " + " | ".join(f"{seconds:.2f} s" for seconds in row) + " |", flush=True)


def store(home):
    """A versitygw over a folder, and the variables by which it is reached."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.makedirs(os.path.join(home, "data/media"))
    keys = {"ROOT_ACCESS_KEY": "bench", "ROOT_SECRET_KEY": uuid.uuid4().hex}
    command = [CACHE, "--keep-alive", "--port", f"127.0.0.1:{port}", "--region", "us-east-1", "posix", os.path.join(home, "data")]
    server = subprocess.Popen(command, env=dict(os.environ, **keys), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    variables = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": keys["ROOT_ACCESS_KEY"],
                 "AWS_SECRET_ACCESS_KEY": keys["ROOT_SECRET_KEY"], "AWS_EC2_METADATA_DISABLED": "true"}
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, variables
        time.sleep(0.1)
    sys.exit("versitygw does not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fullbore", required=True)
    parser.add_argument("--sets", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    fullbore = os.path.realpath(arguments.fullbore)
    print("| repository | sets | list --catalog | list, catalog known | list, no catalog |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="fullbore-bench-") as home:
        os.makedirs(os.path.join(home, "here"))
        subprocess.run(["sqlite3", os.path.join(home, "app.db"), "CREATE TABLE t (a)"], check=True)
        run(fullbore, home, ["backup", "sqlite:app.db", "--repo", "here/"], {})
        fill(os.path.join(home, "here"), arguments.sets)
        measure("directory", fullbore, home, "here/", arguments.sets, arguments.rounds, {})
        server, variables = store(home)
        try:
            run(fullbore, home, ["backup", "sqlite:app.db", "--repo", "s3://media/night/"], variables)
            fill(os.path.join(home, "data/media/night"), arguments.sets)
            measure("versitygw", fullbore, home, "s3://media/night/", arguments.sets, arguments.rounds, variables)
        finally:
            server.kill()
            server.wait()


main()
