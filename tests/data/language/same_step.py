# topology: ring:4
# expect: same_step.py:10: reads what same_step.py:10 makes in the same or a later step; sends of a step read the state before it: write each hop in a step() of its own, or no step()
from synth.language import algorithm


@algorithm("broadcast")
def all_at_once(a):
    with a.step():
        data = a.input(0)
        data.to(1, 2, 3)
