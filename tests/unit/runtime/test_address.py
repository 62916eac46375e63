"""Addresses, and what can be listened on. The sockets are real."""

from __future__ import annotations

import socket

import pytest

from dgrctl.errors import InputError, StageError
from dgrctl.runtime.address import Address, check_can_listen, parse_address, parse_route


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
