# topology: dgx1
# expect: no_link.py:10: dgx1-v100 has no link 0 -> 5; two hops: 0-1-5: write .to(1, 5) or via="shortest"
from synth.language import algorithm


@algorithm("allgather")
def to_all(a):
    for rank in a.ranks:
        for other in a.others(rank):
            a.input(rank).to(other)
