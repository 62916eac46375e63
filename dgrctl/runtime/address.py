"""host:port as people write it, and whether one can listen there."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from dgrctl.errors import InputError, StageError

# What binding to an address fails with that this machine does not have.
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Address:
    """A host name, IPv4 address or IPv6 address (without brackets), and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, where: str, any_port: bool = False) -> Address:
    """Reads ``host:port`` or ``[ipv6]:port``.

    Args:
        where: The option it came from.
        any_port: Whether port 0, "pick one", is allowed.

    Raises:
        InputError: it is not such an address.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        valid = _is_ipv6(host[1:-1])
        host = host[1:-1]
    else:
        valid = _NAME.fullmatch(host) is not None
    lowest = 0 if any_port else 1
    if not valid or not re.fullmatch(r"[0-9]{1,5}", port) or not lowest <= int(port) <= 65535:
        raise InputError(
            f"{text!r} is not an address", where=where, remedy=f"write HOST:PORT, port {lowest} to 65535; IPv6 as [::1]:7001"
        )
    return Address(host, int(port))


def parse_route(text: str) -> list[str]:
    """Reads ``host:port,host:port``, in route order.

    Raises:
        InputError: one of them is not an address, or stands there twice.
    """
    addresses = [str(parse_address(part.strip(), where="--route")) for part in text.split(",")]
    for address in addresses:
        if addresses.count(address) > 1:
            raise InputError(f"{address} stands in the route twice", where="--route", remedy="name each worker once")
    return addresses


def check_can_listen(address: Address) -> bool:
    """Refuses an address that a worker could not listen on, before a model is loaded for it.

    A name can stand for several addresses. The worker listens on those that this machine has: ``localhost`` is 127.0.0.1 alone
    where IPv6 is off.

    Returns:
        Whether only this machine can connect to it.

    Raises:
        InputError: the host has no address on this machine.
        StageError: the port is taken.
    """
    bound: list[str] = []
    absent: OSError | None = None
    for family, place in _resolve(address):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                # A port whose last connections are still being forgotten is free; one that is listened on is not.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
                probe.listen(1)
            bound.append(str(place[0]))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise _cannot_listen(address, error, "choose another port, or 0 for any; ss -ltnp shows who listens") from error
            absent = error
    if absent is not None and not bound:
        raise _cannot_listen(address, absent, "name an address of this machine; ip address shows them") from absent
    return all(ipaddress.ip_address(host).is_loopback for host in bound)


def is_loopback(host: str) -> bool:
    """Whether the host means, on every machine, that machine itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def own_address_towards(host: str) -> str | None:
    """The address of this machine that ``host`` would see; None where there is none but loopback. Sends nothing."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # of a datagram socket: chooses the way and no more
            own = str(probe.getsockname()[0])
    except (OSError, UnicodeError):
        return None
    return None if is_loopback(own) else own


def _cannot_listen(address: Address, error: OSError, remedy: str) -> StageError:
    return StageError(f"cannot listen on {address}: {error.strerror}", where="--listen", remedy=remedy)


def _resolve(address: Address) -> list[tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]]:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"the host {address.host!r} cannot be resolved: {error}", where="--listen", remedy="name an address of this machine"
        ) from error
    return [(family, place) for family, _, _, _, place in found]


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
