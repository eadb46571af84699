"""The database of a catalog: an SQLite file with columns to search by and compressed documents."""
