"""Running workers: processes, the gRPC client, routes."""
