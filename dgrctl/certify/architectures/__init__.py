"""The lattice: every architecture of the pin, at every cut, against the unpatched whole model."""
