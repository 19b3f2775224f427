"""The command line: the only reader of the environment and writer to the terminal."""
