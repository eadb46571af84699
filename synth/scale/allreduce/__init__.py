"""Allreduce at scale: undirected spanning trees and paired arborescences."""
