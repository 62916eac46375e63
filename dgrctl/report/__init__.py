"""What people see: progress and messages on stderr, data on stdout."""
