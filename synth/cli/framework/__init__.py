"""What all commands share: options, types, output, progress, configuration."""
