"""The result: the ratios that are targets, and Markdown for people."""

import statistics

from measure import MIB, judged, median_ratio, peak, write_results

CODECS = ("none", "lz4")
OBJECTS = (1, 4, 8)
MEMORY_BESIDE_PLAN = 64 * MIB
COPIES = ("aws s3 cp", "s5cmd cp", "rclone copyto", "mc cp")
BACKUPS = ("restic", "kopia")


def targets():
    """(what, against the best of, ratio wanted): those of the issue. Without a ratio: only shown."""
    rows = []
    for verb in ("backup", "restore"):
        for codec in CODECS:
            for objects in OBJECTS:
                what = f"{verb} {codec}, {objects} objects"
                rows.append((f"fullbore {what}", [f"ceiling 1, {what}", f"ceiling 2, {what}"], 0.9))
    for codec in CODECS:
        rows.append((f"fullbore verify {codec}, 4 objects", [f"ceiling to memory, {codec}, 4 objects"], None))
        rows.append((f"fullbore restore {codec}, 4 objects", [f"ceiling to memory, {codec}, 4 objects"], None))
        rows.append((f"fullbore backup {codec}, 4 objects", [f"ceiling with checksums of parts, backup {codec}, 4 objects"], None))
    rows.append(("fullbore backup none, 4 objects", ["ceiling out of memory, backup none, 4 objects"], None))
    for way in ("sent", "fetched"):
        for tools, target in ((COPIES, 1.5), (BACKUPS, 3)):
            for tool in tools:
                rows.append((f"fullbore lz4, {way}", [f"{tool}, {way}"], target))
                rows.append((f"fullbore none, {way}", [f"{tool}, {way}"], None))
    return rows


def ratios(figures):
    """(what, measured, wanted) of those that were run."""
    found = []
    for name, others, target in targets():
        value = median_ratio(figures, name, others)
        if value is not None or any(name in figures or other in figures for other in others):
            found.append((f"{name} / {' or '.join(others)}", value, target))
    return found


def memory(figures):
    """(case, peak beside the pool, peak beside all that was planned), the worst of the rounds, in MiB."""
    found = []
    for name, rounds in figures.items():
        if "planned" in rounds[0]:
            beside = [max(peak(figure) - figure[part] for figure in rounds) / MIB for part in ("pool", "planned")]
            found.append((name, rounds[0]["pool"] / MIB, rounds[0]["planned"] / MIB, *beside))
    return found


def table(figures, failures):
    lines = ["| case | MiB/s | seconds | CPU s/GB | of the server | peak MiB |", "|---|---:|---:|---:|---:|---:|"]
    for name, rounds in figures.items():
        def middle(of):
            return statistics.median(of(figure) for figure in rounds)
        speed, seconds = middle(lambda f: f["bytes"] / MIB / f["durable_s"]), middle(lambda f: f["durable_s"])
        cpu, server = (middle(lambda f, key=key: f[key] / (f["bytes"] / 1e9)) for key in ("cpu_s", "server_cpu_s"))
        lines.append(f"| {name} | {speed:.0f} | {seconds:.2f} | {cpu:.2f} | {server:.2f} | {middle(peak) / MIB:.0f} |")
    return lines + [f"| {name} | failed: {reason.splitlines()[-1]} | | | | |" for name, reason in failures.items()]


def of_server(server):
    lines = ["", f"## {server['kind']}", ""]
    for codec, stored in server.get("stored", {}).items():
        lines.append(f"- {codec}: {stored / MIB:.0f} MiB stored")
    for what, tried in server["settings"].items():
        best = sorted(tried, key=tried.get)[:2]
        lines.append(f"- settings of the ceiling, {what}: {' and '.join(best)}, the best of {len(tried)}")
    lines += [""] + table(server["figures"], server["failures"])
    lines += ["", "| ratio | | wanted | |", "|---|---:|---:|---|"]
    for what, value, target in ratios(server["figures"]):
        shown, verdict = judged(value, target or 0)
        lines.append(f"| {what} | {shown} | {f'≥ {target}' if target else ''} | {verdict if target else ''} |")
    lines += ["", "| peak memory, MiB | pool | planned in all | beside the pool | beside the plan | wanted |", "|---|---:|---:|---:|---:|---|"]
    for name, pool, planned, beside_pool, beside_plan in memory(server["figures"]):
        verdict = "met" if beside_plan <= MEMORY_BESIDE_PLAN / MIB else "over"
        lines.append(f"| {name} | {pool:.0f} | {planned:.0f} | {beside_pool:.0f} | {beside_plan:.0f} | ≤ 64 {verdict} |")
    return lines


def markdown(result):
    host = result["machine"]
    lines = [f"# fullbore on object stores, {result['date']}", "",
             f"{result['size'] >> 20} MiB SQLite database; {result['rounds']} counted rounds, {result['tool_rounds']} of the other tools; "
             f"{host['cpu']}, {host['cores']} cores shared by clients and server, kernel {host['kernel']}, {host['file_system']}, load at the "
             f"start {host['load_at_start']:.1f}, commit {host['commit']}. MiB/s are of the database, until everything is durable or the store "
             "has answered; CPU seconds are of 10^9 bytes of it. What each case is: bench/object-store/compare.py.", "",
             "Other tools: " + ", ".join(sorted(result["tools"].values())) + "."]
    for server in result["servers"]:
        lines += of_server(server)
    return "\n".join(lines) + "\n"


def write(result, options):
    """Overwritten after each group, so that what was measured is kept."""
    part = set(options.group) != {"backup", "restore", "tools"} or options.only or len(options.server) < 2
    name = f"object-store-{result['date'][:10]}" + ("-quick" if options.quick else "") + ("-part" if part else "")
    write_results(name, result, markdown(result))
