"""The pinned upstream: manifest, transports, workspace and patch stack."""
