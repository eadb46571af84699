# topology: fully-connected:4
# expect: replaced.py:13: rank 3 still reads its sum of replaced.py:10 after replaced.py:11 replaced it; a rank holds one sum of a chunk: send before adding
from synth.language import algorithm


@algorithm("allreduce")
def two_sums_at_once(a):
    pair = a.input(0).add(a.input(1))
    three = pair.add(a.input(2))
    copy = three.to(3)
    other = a.input(3).add(pair).add(a.input(2))
    other.to(1, 2)
    copy.add(a.input(3)).to(0)
