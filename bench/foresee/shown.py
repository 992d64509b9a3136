"""What was foreseen and what came: errors, coverage, and Markdown for people."""

import math
import statistics

import databases
import draw
from measure import say, write_results

DIRECTIONS = ("backup", "restore")
PACES = ("processor_s", "disk_s")
# A machine is as fast as at its calibration within this share.
STEADY = 0.1
# What the issue asks for: median and 90th percentile of the absolute error, share of runs within P10 to P90.
WANTED = {"median": 0.10, "p90": 0.25, "covered": 0.80}
# Of a local disk: no run at all may be further off.
WANTED_LOCALLY = {"median": 0.10, "worst": 0.30, "covered": 0.80}


def rows(result):
    """One for each configuration and direction: foreseen, observed, error, limits."""
    found = []
    for one in result["configurations"]:
        for direction in DIRECTIONS:
            runs = [run for run in result["runs"] if run["id"] == one["id"] and run["direction"] == direction]
            counted = [run for run in runs if run["round"] and "failed" not in run]
            foreseen = result["foreseen"][one["id"]][direction]
            row = {"id": one["id"], "engine": one["engine"], "direction": direction, "foreseen": foreseen, "observed_s": None}
            row["failed"] = next((run["failed"] for run in runs if "failed" in run), None)
            if counted and foreseen:
                times = sorted(run["seconds"] for run in counted)
                row["observed_s"] = statistics.median(times)
                row["scatter"] = times[-1] / times[0] - 1
                row["error"] = foreseen["p50_s"] / row["observed_s"] - 1
                row["covered"] = foreseen["p10_s"] <= row["observed_s"] <= foreseen["p90_s"]
                limits = [run["limit"] for run in counted]
                row["limit"] = max(limits, key=limits.count)
                row["pace"] = {what: pace(result, one, counted, what) for what in PACES}
                row["stored_error"] = result["foreseen"][one["id"]]["stored_bytes"] / counted[0]["stored_bytes"] - 1
            found.append(row)
    return found


def pace(result, one, runs, what):
    """How fast processor or disk was in these runs, as a share of its speed at the calibration; nothing where that was not measured."""
    calibrated = result.get("paces", {}).get(databases.profile_name(one["engine"], one["volume"]), {}).get(what)
    seconds = [run["pace"][what] for run in runs if what in run.get("pace", {})]
    return calibrated / statistics.median(seconds) if calibrated and seconds else None


def is_steady(row):
    """Whether the machine was as fast in these runs as at its calibration, as far as that was measured; False where nothing was."""
    known = [share for share in row.get("pace", {}).values() if share]
    return bool(known) and all(abs(share - 1) <= STEADY for share in known)


def quantile(values, share):
    """The value that so many of them are not above, by the nearest rank."""
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]


def summary(found):
    """For each direction, and for both, of all and where there are several of each engine: the three figures that are asked for, and which way it errs."""
    engines = sorted({row["engine"] for row in found})
    groups = [("", engines)] + ([(f"{engine}, ", [engine]) for engine in engines] if len(engines) > 1 else [])
    made = {}
    for prefix, those in groups:
        for name, directions in (*((each, (each,)) for each in DIRECTIONS), ("both", DIRECTIONS)):
            of = [row for row in found if row["direction"] in directions and row["engine"] in those and row["observed_s"]]
            if of:
                made[prefix + name] = figures(of)
            steady = [row for row in of if is_steady(row)]
            if steady:
                made[f"{prefix}{name}, machine as calibrated"] = figures(steady)
    return made


def figures(found):
    errors = [row["error"] for row in found]
    return {"count": len(errors), "median": statistics.median(map(abs, errors)), "p90": quantile(list(map(abs, errors)), 0.9),
            "worst": max(map(abs, errors)), "covered": sum(row["covered"] for row in found) / len(found), "bias": statistics.median(errors), "deviation": deviation(errors)}


def deviation(errors):
    """Root mean square of the logarithms of foreseen over observed: what the model's own uncertainty has to be."""
    return math.sqrt(statistics.fmean(math.log1p(error) ** 2 for error in errors))


def met(value, key, wanted):
    """Whether a figure is as good as is wanted; nothing of one that nobody asks for."""
    if key not in wanted:
        return ""
    return " met" if (value >= wanted[key] if key == "covered" else value <= wanted[key]) else " **missed**"


def percent(value):
    return f"{100 * value:.1f} %"


def markdown(result):
    host = result["machine"]
    wanted = WANTED_LOCALLY if "local" in result["volumes"] else WANTED
    engines = ", ".join(f"{count} of {name}" for name, count in result["engines"].items())
    lines = [f"# Foreseen and observed, {result['date']}", "",
             f"{len(result['configurations'])} configurations drawn with seed {result['seed']} ({engines}), volumes {', '.join(result['volumes'])}, "
             f"{result['rounds']} counted rounds after one discarded, {result['minutes']:.0f} minutes in all; {host['cpu']}, {host['cores']} cores, "
             f"kernel {host['kernel']}, load at the start {host['load_at_start']:.1f}, commit {host['commit']}, {host['fullbore']}. "
             f"All predictions were on the disk before the first run (SHA-256 `{result['predictions_sha256']}`). By "
             "`bench/foresee/compare.py`; time is that of the whole process.", "",
             "| | median error | 90th percentile | worst | within P10–P90 | bias (median) | deviation (ln) | count |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, of in result["summary"].items():
        judged = [percent(of[key]) + met(of[key], key, wanted) for key in ("median", "p90", "worst", "covered")]
        lines.append(f"| {name} | {' | '.join(judged)} | {of['bias']:+.1%} | {of['deviation']:.3f} | {of['count']} |")
    furthest = "worst at most 30 %" if "worst" in wanted else "90th percentile at most 25 %"
    lines += ["", f"Wanted: median at most 10 %, {furthest}, at least 80 % within the interval. An error above 0: foreseen longer than it took. "
              "Processor and disk: their speed before the run, as a share of that at the calibration; no figure is corrected by it.", "",
              "| | engine | volumes | MiB | configuration | | foreseen s (P10–P90) | observed s | error | processor | disk | limit foreseen | limit observed |",
              "|---|---|---|---:|---|---|---:|---:|---:|---:|---:|---|---|"]
    configurations = {one["id"]: one for one in result["configurations"]}
    for row in result["rows"]:
        one, foreseen = configurations[row["id"]], row["foreseen"]
        start = f"| {row['id']} | {one['engine']} | {one['volume']} | {one['size_mib']} | {draw.in_words(one)} | {row['direction']} |"
        if row["observed_s"] is None:
            lines.append(f"{start} | | | | | | {row['failed'] or 'not foreseen'} |")
            continue
        mark = "" if row["covered"] else " **out**"
        speeds = " | ".join(f"{row['pace'][what]:.0%}" if row["pace"][what] else "" for what in PACES)
        lines.append(f"{start} {foreseen['p50_s']:.2f} ({foreseen['p10_s']:.2f}–{foreseen['p90_s']:.2f}) | {row['observed_s']:.2f} | "
                     f"{row['error']:+.1%}{mark} | {speeds} | {foreseen['limit']} | {row['limit']} |")
    stored = [abs(row["stored_error"]) for row in result["rows"] if row.get("stored_error") is not None and row["direction"] == "backup"]
    if stored:
        lines += ["", f"Stored bytes: median error {percent(statistics.median(stored))}, greatest {percent(max(stored))}."]
    scatter = [row["scatter"] for row in result["rows"] if "scatter" in row and result["rounds"] > 1]
    if scatter:
        lines += ["", f"Identical runs, slowest over fastest: {percent(statistics.median(scatter))} more in the median, {percent(max(scatter))} at most. "
                  "No prediction can be nearer than that."]
    return "\n".join(lines) + "\n"


def write(result, name):
    result["rows"] = rows(result)
    result["summary"] = summary(result["rows"])
    stem = write_results(name, result, markdown(result))
    say(f"written: {stem}.json and .md")
