"""The web server of the viewer: where it listens, and what is said when it cannot."""

from __future__ import annotations

import contextlib
import io
import socket
from typing import TYPE_CHECKING

from splatanim.errors import InputError, require

if TYPE_CHECKING:
    import viser

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TRIES = 20  # ports after the one in use that are tried for the message


def open_server(host: str, port: int, title: str) -> viser.ViserServer:
    """A viser server that listens; ``port`` 0 takes any free one.

    Raises InputError where viser is missing (with the line that installs it), where the port is in use (with one that
    is free) and where the host is no address of this machine.
    """
    viser = require("viser", extra="viewer")
    check_address(host, port)
    with contextlib.redirect_stdout(io.StringIO()):  # its own banner names localhost for any host
        server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
    if port and server.get_port() != port:  # somebody took it between the check and now; viser went on to the next
        close_server(server)
        raise InputError(f"--port {port}: is in use on {host} by another program. Choose another, such as --port 0.")
    return server


def close_server(server: viser.ViserServer) -> None:
    """Stop the server without its word of farewell."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def address_lines(host: str, port: int) -> str:
    """Where to point the browser, and whether others can, too."""
    if host in LOOPBACK:
        return f"viewing at http://{host}:{port} (this machine alone; --host 0.0.0.0 opens it to the network)"
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    return (
        f"viewing at http://{shown}:{port}\n"
        f"--host {host}: open to everybody who can reach this machine, without a password: they can watch, touch, and "
        "write recordings into the output folder. Keep it to networks that you trust."
    )


def check_address(host: str, port: int) -> None:
    """Raise InputError where nobody could listen there. viser goes on to the next port where one is taken; here that is
    said instead."""
    if not 0 <= port <= 65535:
        raise InputError(f"--port {port}: a port lies between 0 and 65535 (0 takes any that is free).")
    fault = _fault(host, port)
    if fault is None:
        return
    if isinstance(fault, socket.gaierror) or fault.errno not in _IN_USE:
        raise InputError(
            f"--host {host}: cannot listen on port {port} there ({fault.strerror or fault}). Give an address of this "
            "machine: 127.0.0.1 (itself alone) or 0.0.0.0 (every network it is on)."
        )
    free = next((p for p in range(port + 1, min(port + _TRIES, 65535) + 1) if _fault(host, p) is None), 0)
    raise InputError(
        f"--port {port}: is in use on {host}, perhaps by another viewer. Stop that one, or take another: --port {free}."
    )


def _fault(host: str, port: int) -> OSError | None:
    """What stands against listening there, or None."""
    try:
        family = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return error
    return None


_IN_USE = {98, 48, 10048}  # EADDRINUSE on Linux, macOS and Windows
