"""The tables of a catalog, and the migrations of a database of an older version.

`MIGRATIONS[v]` leads from version v to v + 1; an empty file has version 0. SQLite's ``user_version`` holds the version,
its ``application_id`` distinguishes a catalog from other databases. A migration is done whole or not at all.

    entries       one row a problem; everything that `ls` shows or a look-up needs
    points        one row a point of a frontier
    blobs         compressed documents of an entry, each with its checksum: the frontier, schedules of the flow engines
    programs      lowered points
    measurements  documents synth.measured/1; `measured` names the programs of each
    aliases       further machines that an entry answers: in another numbering, or under another name
"""

from __future__ import annotations

APPLICATION = 0x53594E43  # "SYNC": synth's catalog

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE entries (
            id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, topology TEXT NOT NULL, collective TEXT NOT NULL,
            roots TEXT NOT NULL, ranks INTEGER NOT NULL, options TEXT NOT NULL, state TEXT NOT NULL, engine TEXT NOT
            NULL, complete INTEGER NOT NULL, intervals INTEGER NOT NULL, invariant TEXT NOT NULL, alpha REAL NOT NULL,
            unit REAL NOT NULL, share REAL NOT NULL, reason TEXT NOT NULL, seconds REAL NOT NULL, provenance TEXT NOT
            NULL, created TEXT NOT NULL
        )""",
        "CREATE INDEX entries_problem ON entries (topology, collective)",
        "CREATE INDEX entries_invariant ON entries (invariant)",
        """CREATE TABLE points (
            entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE, number INTEGER NOT NULL, steps INTEGER NOT
            NULL, rounds INTEGER NOT NULL, chunks INTEGER NOT NULL, bandwidth TEXT NOT NULL, rate REAL NOT NULL, status
            TEXT NOT NULL, construction TEXT NOT NULL, PRIMARY KEY (entry, number)
        ) WITHOUT ROWID""",
        """CREATE TABLE blobs (
            id INTEGER PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE, name TEXT NOT
            NULL, sum TEXT NOT NULL, packed INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (entry,
            name)
        )""",
        """CREATE TABLE programs (
            id INTEGER PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE, point INTEGER NOT
            NULL, fingerprint TEXT NOT NULL, runtime TEXT NOT NULL, protocol TEXT NOT NULL, instances INTEGER NOT NULL,
            sum TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (entry, fingerprint)
        )""",
        "CREATE INDEX programs_fingerprint ON programs (fingerprint)",
        """CREATE TABLE measurements (
            id INTEGER PRIMARY KEY, entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE, executor TEXT NOT
            NULL, sum TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (entry, sum)
        )""",
    ),
    (
        """CREATE TABLE aliases (
            id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, problem TEXT NOT NULL,
            entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE, topology TEXT NOT NULL, collective TEXT
            NOT NULL, roots TEXT NOT NULL, alpha REAL NOT NULL, unit REAL NOT NULL, sum TEXT NOT NULL, size INTEGER NOT
            NULL, body BLOB NOT NULL
        )""",
        "CREATE INDEX aliases_problem ON aliases (problem)",
        "CREATE INDEX aliases_machine ON aliases (topology, collective)",
        "CREATE INDEX aliases_entry ON aliases (entry)",
        """CREATE TABLE measured (
            measurement INTEGER NOT NULL REFERENCES measurements (id) ON DELETE CASCADE, program TEXT NOT NULL,
            PRIMARY KEY (measurement, program)
        ) WITHOUT ROWID""",
        "CREATE INDEX measured_program ON measured (program)",
        # The figures that `ls` shows of points, beside the entry; and an index of truncated blobs, to find them
        # quickly.
        "ALTER TABLE entries ADD COLUMN points INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE entries ADD COLUMN fewest INTEGER",
        "ALTER TABLE entries ADD COLUMN most INTEGER",
        """UPDATE entries SET points = (SELECT count(*) FROM points WHERE entry = id),
            fewest = (SELECT min(steps) FROM points WHERE entry = id), most = (SELECT max(steps) FROM points WHERE entry
            = id)""",
        "CREATE INDEX blobs_cut ON blobs (entry) WHERE length(body) != packed",
    ),
)
VERSION = len(MIGRATIONS)
