"""The command line: parse, call, render. No logic and no subprocess in here.

Each command group is a module. ``groups`` lists the modules, and ``main`` runs what was typed. A module imports what its commands
need inside the commands, so that help and completion are fast.
"""
