"""The backend `synth` of torch.distributed: synthesized programs in PyTorch jobs, the library for the rest.

    register   what torch loads by the entry point: init_process_group("cpu:synth") needs no import
    backend    the process group: each collective to a program or to the inner library, in one order
    choice     which program or library: candidates of the plan, raced at first use
    works      what a call returns, and futures that callbacks hang on

Only this package imports torch. It needs torch 2.14 or newer, which takes backends that are written in Python.
"""
