# topology: fully-connected:6
# expect: replaced_before.py:14: rank 0 still reads its sum of replaced_before.py:9 after replaced_before.py:10 replaced it; a rank holds one sum of a chunk: send before adding
from synth.language import algorithm


@algorithm("allreduce")
def pair_is_sent_too_late(a):
    far = a.input(2).add(a.input(5))
    pair = a.input(0).add(a.input(1))
    three = pair.add(a.input(4))
    sent = three.to(3)
    five = three.add(far)
    five.add(a.input(3)).to(1, 4, 5)
    late = pair.to(2)
    a.sum(2, [late, a.input(2), a.input(3), a.input(4), a.input(5)])
    a.sum(3, [sent, a.input(3), a.input(2), a.input(5)])
