#!/usr/bin/env python3
"""The question of a published report: "backup at 70 MB/s where the disk writes 120: was it overhead, was it not sequential, was the queue not deep enough?"

    cargo build --release -p fullbore
    sudo bench/seventy_of_120.py --fullbore target/release/fullbore --work DIRECTORY [--size 1GiB] [--repetitions 3]

Three volumes of 120 MB/s on which a backup reaches about 70, each for another reason; a fourth case is the same volume with the product's own
settings. Each case is a matrix of `fullbore bench` with the raw path (--measure-limit) measured in every run. The verdict is read from the results, its
first printed advice is taken word by word as the settings of a second matrix (until nothing is advised), and what that reaches is compared with the raw
path of its own runs. Wanted: the reason named, and 0.95 of the raw path. Writes results/seventy-of-120-DATE.json and .md.
"""

import argparse, datetime, json, os, re, statistics, subprocess, sys

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
WANTED = 0.95
MOST_STEPS = 4

# Name, what it is, volume, settings, what the verdict should say.
CASES = [
    ("short transfers", "120 MB/s and 1,100 operations of 256 KiB a second; transfers of 64 KiB, one at a time", {"rate": "120MB/s", "iops": 1100},
     {"queue-depth": "1", "max-transfer-size": "64KiB"}, "shallow queue"),
    ("one at a time", "120 MB/s, 6 ms for each operation; transfers of 1 MiB, one at a time", {"rate": "120MB/s", "latency-ms": 6},
     {"queue-depth": "1"}, "shallow queue"),
    ("few buffers", "120 MB/s, 3 ms for each operation; queue depth 8, and 6 buffers", {"rate": "120MB/s", "latency-ms": 3},
     {"queue-depth": "8", "buffer-count": "6", "readers": "1", "workers": "1"}, "pool"),
    ("the product's own", "120 MB/s and 1,100 operations of 256 KiB a second; nothing set", {"rate": "120MB/s", "iops": 1100}, {}, "sink"),
]


def toml(value):
    return value if isinstance(value, (int, float)) else json.dumps(value)


def matrix(options, volume, knobs):
    lines = ['title = "70 of 120"', f"repetitions = {options.repetitions}", "warm-up = 0", "raw-path = true", "[data.app]",
             f'size = "{options.size}"', "random = 0.8", "[volume.disk]"]
    lines += [f"{key} = {toml(value)}" for key, value in volume.items()]
    lines += ["[axes]", 'media-volume = "disk"', 'codec = "none"', "stripes = 1"]
    lines += [f"{key} = {toml(value)}" for key, value in knobs.items()]
    return "\n".join(lines) + "\n"


def bench(options, name, volume, knobs):
    """Runs one matrix; its records."""
    folder = os.path.join(options.work, name.replace(" ", "-"))
    os.makedirs(folder, exist_ok=True)
    file, out = os.path.join(folder, "matrix.toml"), os.path.join(folder, "results")
    subprocess.run(["rm", "-rf", out], check=True)
    with open(file, "w") as text:
        text.write(matrix(options, volume, knobs))
    done = subprocess.run([options.fullbore, "bench", file, "--work", os.path.join(options.work, "bench"), "--out", out],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    with open(os.path.join(out, "results.jsonl")) as text:
        return [json.loads(line) for line in text]


def advised(records, knobs):
    """The settings that the first advice of the first run asks for, and the advice; None where there is none that is faster."""
    for text in records[0]["verdict"]["what_if"][:1]:
        flags = dict(re.findall(r"--([a-z-]+) (\w+)", text))
        buffers = re.search(r"BUFFERCOUNT \d+ → (\d+)", text)
        if buffers:
            flags["buffer-count"] = buffers.group(1)
        if flags and re.search(r"\d\.\d\d×", text):
            return {**knobs, **flags}, text
    return None, None


def summary(records, knobs):
    middle = lambda of: statistics.median(of(record) for record in records)
    return {
        "settings": knobs,
        "mb_per_s": middle(lambda one: one["mib_per_s"]) * 1.048576,
        "raw_path_mb_per_s": middle(lambda one: one["raw_path_mib_per_s"]) * 1.048576,
        "of_raw_path": middle(lambda one: one["mib_per_s"] / one["raw_path_mib_per_s"]),
        "verdicts": sorted({one["verdict"]["limit"] for one in records}),
        "why": records[0]["verdict"]["why"],
        "what_if": records[0]["verdict"]["what_if"],
        "volume": records[0]["volumes"][0],
    }


def solve(options, name, what, volume, knobs, wanted):
    steps, advice = [], None
    while True:
        records = bench(options, name, volume, knobs)
        steps.append({**summary(records, knobs), "advised": advice})
        print(f"{name}: {steps[-1]['mb_per_s']:.0f} MB/s, {steps[-1]['of_raw_path']:.2f} of the raw path, {steps[-1]['verdicts']}", flush=True)
        if len(steps) > MOST_STEPS or steps[-1]["of_raw_path"] >= WANTED:
            break
        following, advice = advised(records, knobs)
        if following is None or following == knobs:
            break
        knobs = following
    return {"case": name, "what": what, "wanted": wanted, "steps": steps, "machine": records[0]["machine"], "version": records[0]["tool_version"]}


def markdown(options, solved):
    machine = solved[0]["machine"]
    lines = ["# 70 of 120 MB/s", "",
             f"{machine['processor']}, {machine['cores']} processors, Linux {machine['kernel']}; fullbore {solved[0]['version']}; `bench/seventy_of_120.py --size {options.size} "
             f"--repetitions {options.repetitions}`. Medians; the raw path is that of `--measure-limit` in the same runs. Wanted: the reason named, and {WANTED} of the raw path.", ""]
    for one in solved:
        first, last = one["steps"][0], one["steps"][-1]
        named = "named right" if first["verdicts"] == [one["wanted"]] else f"**named {', '.join(first['verdicts'])}, not {one['wanted']}**"
        reached = "reached" if last["of_raw_path"] >= WANTED else "**missed**"
        lines += [f"## {one['case']}", "", f"{one['what']}. Volume: {first['volume']['how']} ({first['volume']['why']}). {named[0].upper() + named[1:]}; {WANTED} {reached}.", "",
                  "| settings | MB/s | raw path MB/s | of it | limit | advised |", "|---|---:|---:|---:|---|---|"]
        for step in one["steps"]:
            settings = " ".join(f"--{key} {value}" for key, value in step["settings"].items()) or "none"
            lines.append(f"| {settings} | {step['mb_per_s']:.0f} | {step['raw_path_mb_per_s']:.0f} | {step['of_raw_path']:.2f} | {', '.join(step['verdicts'])} | "
                         f"{'; '.join(step['what_if']) or 'nothing'} |")
        lines += ["", f"The verdict at first: {one['wanted'] if first['verdicts'] == [one['wanted']] else first['verdicts'][0]}: {first['why']}", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fullbore", required=True)
    parser.add_argument("--work", required=True, help="a directory on a disk that is faster than 120 MB/s")
    parser.add_argument("--size", default="1GiB")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--case", action="append", help="only this one; repeatable")
    parser.add_argument("--out", default=RESULTS)
    options = parser.parse_args()
    options.fullbore, options.work = os.path.abspath(options.fullbore), os.path.abspath(options.work)
    solved = [solve(options, *case) for case in CASES if not options.case or case[0] in options.case]
    name = os.path.join(options.out, f"seventy-of-120-{datetime.date.today()}")
    with open(name + ".json", "w") as file:
        json.dump(solved, file, indent=1, ensure_ascii=False)
        file.write("\n")
    with open(name + ".md", "w") as file:
        file.write(markdown(options, solved))
    print(f"{name}.md")


if __name__ == "__main__":
    main()
