"""Certification: lock, plan, parity, speed, statistics, environment."""
