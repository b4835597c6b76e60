"""What the documentation site takes from the program: the help of its commands, its public names, the results."""

import contextlib
import io
import os
from pathlib import Path
import re
import sys
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
FOLDERS = ("studies", "examples", "benchmarks")
"""Folders beside `docs/` that are part of the site."""
KEPT = {".png", ".svg", ".csv", ".json", ".html", ".py", ".xml"}
"""Their files that pages may link to, besides pages."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages, the results and the examples."""
    sys.path.insert(0, str(Path(__file__).parent))
    import options

    files.append(File.generated(config, "reference/options.md", content=options.page()))
    files.append(File.generated(config, "reference/cli.md", content=_command_line()))
    files.append(File.generated(config, "reference/api.md", content=_public_names()))
    for path in sorted(each for folder in FOLDERS for each in (ROOT / folder).rglob("*")):
        name = str(path.relative_to(ROOT))
        if path.suffix == ".md":
            files.append(File.generated(config, name, content=_relinked(path.read_text(), Path(name))))
        elif path.suffix in KEPT:
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links are written for readers of the repository, where `docs/` is one folder deeper than here."""
    if page.file.src_uri.split("/")[0] in FOLDERS:
        return markdown
    markdown = re.sub(rf"\]\(\.\./(({'|'.join(FOLDERS)})/)", r"](\1", markdown)
    return re.sub(r"\]\((examples/\w+)/?\)", r"](\1/README.md)", markdown)  # a folder is its page


def _relinked(text: str, place: Path) -> str:
    """A page from beside `docs/` with its links to `docs/` as the site has them."""
    up = "../" * (len(place.parts) - 1)
    return re.sub(rf"\]\({re.escape(up)}docs/", f"]({up}", text)


def _command_line() -> str:
    """The help of every command, as it is printed."""
    os.environ["COLUMNS"] = "100"
    from fcritic.cli.dispatch import COMMANDS, run

    pages = ["# Command line", "What `fcritic COMMAND --help` prints.", _fenced(_printed(run, ["--help"]))]
    for name, purpose in COMMANDS.items():
        text = _fenced(_printed(run, [name, "--help"]))
        pages += [f"## fcritic {name}", f"{purpose[0].upper()}{purpose[1:]}.", text]
    return "\n\n".join(pages)


def _printed(run: Any, args: list[str]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        run(args)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).rstrip()


def _fenced(text: str) -> str:
    if not text:
        raise RuntimeError("a command printed no help")
    return f"```text\n{text}\n```"


def _public_names() -> str:
    """The names that `import fcritic` offers, from their docstrings."""
    import fcritic

    homes = fcritic._HOMES
    lines = ["# Python", "The names that `fcritic` exports. How they work together: [From Python](../python.md)."]
    return "\n\n".join([*lines, *(f"::: {home}.{name}" for name, home in homes.items())])
