"""Chakra execution traces, and the files with which ASTRA-sim 2 runs them.

protobuf   the wire format of the few fields that traces have
trace      a schedule's sends, receives and sums as nodes with dependencies
astra_sim  the folder: traces, workload, system and network files
"""
