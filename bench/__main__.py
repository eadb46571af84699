"""``python -m bench``: all measurements, one after the other; about an hour on two cores. Arguments go to each of
them."""

import sys

from bench import encodings, goals, scale, sweeps, tuning

if __name__ == "__main__":
    arguments = sys.argv[1:]
    sys.exit(max(part.main(arguments) for part in (encodings, sweeps, goals, scale, tuning)))
