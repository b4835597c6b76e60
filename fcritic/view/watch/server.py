"""All runs below a folder over HTTP: on this machine only, for its own page only, a fixed list of addresses."""

from collections.abc import Callable, Iterable
import errno
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
import json
import math
from pathlib import Path
import secrets
from socketserver import TCPServer
import sys
import threading
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fcritic.errors import UsageError
from fcritic.view.watch.reading import MOST_POINTS
from fcritic.view.watch.run import Locks, WatchedRun, runs, variants

FIRST_BUDGET, BUDGET = 1.0, 0.4
"""Seconds of reading in a first and in a later answer. A long history comes in parts: the page asks again."""

SCAN_EVERY = 2.0
ALL_POINTS = 100_000
"""Points of all curves in one answer: the more curves, the fewer points each."""


class Watcher:
    """The runs below a folder. Revisions count changes, so that an answer holds only what is new to the asker."""

    def __init__(self, root: Path):
        self.root = root
        self.session = secrets.token_hex(4)
        self.runs: dict[str, WatchedRun] = {}
        self._revision, self._scanned = 0, -math.inf
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Finds runs that appeared, went or changed, without reading their metrics."""
        if time.monotonic() - self._scanned >= SCAN_EVERY:
            self._scan()
        changed = [run for run in list(self.runs.values()) if run.look()]
        for name, variant in variants(self.runs.values()).items() if changed else ():
            if self.runs[name].variant != variant:
                self.runs[name].variant = variant
                changed.append(self.runs[name])
        self._note(changed)

    def _note(self, changed: Iterable[WatchedRun]) -> None:
        self._revision += 1
        for run in changed:
            run.revision = self._revision

    def _scan(self) -> None:
        found = {run.id: run for run in (WatchedRun(place, name) for name, place in runs(self.root).items())}
        self.runs = {name: self.runs.get(name, run) for name, run in found.items()}
        locks = Locks()
        for run in self.runs.values():
            running = locks.holds(run.place)
            if running != run.running:
                run.running, run.revision = running, self._revision + 1
        self._revision += 1
        self._scanned = time.monotonic()

    def read(self, runs: Iterable[WatchedRun], metrics: list[str] | None, deadline: float) -> bool:
        """Reads new rows of these metrics, or of all, a block of every run in turn; false if time was up before."""
        todo, changed, in_time = list(runs), set(), True
        while todo and in_time:
            more = []
            for run in todo:
                if not (in_time := time.monotonic() < deadline):
                    break
                if run.curves.read(metrics):
                    changed.add(run)
                    more.append(run)
            todo = more
        self._note(changed)
        return in_time

    def snapshot(self) -> dict[str, Any]:
        """Everything but the curves, all rows read: for programs."""
        with self._lock:
            self.refresh()
            self.read(self.runs.values(), None, math.inf)
            return {"folder": str(self.root), "runs": [_plain(run.facts()) for run in self.runs.values()]}

    def answer(self, since: str, names: list[str], picked: list[str]) -> dict[str, Any]:
        """What changed since an earlier answer: facts, and curves of these names, of the picked runs or of all.

        `since` is the `revision` of that answer, or anything else for all of it. Reading takes a bounded time; what
        was asked for comes first.
        """
        with self._lock:
            session, _, number = since.partition("-")
            known = int(number) if session == self.session and number.isdecimal() and len(number) < 16 else -1
            deadline = time.monotonic() + (BUDGET if known >= 0 else FIRST_BUDGET)
            self.refresh()
            wanted = [self.runs[name] for name in picked if name in self.runs] or list(self.runs.values())
            for run, name in ((run, name) for run in wanted for name in names):
                run.curves.want(name)
            if self.read(wanted, names, deadline) and known >= 0:
                self.read(self.runs.values(), None, deadline)
            return self._told(known, names, wanted)

    def _told(self, known: int, names: list[str], wanted: list[WatchedRun]) -> dict[str, Any]:
        new = lambda run: run.running or run.revision > known  # of those that run, the last row's age counts
        asked = lambda run: [reader for name, reader in run.curves.readers.items() if name in names]
        count = sum(len(reader.series) for run in wanted for reader in asked(run))
        most = max(32, min(MOST_POINTS, ALL_POINTS // max(count, 1)))
        every = self.runs.values()
        return {
            "revision": f"{self.session}-{self._revision}",
            "ids": list(self.runs),
            "metrics": sorted(set().union(*(run.curves.names for run in every)))[:500],
            "runs": [_plain(run.facts()) for run in every if new(run)],
            "curves": {run.id: _curves(run, names, most) for run in wanted if run.revision > known},
            "behind": sum(run.curves.behind for run in every),
            "size": sum(run.curves.tail.size for run in every),
            "time": time.time(),
        }


def _curves(run: WatchedRun, names: list[str], most: int) -> dict[str, list[Any]]:
    """For each name a list of [seed, frames, values]."""
    found: dict[str, list[Any]] = {}
    for name in names:
        reader = run.curves.readers.get(name)
        for seed, series in sorted(reader.series.items()) if reader else ():
            frames, values = series.thinned(most)
            found.setdefault(name, []).append([seed, [round(frame) for frame in frames], _plain(values)])
    return found


def _plain(value: Any) -> Any:
    """Returns a value for JSON: numbers with five digits, which suffice for a picture, and null for NaN."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) and abs(value) < 1e5 else _large(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def _large(value: float) -> float | None:
    return (round(value, 1) if abs(value) < 1e12 else float(f"{value:.5g}")) if math.isfinite(value) else None


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
        watcher = self.server.watcher  # pyright: ignore[reportAttributeAccessIssue]
        return watcher.answer(asked.get("since", [""])[0], words("metrics")[:20], words("runs")[:5000])

    def _send(self, status: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (headers | HEADERS | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


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
        """Prints one line, and the server goes on; a browser that leaves early is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"fcritic: one request failed: {type(error).__name__}: {error}", file=sys.stderr)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://localhost:{self.server_port}/"
