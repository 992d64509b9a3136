"""A log set of SQLite (MEDIA_FORMAT §11): its frames, over the pages of a restored database.

    groups: time <q, salts 8s, first_frame, last_frame, pages, flags, before (2), after (2): <I each
"""

import struct

GROUP = struct.Struct("<q8s8I")
FRAME_HEADER = struct.Struct(">II8sII")


def checksum(words, start):
    """The running checksum of a write-ahead log ("Database File Format" §4.2)."""
    one, two = start
    for first, second in zip(words[::2], words[1::2]):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def place(position):
    """Salts, frame and checksum of the `log` of a position; the checksum is None where it is not told."""
    log = position["log"]
    salts = struct.pack(">II", log["salt_1"], log["salt_2"])
    digits = log.get("checksum") if log["max_frame"] else None
    return salts, log["max_frame"], (int(digits[:8], 16), int(digits[8:], 16)) if digits else None


def same(one, other):
    return one[:2] == other[:2] and (one[2] is None or other[2] is None or one[2] == other[2])


def apply(check, first, last, groups, frames, database, stands, stop=None):
    """Writes what was seen until `stop` (microseconds since 1970); gives where the database stands then, and whether that is
    the end of the set. `stands` is where it stands before."""
    page_size = first["page_size"]
    reached, before, done = same(place(first), stands), None, False
    while record := groups.read(GROUP.size):
        check(len(record) == GROUP.size, "groups: half a record")
        time, salts, first_frame, last_frame, pages, flags, *sums = GROUP.unpack(record)
        start, end = tuple(sums[:2]), tuple(sums[2:])
        check(1 <= first_frame <= last_frame and pages >= 1 and flags in (0, 1), "groups: numbers")
        if before is None:
            continues = same((salts, first_frame - 1, start if first_frame > 1 else None), place(first))
            check(continues or first_frame == 1, "groups: the first does not continue the predecessor")
        elif before[1] == salts:
            check((first_frame - 1, start) == before[2:], "groups: a gap")
        else:
            check(first_frame == 1, "groups: a log without its beginning")
        check(before is None or time >= before[0], "groups: time goes back")
        if stop is not None and time > stop:
            return stands, False
        reached = reached or same((salts, first_frame - 1, start if first_frame > 1 else None), stands)
        running = start
        for number in range(first_frame, last_frame + 1):
            header, page = frames.read(FRAME_HEADER.size), frames.read(page_size)
            check(len(page) == page_size, "frames: too few")
            page_number, commit, its_salts, *its_sums = FRAME_HEADER.unpack(header)
            words = struct.unpack((">" if flags else "<") + f"{(8 + page_size) // 4}I", header[:8] + page)
            running = checksum(words, running)
            check(its_salts == salts and tuple(its_sums) == running and page_number >= 1, f"frame {number}")
            if reached:
                database.seek((page_number - 1) * page_size)
                database.write(page)
                if commit:
                    database.truncate(commit * page_size)
            elif commit and same((salts, number, running), stands):
                reached = True
        check((commit, running) == (pages, end), "frames: not the end that the group says")
        before = (time, salts, last_frame, end)
        if reached:
            stands = (salts, last_frame, end)
    check(reached, "the set continues another place than the database stands at")
    check(not frames.read(1), "frames: more than the groups say")
    check(before is not None and same((before[1], before[2], before[3]), place(last)), "position: another end")
    return stands, True
