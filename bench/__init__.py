"""Measurements and checks that take too long for the tests, each one command.

python -m bench.goals              what the command line does, how fast, and whether the answers are the known ones
python -m bench.frontier_table     frontiers of many machines, before and after a change of the engines
python -m bench.count              the size of the project, and its budget; bench.entered: what README's commands enter
python -m bench.shipped            the catalog in the package, out of a catalog
python -m bench.forge              nearly right documents of every schema: refused by synth verify, or true
python -m bench.fuzz, bench.dumps  random command lines and files; random dumps (make fuzz)
python -m bench.mutations          good programs with one change each: caught by lint, or right however they are run
python -m bench.onesided_launches  lint of one-sided programs against a judge that tries every order
python -m bench.kernels            every instantiation of the kernel, compiled by NVRTC
python -m bench.gpu_checks         on a GPU: is every element right (make test-gpu; --executor host rehearses it)
python -m bench.gpu                on a GPU: times against its own memory copy, and the targets (make bench-gpu)
python -m bench.notebooks, bench.pictures       the notebooks of examples/ and the pictures of the README, made again
"""
