"""The machine in arrays: links, ports, switches, their automorphisms."""
