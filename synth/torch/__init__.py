"""The backend `synth` of torch.distributed: synthesized programs in PyTorch jobs, the library for the rest.

    register   what torch loads by the entry point: init_process_group("cpu:synth") needs no import
    backend    the process group: each collective to a program or to the inner library, in one order
    choice     which program or library: candidates of the plan, raced at first use
    works      what a call returns, and futures that callbacks hang on

Only this package imports torch. It needs torch 2.14 or newer, which takes backends that are written in Python.
"""


def counters() -> str:
    """Return what the groups of this process have done, as counters in Prometheus' text format.

    They only grow while a group lives; a job serves them where its monitoring asks, and nothing is counted for it.
    """
    from synth.torch.record import prometheus
    from synth.torch.register import groups_here

    return prometheus([group.record for group in groups_here()])
