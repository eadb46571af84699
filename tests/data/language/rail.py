# topology: dgx1
# expect: ring.py:19 (rail.py:9): dgx1-v100 has no link 3 -> 4; two hops: 3-0-4: write .to(0, 4) or via="shortest"
from synth.language import algorithm
from synth.language.library import ring


@algorithm("allgather")
def ring_of_all(a):
    ring.allgather_one_way(a, a.inputs())
