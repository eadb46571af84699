from synth.algorithms import ring
from synth.language import algorithm


@algorithm("allgather")
def rails_then_found(a):
    held = a.inputs()
    for rail in a.rails:
        held |= ring.allgather(rail, held)
    for box in a.boxes:
        held |= a.solve("allgather", box, held, steps=2, same_in="boxes")
