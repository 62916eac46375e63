"""Commands as the documentation prints them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

EVIDENCE_PAGE = Path(__file__).parents[2] / "docs" / "evidence.md"


def verify_with_openssl(evidence: Path, signer_pem: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the one shell block of docs/evidence.md that calls ``openssl dgst``, as it stands there, in ``folder``."""
    blocks = re.findall(r"```sh\n(.*?)```", EVIDENCE_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "openssl dgst" in block]
    (folder / "signer.pem").write_text(signer_pem, encoding="utf-8")
    return subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, "EVIDENCE": str(evidence)},
        capture_output=True,
        text=True,
        check=False,
    )
