"""A package index on the loopback interface that can stall, cut or falsify what it serves."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class PackageServer:
    """Serves the wheels of one folder as pip's --find-links reads them.

    ``requested`` lists the wheels asked for. With ``stall_after`` set, a wheel's answer stops after so many bytes: ``stalled``
    is set, and the rest follows once ``release`` is, or never if ``cut``. ``left`` is set when a client went away meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requested: list[str] = []
        self.stall_after: int | None = None
        self.cut = False
        self.stalled = threading.Event()
        self.release = threading.Event()
        self.left = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._answer(self)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    @contextlib.contextmanager
    def running(self) -> Iterator[PackageServer]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self.release.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        name = handler.path.strip("/")
        if not name:
            links = "".join(f'<a href="/{path.name}">{path.name}</a>\n' for path in sorted(self.folder.glob("*.whl")))
            self._send(handler, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
            return
        self.requested.append(name)
        self._send(handler, "application/octet-stream", (self.folder / name).read_bytes(), self.stall_after)

    def _await_release(self, handler: BaseHTTPRequestHandler) -> bool:
        while not self.release.is_set():
            readable, _, _ = select.select([handler.connection], [], [], 0.05)
            if readable and not handler.connection.recv(1, socket.MSG_PEEK):
                self.left.set()
                return False
        return True

    def _send(self, handler: BaseHTTPRequestHandler, kind: str, body: bytes, stall_after: int | None = None) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        try:
            if stall_after is not None:
                handler.wfile.write(body[:stall_after])
                handler.wfile.flush()
                self.stalled.set()
                if not self.cut and self._await_release(handler):
                    handler.wfile.write(body[stall_after:])
                return
            handler.wfile.write(body)
        except ConnectionError:
            self.left.set()
        finally:
            handler.close_connection = True
