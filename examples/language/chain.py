from synth.language import algorithm


@algorithm("broadcast")
def chain(a):
    a.input(a.root).to(*a.others(a.root))
