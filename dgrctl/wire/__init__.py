"""The wire contract, generated from ``proto/`` when the package is installed.

The generated modules live in ``dgrctl/wire/dgr/v1`` and import each other as ``dgr.v1.…``, as protoc writes them; this package
puts its own folder on the path once, so that both names are the same modules.
"""

import sys
from pathlib import Path

_here = str(Path(__file__).resolve().parent)
if _here not in sys.path:
    sys.path.insert(0, _here)
