"""Running workers: processes, the gRPC client, routes."""

import dgrctl.wire  # noqa: F401 - puts the generated contract on the path as dgr.v1
