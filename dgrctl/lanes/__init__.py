"""Lanes: toolchain probes, the CMake driver and the build record."""
