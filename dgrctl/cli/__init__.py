"""The command line: parse, call, render. No logic and no subprocess in here.

Each command group is a module with ``register(commands)``; it adds its parsers and sets ``run`` to a function that takes the
layout and the parsed arguments and returns the exit code.
"""
