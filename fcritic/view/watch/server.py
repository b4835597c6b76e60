"""The page and its data over HTTP: on this machine only, for its own page only, a fixed list of addresses."""

from collections.abc import Callable
import errno
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
import json
from socketserver import TCPServer
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fcritic.errors import UsageError
from fcritic.view.watch.server import Watcher

PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/lines.js": ("lines.js", "text/javascript"),
    "/table.js": ("table.js", "text/javascript"),
}
"""Address -> file of this package. No address is ever made into a path."""

DATA = "/data.json"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

OWN_NAMES = {"localhost", "127.0.0.1", "[::1]"}
"""Whatever the port, which a tunnel may change: a foreign page can make its own name lead here, but not these."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET; everything else is refused."""

    timeout = 10
    server_version, sys_version = "fcritic", ""

    def do_GET(self) -> None:
        """The page, its parts or its data."""
        url = urlsplit(self.path)
        if not self._is_own_page():
            self._send(403, "text/plain", b"open this page as http://localhost\n")
        elif url.path == DATA:
            self._send(200, "application/json", json.dumps(self._data(url.query), allow_nan=False).encode())
        elif url.path in PAGE:
            name, kind = PAGE[url.path]
            self._send(200, kind, (files("fcritic.view.watch") / name).read_bytes())
        else:
            self._send(404, "text/plain", b"there is no such address\n")

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # any other method
            return lambda: self._send(405, "text/plain", b"only GET is answered\n", {"Allow": "GET"})
        raise AttributeError(name)

    def _is_own_page(self) -> bool:
        """Not a foreign name that leads to this machine, nor a foreign page that asks for the data."""
        host = self.headers.get("Host", "").casefold()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        foreign = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        return name in OWN_NAMES and not (foreign and self.path.startswith(DATA))

    def _data(self, query: str) -> dict[str, Any]:
        try:
            asked = parse_qs(query, max_num_fields=10)
        except ValueError:
            asked = {}
        words = lambda name: [word for word in asked.get(name, [""])[0].split(",") if word]
        return self.server.watcher.answer(asked.get("since", [""])[0], words("metrics")[:20], words("runs")[:5000])

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (headers | HEADERS | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are nobody's business."""


class WatchServer(ThreadingHTTPServer):
    """A server on the loopback interface; port 0 means any that is free."""

    daemon_threads = True

    def __init__(self, watcher: Watcher, port: int):
        self.watcher = watcher
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise UsageError(f"port {port} {reason}; choose another with --port, or any with --port 0") from error
        except OverflowError as error:
            raise UsageError(f"--port must be between 0 and 65535, not {port}") from error

    def server_bind(self) -> None:
        """Without the name look-up of the base class, which may wait for a network."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One line, and the server goes on; a browser that leaves early is no error."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"fcritic: one request failed: {type(error).__name__}: {error}", file=sys.stderr)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://localhost:{self.server_port}/"
