# topology: fully-connected:6
# expect: other_rank.py:11: data of rank 2 used as rank 4's: it came there at other_rank.py:10; copies return the new data: data = data.to(4)
from synth.language import algorithm
from synth.language.library import direct


@algorithm("allgather")
def forgot_the_copy(a):
    data = a.input(2)
    data.to(4)
    direct.allgather(a.group([2, 4]), {2: data, 4: data})
