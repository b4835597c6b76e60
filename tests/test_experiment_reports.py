"""Reports of experiments: what the runs measured, by hand, and a page that stands alone."""

import csv
from html.parser import HTMLParser
import json
import shutil
import subprocess

import numpy as np
import pytest

from fcritic.cli.dispatch import run as cli
from fcritic.errors import UsageError
from fcritic.experiments.charts import ticks
from fcritic.experiments.gather import gather, published
from fcritic.experiments.report import write_report
from fcritic.experiments.spec import Experiment, Run
from fcritic.runs.directory import RunDirectory


def fake_run(folder, run, curves):
    """A folder with the metrics of a run: evaluations of each seed at the same frames."""
    with RunDirectory.create_or_open(folder / run.name, run.config().to_json(), run.command()) as directory:
        rows = [
            {"seed": seed, "env_steps": frame, "kind": "evaluation", "mean_actor": value, "best_actor": value + 1}
            for seed, values in enumerate(curves)
            for frame, value in values.items()
        ]
        directory.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def panel(tmp_path):
    runs = tuple(Run(recipe, "cheetah-run", seeds=3, steps=400_000) for recipe in ("sac", "td3", "sac+"))
    experiment = Experiment("two <methods>", "a & b", runs, reference="sac")
    frames = range(100_000, 600_000, 100_000)  # one was trained further than asked
    fake_run(tmp_path, runs[0], [{frame: frame / 1000 + seed for frame in frames} for seed in range(3)])
    fake_run(tmp_path, runs[1], [{frame: 2 * frame / 1000 + seed for frame in frames} for seed in range(3)])
    return experiment, tmp_path


def test_numbers_by_hand(panel):
    experiment, folder = panel
    (found,) = gather(experiment, folder)
    assert found.missing == ["sac+"] and [method.run.method for method in found.methods] == ["sac", "td3"]
    sac = found.methods[0]
    assert sac.finished and sac.frames.tolist() == [100_000, 200_000, 300_000, 400_000]
    np.testing.assert_array_equal(sac.end_scores, [400, 401, 402])
    row = sac.summary()
    assert row["end_mean"] == 401 and row["end_deviation"] == 1.0 and row["area"] == 251
    (comparison,) = found.comparisons("sac")
    assert comparison["difference"] == 400
    assert comparison["probability_of_improvement"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found.comparisons("nobody") == []


class Reader(HTMLParser):
    """Notes links, and that every opened tag is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.links = [], []

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass


def test_the_report_stands_alone(panel, tmp_path):
    experiment, folder = panel
    numbers = write_report(experiment, folder, tmp_path / "report")
    text = (tmp_path / "report" / "index.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and reader.links == [] and "http" not in text and "<script" not in text
    assert "two &lt;methods&gt;" in text and "Missing: sac+" in text and "viewport" in text
    assert all(run.command() in text for run in experiment.runs)
    assert "REDQ" in text and "published" in text
    assert numbers == json.loads((tmp_path / "report" / "numbers.json").read_text())
    with (tmp_path / "report" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 4 and rows[0]["mean_actor"] == "100.00"
    for suffix in ("png", "svg"):
        assert (tmp_path / "report" / f"curves.{suffix}").stat().st_size > 1000


def test_a_report_is_made_again_from_its_curves(panel, tmp_path):
    """The raw curves in results/ are enough for the page, without the folders of the runs."""
    experiment, folder = panel
    first = write_report(experiment, folder, tmp_path / "first")
    add = (str(tmp_path / "first" / "curves.csv"),)
    again = write_report(experiment, tmp_path / "nothing", tmp_path / "again", add)
    assert again == first
    text = (tmp_path / "again" / "index.html").read_text()
    assert "read from curves.csv" in text and "Missing: sac+" in text
    for bad in ("task,envs\nx,1\n", "task,envs,method,seed,frames,mean_actor\ncheetah-run,four,td3,0,1,2\n"):
        (tmp_path / "bad.csv").write_text(bad)
        with pytest.raises(UsageError, match=r"bad\.csv is no curves\.csv"):
            write_report(experiment, folder, tmp_path / "bad", (str(tmp_path / "bad.csv"),))
    with pytest.raises(UsageError, match="cannot read"):
        write_report(experiment, folder, tmp_path / "bad", (str(tmp_path / "none.csv"),))


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

# Writes into the page's title what a reader would see: its width, and what of the pictures lies outside of them.
MEASURE = """<script>
const outside = [...document.querySelectorAll("svg text, svg polyline, svg path")].filter(part => {
  const box = part.getBoundingClientRect(), frame = part.ownerSVGElement.getBoundingClientRect();
  return box.left < frame.left - 2 || box.right > frame.right + 2 || box.bottom > frame.bottom + 2;
});
const lines = [...document.querySelectorAll("svg polyline, svg path")].filter(part => part.getBBox().width > 0);
document.title = JSON.stringify({
  scroll: document.documentElement.scrollWidth, window: innerWidth, lines: lines.length,
  outside: outside.map(part => part.textContent || part.tagName),
});
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("width", [1280, 500], ids=["desk", "phone"])
def test_a_browser_shows_the_whole_report(panel, tmp_path, width):
    """500 is the narrowest window that Chromium opens without a screen."""
    experiment, folder = panel
    write_report(experiment, folder, tmp_path / "report")
    page = tmp_path / "report" / "index.html"
    page.write_text(page.read_text().replace("</body>", f"{MEASURE}</body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--window-size={width},900", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    seen = json.loads(shown.partition("<title>")[2].partition("</title>")[0])
    assert seen["window"] == width and seen["scroll"] <= width and seen["outside"] == []
    assert seen["lines"] >= 6  # three seeds and a mean of each of two methods, at the least


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 950.0, [0, 250, 500, 750, 1000]),
        (0.0, 1.0, [0, 0.25, 0.5, 0.75, 1]),
        (-30.0, 10.0, [-30, -20, -10, 0, 10]),
    ],
)
def test_axes_have_round_numbers(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_a_report_of_nothing_says_how_to_begin(tmp_path, capsys):
    assert cli(["experiment", "report", "figure-2", "--dir", str(tmp_path)]) == 2
    assert "begin with fcritic experiment run figure-2" in capsys.readouterr().err


def test_published_figures_are_cut_at_the_frames_asked():
    points = {entry["algorithm"]: entry["points"] for entry in published("cheetah-run", 500_000)}
    assert points["REDQ"] == [(100_000, 726.0, 51.0), (500_000, 895.0, 8.0)]
    assert published("no-task", 10**7) == []
