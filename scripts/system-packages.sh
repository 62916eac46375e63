#!/usr/bin/env bash
# Brings the system packages that a build needs and that are missing here; says nothing if none are.
#
# Usage: scripts/system-packages.sh PYTHON
#
# As root, or with a sudo that asks no password, they are installed with apt-get; otherwise the exact command is printed and
# the exit code is 1. Nothing else on the system is touched.
set -euo pipefail

python=$1
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1
cd "$(dirname "$0")/.."

missing_packages() {
  "$python" -m dgrctl.lanes.toolchain
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "python3-venv: $python has no ensurepip; needed for the virtual environment" >&2
    echo python3-venv
  fi
}

missing=$(missing_packages)
[ -n "$missing" ] || exit 0
mapfile -t packages <<<"$missing"

if ! command -v apt-get >/dev/null; then
  {
    echo "error: this system has no apt-get. Install what these Debian packages bring, then run make again:"
    echo "  ${packages[*]}"
  } >&2
  exit 1
fi

if [ "$(id -u)" = 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo --non-interactive true 2>/dev/null; then
  as_root=(sudo --non-interactive)
else
  {
    echo "error: system packages are missing, and this user can install none. Run this, then make again:"
    echo "  sudo apt-get update && sudo apt-get install --no-install-recommends ${packages[*]}"
  } >&2
  exit 1
fi

echo "Installing system packages: ${packages[*]} …" >&2
"${as_root[@]}" apt-get --quiet --quiet update >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get --quiet --quiet --option Dpkg::Use-Pty=0 install --yes --no-install-recommends "${packages[@]}" >&2

missing=$(missing_packages)
[ -z "$missing" ] || { echo "error: still missing after the installation: ${missing//$'\n'/ }" >&2; exit 1; }
