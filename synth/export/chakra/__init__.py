"""Chakra execution traces, which simulators run.

protobuf   the wire format of the few fields that traces have
trace      a schedule's sends, receives and sums as nodes with dependencies
"""
