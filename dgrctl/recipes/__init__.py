"""Recipes: what is served, where it is cut, and how it is executed."""
