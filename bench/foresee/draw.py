"""Configurations drawn at random, and the flags that each of them is for fullbore."""

import random

# What is drawn from, every value with the same chance; `None` leaves the choice to fullbore.
KNOBS = {
    "compression": ("none", "lz4", "zstd:1", "zstd:3"),
    "stripes": (1, 2, 4),
    "encrypted": (False, False, False, True),
    "buffer_count": (None, 32, 64),
    "queue_depth": (None, 1, 4, 16),
    "readers": (None, 1, 2, 8),
    "workers": (None, 1, 2, 4),
    "max_transfer_size": (None, "256KiB", "2MiB"),
    "restore_buffer_count": (None, 32, 64),
    "restore_queue_depth": (None, 1, 4, 16),
    "restore_workers": (None, 1, 2, 4),
}


# On a local disk: the codec that is limited by processors most, and short transfers, which cost a request each.
LOCAL_KNOBS = KNOBS | {"compression": (*KNOBS["compression"], "gzip:1"), "max_transfer_size": (None, "64KiB", "256KiB", "2MiB")}


def of_seeds(seeds, engines, sizes, volumes, knobs):
    """As many for each seed, one after the other."""
    drawn = [one | {"seed": seed} for seed in seeds for one in configurations(seed, engines, sizes, volumes, knobs)]
    for number, one in enumerate(drawn):
        one["id"] = f"c{number + 1:02}"
    return drawn


def configurations(seed, engines, sizes, volumes, knobs=KNOBS):
    """As many different ones of each engine as `engines` says; the same for the same arguments, and those of one engine whatever the others are."""
    drawn = []
    for engine, count in engines.items():
        drawn += of_engine(seed, engine, count, sizes, volumes, knobs)
    for number, one in enumerate(drawn):
        one["id"] = f"c{number + 1:02}"
    return drawn


def of_engine(seed, engine, count, sizes, volumes, knobs):
    # SQLite was the only one for a time: its draws stay what they were then.
    chance, drawn = random.Random(seed if engine == "sqlite" else f"{seed} {engine}"), []
    while len(drawn) < count:
        one = {"engine": chance.choice([engine]), "volume": chance.choice(sorted(volumes)), "size_mib": chance.choice(sizes)}
        one |= {knob: chance.choice(values) for knob, values in knobs.items()}
        if one not in drawn:
            drawn.append(one)
    return drawn


def words(configuration, knobs, of_restore=False):
    """The flags of those knobs that have a value: `--queue-depth 4`. The knob `restore_x` is `--x` of restore, and `--restore-x` of estimate."""
    found = []
    for knob in knobs:
        if configuration[knob] is not None:
            name = knob if of_restore else knob.removeprefix("restore_")
            found += ["--" + name.replace("_", "-"), str(configuration[knob])]
    return found


SHAPE = ("compression", "stripes")
OF_BACKUP = ("buffer_count", "queue_depth", "readers", "workers", "max_transfer_size")
OF_RESTORE = ("restore_buffer_count", "restore_queue_depth", "restore_workers")


def in_words(configuration):
    """One line for a table: codec, stripes and the knobs that were drawn."""
    said = [f"{configuration['compression']} ×{configuration['stripes']}"] + (["encrypted"] if configuration["encrypted"] else [])
    short = {"buffer_count": "buffers", "queue_depth": "depth", "max_transfer_size": "transfer"}
    of = {verb: [f"{short.get(knob.removeprefix('restore_'), knob.removeprefix('restore_'))} {configuration[knob]}"
                 for knob in knobs if configuration[knob] is not None]
          for verb, knobs in (("", OF_BACKUP), ("back: ", OF_RESTORE))}
    return "; ".join(said + [verb + ", ".join(knobs) for verb, knobs in of.items() if knobs])
