"""The other tools, each with its own defaults, and fullbore beside them: the same file to the same bucket and back."""

import os
import subprocess

CODECS = ("none", "lz4", "zstd:1")
PLACE = "put/x"


def environment(bench):
    """What the tools want to know, none of it in an argument."""
    variables, work = bench.store.variables, bench.work
    key, secret = variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
    return {**variables, "HOME": work, "S3_ENDPOINT_URL": bench.store.endpoint, "AWS_CONFIG_FILE": os.path.join(work, "no-config"),
            "RCLONE_CONFIG": os.path.join(work, "rclone.conf"), "RCLONE_CONFIG_BENCH_TYPE": "s3", "RCLONE_CONFIG_BENCH_PROVIDER": "Other",
            "RCLONE_CONFIG_BENCH_ENV_AUTH": "true", "RCLONE_CONFIG_BENCH_ENDPOINT": bench.store.endpoint,
            "RCLONE_CONFIG_BENCH_REGION": variables["AWS_REGION"], "RCLONE_S3_NO_CHECK_BUCKET": "true",
            "MC_HOST_bench": bench.store.endpoint.replace("://", f"://{key}:{secret}@"), "MC_CONFIG_DIR": os.path.join(work, "mc"),
            "RESTIC_PASSWORD": "bench", "RESTIC_REPOSITORY": f"s3:{bench.store.endpoint}/{PLACE}",
            "KOPIA_PASSWORD": "bench", "KOPIA_CHECK_FOR_UPDATES": "false", "KOPIA_CONFIG_PATH": os.path.join(work, "kopia.config")}


def commands(bench):
    """Of each tool: what makes the place ready, what sends, what fetches."""
    file, out = bench.database, bench.target

    def tool(name, *words):
        return [os.path.join(bench.options.tools, name), *words]

    kopia = tool("kopia", "repository", "create", "s3", "--bucket=put", "--prefix=x/", f"--endpoint={bench.store.address}", "--disable-tls")
    restic = tool("restic", "-q", "--no-cache")
    return {
        "aws s3 cp": (None, tool("aws", "s3", "cp", "--quiet", file, f"s3://{PLACE}/file"),
                      tool("aws", "s3", "cp", "--quiet", f"s3://{PLACE}/file", out)),
        "s5cmd cp": (None, tool("s5cmd", "cp", file, f"s3://{PLACE}/file"), tool("s5cmd", "cp", f"s3://{PLACE}/file", out)),
        "rclone copyto": (None, tool("rclone", "copyto", file, f"bench:{PLACE}/file"), tool("rclone", "copyto", f"bench:{PLACE}/file", out)),
        "mc cp": (None, tool("mc", "cp", "--quiet", file, f"bench/{PLACE}/file"), tool("mc", "cp", "--quiet", f"bench/{PLACE}/file", out)),
        "restic": (restic + ["init"], restic + ["backup", file], restic + ["restore", "latest", "--target", out]),
        "kopia": (kopia, tool("kopia", "snapshot", "create", "--no-progress", file),
                  tool("kopia", "snapshot", "restore", file, out)),
    }


def backups(bench):
    variables, cases = environment(bench), []
    for name, (ready, send, _) in commands(bench).items():
        def before(ready=ready):
            bench.remove("put")
            if ready:
                subprocess.run(ready, check=True, capture_output=True, env={**os.environ, **variables})
        cases.append(bench.case(f"{name}, sent", send, before=before, environment=variables))
    for codec in CODECS:
        command = bench.fullbore("backup", *bench.backup_words(codec, 4))
        cases.append(bench.case(f"fullbore {codec}, sent", command, before=lambda: bench.remove("put")).with_report(bench.report))
    return cases


def restores(bench):
    """Each fetches what it has sent itself, just before."""
    variables, cases = environment(bench), []

    def again(*steps):
        def before():
            bench.remove("put")
            for step in filter(None, steps):
                subprocess.run(step, check=True, capture_output=True, env={**os.environ, **variables})
        return before

    for name, (ready, send, fetch) in commands(bench).items():
        cases.append(bench.case(f"{name}, fetched", fetch, writes=[bench.target], before=again(ready, send), environment=variables))
    for codec in CODECS:
        sent = bench.fullbore("backup", *bench.backup_words(codec, 4))
        command = bench.fullbore("restore", "--from", f"s3://{PLACE}/", "--into", f"sqlite:{bench.target}")
        case = bench.case(f"fullbore {codec}, fetched", command, writes=[bench.target], before=again(sent))
        cases.append(case.with_report(bench.report))
    return cases
