"""DGR: run one GGUF model across several machines and prove that the split computes what the whole computes."""

__version__ = "0.1.0"
