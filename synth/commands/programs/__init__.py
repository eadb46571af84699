"""Commands that read, write, check and run programs: files of runtimes, of the chunk language and of others."""
