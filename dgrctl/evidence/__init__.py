"""Evidence: statements, signing, trust, ledger, matrix."""
