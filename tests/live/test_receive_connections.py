"""Where receivers listen."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from logpipeline_cli.receiving.connections import listening_at

# Of a network for documentation: no machine has it.
LACKING = "192.0.2.1"


def host_of(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let every host have *addresses*."""
    kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
    found = [(*kind, (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_addresses_that_the_machine_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` may be `::1`, too, where there is no IPv6; an address named twice counts once."""
    host_of(monkeypatch, LACKING, "127.0.0.1", "127.0.0.1", "127.0.0.2")
    made = listening_at(("localhost", 0))

    assert [each.getsockname()[0] for each in made] == ["127.0.0.1", "127.0.0.2"]
    for each in made:
        each.close()


def test_a_host_whose_addresses_the_machine_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a receiver would run at which nothing arrives."""
    host_of(monkeypatch, LACKING)
    with pytest.raises(OSError, match=os.strerror(errno.EADDRNOTAVAIL)):
        listening_at(("elsewhere", 0))
