"""What can be looked at without a volume: that draws stay what they were, and that sums are right."""

import json
import os

import databases
import draw
import shown
from measure import ROOT, say

# A run whose configurations and figures are known.
KEPT = os.path.join(ROOT, "bench", "results", "foresee-2026-11-22.json")
VOLUMES = ("even-60", "even-250", "slow-media", "slow-database")


def draws_of_sqlite_are_those_of_the_run_that_was_kept():
    with open(KEPT) as file:
        kept = json.load(file)
    drawn = draw.configurations(kept["seed"], {"sqlite": len(kept["configurations"])}, [128, 384], list(kept["volumes"]))
    assert drawn == kept["configurations"], "other configurations than those whose results are kept"


def an_engine_is_drawn_as_often_as_it_was_asked_for_whatever_the_others_are():
    both = draw.configurations(3, {"sqlite": 5, "mariadb-11.8": 4}, [1, 2], VOLUMES)
    alone = draw.configurations(3, {"mariadb-11.8": 4}, [1, 2], VOLUMES)
    assert [one["id"] for one in both] == [f"c{number:02}" for number in range(1, 10)]
    assert [one["engine"] for one in both] == ["sqlite"] * 5 + ["mariadb-11.8"] * 4
    assert [one | {"id": ""} for one in both[5:]] == [one | {"id": ""} for one in alone]
    assert draw.configurations(4, {"mariadb-11.8": 4}, [1, 2], VOLUMES) != alone
    others = draw.configurations(3, {"mariadb-10.11": 4}, [1, 2], VOLUMES)
    assert [one | {"engine": ""} for one in others] != [one | {"engine": ""} for one in alone], "two engines have draws of their own"


def profiles_are_shared_by_what_has_the_same_data():
    names = {databases.profile_name(engine, "even-60") for engine in databases.ENGINES}
    assert names == {"even-60", "even-60-mariadb"}, names
    assert databases.room("mariadb-11.8", 128) > databases.room("sqlite", 128)


def sums_are_those_of_the_run_that_was_kept():
    with open(KEPT) as file:
        kept = json.load(file)
    made = shown.summary(shown.rows(kept))
    # It was written when nobody asked for the worst.
    without = {name: {key: value for key, value in of.items() if key != "worst"} for name, of in made.items()}
    assert without == kept["summary"], (without, kept["summary"])
    assert made["both"]["worst"] == max(abs(row["error"]) for row in shown.rows(kept) if row["observed_s"])


def figures_of_each_engine_stand_beside_those_of_all():
    configurations = draw.configurations(1, {"sqlite": 1, "mariadb-11.8": 1}, [1], VOLUMES)
    interval = {"p10_s": 0.9, "p50_s": 1.0, "p90_s": 1.1, "limit": "pool"}
    foreseen = {one["id"]: {"backup": interval, "restore": interval, "stored_bytes": 10} for one in configurations}
    times = {"c01": 1.0, "c02": 2.0}
    runs = [{"id": one, "direction": direction, "round": number, "seconds": seconds, "limit": "sink", "stored_bytes": 10}
            for one, seconds in times.items() for direction in shown.DIRECTIONS for number in (0, 1)]
    summary = shown.summary(shown.rows({"configurations": configurations, "foreseen": foreseen, "runs": runs}))
    assert (summary["both"]["count"], summary["sqlite, both"]["median"], summary["mariadb-11.8, both"]["bias"]) == (4, 0.0, -0.5), summary
    assert (summary["sqlite, backup"]["covered"], summary["mariadb-11.8, restore"]["covered"]) == (1.0, 0.0)


def a_slow_machine_is_shown_beside_the_run():
    one = draw.configurations(1, {"sqlite": 1}, [1], VOLUMES)[0]
    result = {"paces": {databases.profile_name("sqlite", one["volume"]): {"processor_s": 0.2, "disk_s": 1.0}}}
    runs = [{"pace": {"processor_s": seconds, "disk_s": 1.05}} for seconds in (0.2, 0.4, 0.5)]
    shares = {what: shown.pace(result, one, runs, what) for what in shown.PACES}
    assert shares == {"processor_s": 0.5, "disk_s": 1 / 1.05}, shares
    assert not shown.is_steady({"pace": shares}) and shown.is_steady({"pace": shares | {"processor_s": 0.95}})
    assert shown.pace({}, one, runs, "disk_s") is None and shown.pace(result, one, [{}], "disk_s") is None and not shown.is_steady({}), "an older result has no such figure"


def a_local_disk_has_configurations_of_each_seed_and_its_own_wants():
    drawn = draw.of_seeds([1, 2, 3], {"sqlite": 8}, [1024, 4096], ["local"], draw.LOCAL_KNOBS)
    assert [one["id"] for one in drawn] == [f"c{number:02}" for number in range(1, 25)]
    assert [one["seed"] for one in drawn] == [1] * 8 + [2] * 8 + [3] * 8
    assert {one["volume"] for one in drawn} == {"local"} and {one["size_mib"] for one in drawn} == {1024, 4096}
    assert drawn == draw.of_seeds([1, 2, 3], {"sqlite": 8}, [1024, 4096], ["local"], draw.LOCAL_KNOBS)
    assert {"gzip:1", "none", "lz4", "zstd:1"} <= {one["compression"] for one in drawn}
    judged = [shown.met(value, "worst", shown.WANTED_LOCALLY) for value in (0.3, 0.43)]
    assert judged == [" met", " **missed**"] and shown.met(0.43, "worst", shown.WANTED) == "", judged


CHECKS = (draws_of_sqlite_are_those_of_the_run_that_was_kept, an_engine_is_drawn_as_often_as_it_was_asked_for_whatever_the_others_are,
          a_local_disk_has_configurations_of_each_seed_and_its_own_wants, profiles_are_shared_by_what_has_the_same_data, a_slow_machine_is_shown_beside_the_run, sums_are_those_of_the_run_that_was_kept, figures_of_each_engine_stand_beside_those_of_all)


def run():
    """All of them.

    Raises AssertionError where one is wrong."""
    for check in CHECKS:
        check()
        say(f"{check.__name__.replace('_', ' ')}: yes")
