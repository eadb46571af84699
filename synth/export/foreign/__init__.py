"""Schedules of other programs: readers of their files, each to a schedule that the checker replays.

recorded_moves   copies and sums in an order in which they can happen, to a schedule
program_moves    a two-sided Program (MSCCL-IR): the values that its messages carry
teccl            TE-CCL's schedule JSON
forestcoll       ForestColl's tree XML
read             any of these by its content
"""
