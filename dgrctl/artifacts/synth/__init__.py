"""Fixture models: small, random, made here and deterministic, with the structure of models that fit no test machine."""
