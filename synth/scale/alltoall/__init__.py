"""Alltoall at scale: concurrent flows, decomposed into paths and put into steps."""
