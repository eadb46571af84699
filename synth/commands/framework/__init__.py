"""Shared parts of the commands: options, types, output, progress, configuration."""
