# topology: dgx-a100
# expect: missing.py: 14 of 64 outputs are missing: rank 0 ends without unit 6 (nearest: rank 6, its input): copy it there with .to(...)
from synth.language import algorithm


@algorithm("allgather")
def six_of_eight(a):
    for rank in range(6):
        for other in a.others(rank):
            a.input(rank).to(other)
