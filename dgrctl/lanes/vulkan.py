"""The Vulkan lane: any GPU with a Vulkan driver. A software rasteriser is a driver, but no hardware."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from dgrctl.lanes.lane import NOT_BUILT
from dgrctl.lanes.probe import program

NAME = "vulkan"

# Where the Vulkan loader looks for drivers (its LoaderDriverInterface.md), as far as packages install there.
_DRIVER_FOLDERS = ("etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d")
# Mesa's llvmpipe, Google's SwiftShader.
_SOFTWARE = ("lvp_icd", "vk_swiftshader_icd")


def obstacles(root: Path) -> list[str]:
    """No device, no driver, software drivers alone, or no shader compiler."""
    found = []
    if not list(root.glob("dev/dri/renderD*")):
        found.append("no GPU that renders: there is no /dev/dri/renderD*")
    drivers = sorted(path.name for folder in _DRIVER_FOLDERS for path in root.glob(f"{folder}/*.json"))
    if not drivers:
        found.append("no Vulkan driver is installed")
    elif all(name.startswith(_SOFTWARE) for name in drivers):
        found.append(f"the only Vulkan driver is a software rasteriser ({', '.join(drivers)}), which is no hardware")
    if program(root, "glslc") is None:
        found.append("no glslc on PATH")
    return [*found, NOT_BUILT]


def device(root: Path) -> NoReturn:
    """Nothing to name while the lane has obstacles."""
    raise LookupError(f"the {NAME} lane has no device below {root}")
