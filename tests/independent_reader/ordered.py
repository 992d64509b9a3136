"""The blocks of the ordered streams of a set (docs/MEDIA_FORMAT.md §3, "An ordered stream").

`order` numbers these blocks from 1. All ordered streams of a set share the numbers. In a family, no block of
n + `window` or more is before block n. The reader takes each block once, and then checks all of them together.
"""

from family import DATA_RUN

HEADROOM = 4096  # A block of an ordered stream has at most transfer_size − 4096 plain bytes.


class Blocks:
    """The blocks of ordered streams, from all families of a set."""

    def __init__(self, header):
        self.window, self.longest = header.window, header.transfer_size - HEADROOM
        self.taken = {}  # order → (id of the stream, start, end, check of the block)
        self.highest = 0  # The highest order in this family so far.

    def begin_family(self):
        self.highest = 0

    def take(self, block, stream):
        """Checks a DATA block of any stream, alone and against the blocks before it in its family."""
        check, order = block.check, block.order
        if not stream.ordered:
            check(order == 0, f"order {order} in a block of {stream.name!r}, which is not an ordered stream")
            return
        check(order >= 1, f"order 0 in a block of {stream.name!r}, which is an ordered stream")
        check(block.layer == 0, f"layer {block.layer} in a block of an ordered stream")
        check(len(block.runs) == 1, f"{len(block.runs)} runs in a block of an ordered stream")
        start, length, kind = block.runs[0]
        check(kind == DATA_RUN, "a run of zeros in a block of an ordered stream")
        check(length <= self.longest, f"{length} bytes in a block of an ordered stream, at most {self.longest} are allowed")
        check(start + length <= stream.size, "run beyond the end of the stream")
        check(order not in self.taken, f"order {order} is given twice")
        check(self.highest < order + self.window, f"order {order} comes behind order {self.highest}, but window is {self.window}")
        self.highest = max(self.highest, order)
        self.taken[order] = (block.stream, start, start + length, check)

    def check_whole(self, streams, require):
        """The numbers are 1 … N. In this order, each stream begins at 0, has no gap, and ends at its size."""
        at = {id: 0 for id, stream in streams.items() if stream.ordered}
        for number, order in enumerate(sorted(self.taken), start=1):
            require(order == number, f"no block has order {number}, but one has order {order}")
            id, start, end, check = self.taken[order]
            check(start == at[id], f"order {order} begins at {start} of {streams[id].name!r}, but the blocks before it end at {at[id]}")
            at[id] = end
        for id, end in at.items():
            stream = streams[id]
            require(end == stream.size, f"the last block of {stream.name!r} ends at {end}, but its size is {stream.size}")
