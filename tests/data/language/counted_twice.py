# topology: fully-connected:4
# expect: counted_twice.py:10: rank 3 would count rank 1 twice in unit 0 [0:1/2]: it holds {1, 3} (counted_twice.py:8), what comes from rank 2 is {0, 1, 2} (counted_twice.py:9)
from synth.language import algorithm


@algorithm("allreduce")
def two_ways(a):
    near = a.input(3)[0 : 1 / 2].add(a.input(1)[0 : 1 / 2])
    far = a.sum(2, [a.input(rank)[0 : 1 / 2] for rank in (0, 1, 2)])
    near.add(far)
