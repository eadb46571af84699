"""Measurements, each made by one command that writes JSON to bench/results and a table beside it.

python -m bench.encodings     SCCL's encoding in z3 against the default, instance by instance
python -m bench.sweeps        SCCL's sweep against the guided one
python -m bench.goals         what the command line does, how fast, and whether the answers are the known ones
python -m bench.ablation      each engine and heuristic switched off in turn: the answers and times that change
python -m bench.programs      the programs and files of a DGX-1's frontiers: clean, right, accepted and read back, or
                              refused with a reason
python -m bench.mutations     good programs with one change each: caught by lint, or right however they are run
python -m bench.forge         nearly right documents of every schema: refused by synth verify, or true (--take-back:
                              with a mend undone)
python -m bench.gpu_checks    on a GPU: is every element right (make test-gpu; --executor host rehearses it)
python -m bench.gpu           on a GPU: times against its own memory copy, and the targets (make bench-gpu)
python -m bench.notebooks     the notebooks of examples/, run and stored
python -m bench.pictures      the pictures of the README
python -m bench.readme        the figures of the README, from the JSON
python -m bench               the first three
"""
