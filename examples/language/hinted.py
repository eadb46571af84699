from synth.language import algorithm


@algorithm("allgather")
def hinted(a):
    """Both ways round a ring: a block of each way, and two messages a hop of the second one."""
    for rank in a.ranks:
        one, other = a.input(rank).split(2)
        others = a.others(rank)
        with a.hints(block="up", channel=1):
            one.to(*others)
        with a.hints(block="down", pieces=2):
            other.to(*reversed(others))
