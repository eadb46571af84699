"""The catalog's database: SQLite for what is searched, files of content for what is large."""
