# topology: fully-connected:4
# expect: other_pieces.py:8: add of [0:1/3] of unit 0 to [0:1/2] of unit 0: the same pieces are needed
from synth.language import algorithm


@algorithm("allreduce")
def half_and_third(a):
    a.input(0)[0 : 1 / 2].add(a.input(1).part(0, 3))
