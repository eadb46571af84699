from synth.language import algorithm


@algorithm("alltoall")
def two_step(a):
    boxes = [box.ranks for box in a.boxes]
    size = len(boxes[0])
    for src in a.symmetric():
        for dst in a.ranks:
            a.input(src).part(dst, a.size).to(boxes[src // size][dst % size], dst)
