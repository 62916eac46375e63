"""Addresses, and what can be listened on. The sockets are real."""

from __future__ import annotations

import socket

import pytest

from dgrctl.errors import InputError, StageError
from dgrctl.runtime.address import Address, check_can_listen, is_loopback, own_address_towards, parse_address, parse_route


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7001", "127.0.0.1", 7001),
        ("localhost:1", "localhost", 1),
        ("node-3.example.org:65535", "node-3.example.org", 65535),
        ("[::1]:7001", "::1", 7001),
    ],
)
def test_addresses_that_are_read_and_written_back(text: str, host: str, port: int) -> None:
    address = parse_address(text, where="--listen")
    assert address == Address(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", ":", "host", "host:", ":7001", "host:0", "host:65536", "host:-1", "host:٣", "host:7001x", "::1:7001", "[::g]:7001",
     "[]:7001", "a b:7001", "-host:7001", "unix:/tmp/socket", "dns:///host:7001", "host\n:7001", "x" * 300 + ":7001"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_address(text, where="--listen")
    assert caught.value.where == "--listen"


def test_port_0_picks_one_only_where_one_listens() -> None:
    assert parse_address("127.0.0.1:0", where="--listen", any_port=True).port == 0


def test_a_route_is_read_in_order_and_refuses_a_worker_named_twice() -> None:
    assert parse_route("b:2, a:1") == ["b:2", "a:1"]
    with pytest.raises(InputError, match="twice"):
        parse_route("a:1,b:2,a:1")
    with pytest.raises(InputError):
        parse_route("a:1,,b:2")


def test_a_taken_port_is_refused_and_a_free_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(StageError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            check_can_listen(Address("127.0.0.1", port))
    assert check_can_listen(Address("127.0.0.1", port))


def test_a_holder_that_shares_its_port_is_seen_too() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as holder, pytest.raises(StageError):
        check_can_listen(Address("127.0.0.1", holder.getsockname()[1]))


def test_only_loopback_stays_on_this_machine() -> None:
    assert check_can_listen(Address("127.0.0.1", 0))
    assert not check_can_listen(Address("0.0.0.0", 0))  # noqa: S104 - it is what must be noticed


def test_an_address_of_no_machine_here() -> None:
    with pytest.raises(StageError, match="cannot listen"):
        check_can_listen(Address("192.0.2.1", 0))
    with pytest.raises(InputError, match="cannot be resolved"):
        check_can_listen(Address("no-such-host.invalid", 7001))


def both(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Lets a name stand for several addresses, as localhost does."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_a_name_is_listened_on_where_this_machine_has_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost is ::1, too, and that cannot be bound where IPv6 is off."""
    both(monkeypatch, "192.0.2.1", "127.0.0.1")
    assert check_can_listen(Address("localhost", 0))


def test_a_name_of_which_no_address_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    both(monkeypatch, "192.0.2.1", "203.0.113.1")
    with pytest.raises(StageError, match="cannot listen on elsewhere:0"):
        check_can_listen(Address("elsewhere", 0))


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)])
def test_what_every_machine_calls_itself(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_loopback_address_is_none_that_another_machine_could_use() -> None:
    assert own_address_towards("127.0.0.1") is None
    assert own_address_towards("no-such-host.invalid") is None
