"""`fcritic watch DIR`: all runs below a folder in a web page, while they train."""

import dataclasses
import json
from pathlib import Path
import signal
from typing import Annotated
import webbrowser

import tyro

from fcritic.cli.parsing import parse
from fcritic.errors import UsageError
from fcritic.view.watch.server import Watcher, WatchServer


@dataclasses.dataclass(frozen=True)
class WatchOptions:
    """Shows all runs below a folder in a web page on this machine, while they train."""

    directory: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DIR")]] = "runs"
    """The folder; runs may lie at any depth in it."""
    port: int = 8420
    """Port of the page on this machine; 0: any that is free."""
    open: bool = False
    """Open the page in the browser."""
    json: bool = False
    """Print where every run stands as JSON and leave."""


def watch(args: list[str]) -> None:
    """`fcritic watch DIR`: serves until Ctrl-C or SIGTERM; with `--json` one snapshot."""
    options = parse(WatchOptions, args, "watch")
    root = Path(options.directory)
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder; name one that contains runs: fcritic watch DIR")
    watcher = Watcher(root)
    if options.json:
        print(json.dumps(watcher.snapshot(), indent=2))
        return
    with WatchServer(watcher, options.port) as server:
        print(f"watching {root} at {server.address} (Ctrl-C ends it)", flush=True)
        if options.open:
            webbrowser.open(server.address)
        for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell in the background ignores Ctrl-C
            signal.signal(number, signal.default_int_handler)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nstopped watching; the runs go on")
