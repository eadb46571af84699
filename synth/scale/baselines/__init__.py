"""Algorithms to compare with: rings, double binary trees, direct sends."""
