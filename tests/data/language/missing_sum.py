# topology: ring:4
# expect: missing_sum.py: 3 of 4 outputs are missing: rank 0 ends without the sum {0, 1, 2, 3} of unit 0 (nearest: rank 3, missing_sum.py:10): copy it there with .to(...)
from synth.language import algorithm


@algorithm("allreduce")
def half_way(a):
    total = a.input(0)
    for rank in (1, 2, 3):
        total = a.input(rank).add(total)
