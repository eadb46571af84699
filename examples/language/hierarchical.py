from synth.language import algorithm
from synth.language.library import direct


@algorithm("allreduce")
def hierarchical(a, inside=direct, across=direct):
    held = a.inputs()
    for box in a.boxes:
        held |= inside.reduce_scatter(box, held)
    for rail in a.rails:
        held |= across.allreduce(rail, held)
    for box in a.boxes:
        held |= inside.allgather(box, held)
