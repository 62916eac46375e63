"""Model artifacts: manifests, provisioning, verification, GGUF metadata."""
