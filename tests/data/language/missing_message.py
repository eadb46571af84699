# topology: dgx-a100
# expect: missing_message.py: 1 of 64 outputs are missing: rank 4 ends without unit 20 of rank 2 (nearest: rank 2, its input): copy it there with .to(...)
from synth.language import algorithm


@algorithm("alltoall")
def forgetful(a):
    for src in a.ranks:
        for dst in a.others(src):
            if (src, dst) != (2, 4):
                a.input(src).part(dst, a.size).to(dst)
    a.input(2).part(4, a.size).to(0)
