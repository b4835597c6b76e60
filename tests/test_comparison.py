"""Comparisons of trainings: numbers and verdicts by hand, and a page that stands alone."""

import csv
import dataclasses
from html.parser import HTMLParser
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from fcritic.errors import UsageError
from fcritic.results.plots import COLOURS, DASHES, line_of, panels, short_frames
from fcritic.runs.directory import RunDirectory
from fcritic.study.comparison import Better, Comparison, draw_panel, gather, published
from fcritic.study.report import conduct
from fcritic.study.spec import Run, Trainings


def fake_run(folder, run, curves):
    """A folder with the metrics of a run: evaluations of each seed at the same frames."""
    with RunDirectory.create_or_open(folder / run.name, run.config().to_json(), run.command()) as directory:
        rows = [
            {"seed": seed, "env_steps": frame, "kind": "evaluation", "mean_actor": value, "best_actor": value + 1}
            for seed, values in enumerate(curves)
            for frame, value in values.items()
        ]
        directory.metrics.path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def report_of(study, folder, out, add=()):
    return conduct(study, Trainings(folder, add), False, "a command", out)


@pytest.fixture
def panel(tmp_path):
    runs = tuple(Run(recipe, "cheetah-run", seeds=3, steps=400_000) for recipe in ("sac", "td3", "sac+"))
    study = Comparison("two-methods", "a & <b>?", runs, reference="sac")
    frames = range(100_000, 600_000, 100_000)  # one was trained further than asked
    fake_run(tmp_path, runs[0], [{frame: frame / 1000 + seed for frame in frames} for seed in range(3)])
    fake_run(tmp_path, runs[1], [{frame: 2 * frame / 1000 + seed for frame in frames} for seed in range(3)])
    return study, tmp_path


def test_numbers_by_hand(panel):
    study, folder = panel
    (found,) = gather(study, Trainings(folder))
    assert found.missing == ["sac+"] and [method.run.method for method in found.methods] == ["sac", "td3"]
    sac = found.methods[0]
    assert sac.finished and sac.frames.tolist() == [100_000, 200_000, 300_000, 400_000]
    np.testing.assert_array_equal(sac.end_scores, [400, 401, 402])
    row = sac.summary()
    assert row["end_mean"] == 401 and row["end_deviation"] == 1.0 and row["area"] == 251
    (comparison,) = found.comparisons("sac")
    assert comparison["difference"] == 400
    chance = comparison["probability_of_improvement"]
    assert chance["value"] == chance["high"] == 1.0 and chance["low"] < 0.5  # three seeds each
    assert comparison["p"] == pytest.approx(0.1)
    assert found.comparisons("nobody") == []


def test_two_runs_of_one_name_are_refused():
    with pytest.raises(UsageError, match="are named cheetah-run-4-sac; give one of them another label"):
        Comparison("two", "", (Run("sac", "cheetah-run"), Run("sac", "cheetah-run", steps=5)))


# Claims

RUNS = tuple(Run(recipe, "cheetah-run", seeds=4, steps=400_000) for recipe in ("sac", "td3", "sac+", "td3+"))
CLAIM = Better("td3 is better than sac", "td3", "sac", "paper", "a label")


def trained(folder, run, ends, last=400_000):
    """A run whose seeds rise on a line to these ends."""
    frames = range(last // 4, last + 1, last // 4)
    fake_run(folder, run, [{frame: end * frame / last for frame in frames} for end in ends])


def verdict_of(folder, runs=RUNS[:2]):
    (verdict,) = Comparison("two", "", runs, claims=(CLAIM,)).find(Trainings(folder)).verdicts
    return verdict


@pytest.mark.parametrize(
    ("sac", "td3", "outcome"),
    [
        ((10, 11, 12, 13), (20, 21, 22, 23), "holds"),
        ((20, 21, 22, 23), (10, 11, 12, 13), "fails"),
        ((10, 20, 10, 20), (10, 20, 10, 20), "open"),
        ((10,), (20,), "open"),  # one seed decides nothing
        ((10, 11, 12), (20, 21, 22), "open"),  # nor do three
    ],
)
def test_a_claim_is_decided_where_seeds_lie_apart(tmp_path, sac, td3, outcome):
    trained(tmp_path, RUNS[0], sac)
    trained(tmp_path, RUNS[1], td3)
    verdict = verdict_of(tmp_path)
    assert verdict.outcome == outcome and (verdict.kind, verdict.source) == ("paper", "a label")
    means = {
        "td3": sum(td3) / len(td3),
        "sac": sum(sac) / len(sac),
        "frames": 400_000,
        "seeds": [len(td3), len(sac)],
    }
    assert means.items() <= verdict.figures.items()
    needed = {"open": 4 if min(td3) > max(sac) else "more than 30"}.get(outcome)
    assert verdict.figures.get("seeds that would decide") == needed


def test_a_claim_may_be_of_the_area_under_the_curve(tmp_path):
    """sac is slower, and as good in the end."""
    frames = (100_000, 200_000, 300_000, 400_000)
    fake_run(tmp_path, RUNS[0], [dict(zip(frames, (0, 0, 0, 100 + seed), strict=True)) for seed in range(4)])
    fake_run(tmp_path, RUNS[1], [dict(zip(frames, (90, 90, 90, 100 + seed), strict=True)) for seed in range(4)])
    of = {name: dataclasses.replace(CLAIM, of=name) for name in ("end", "area")}
    study = Comparison("two", "", RUNS[:2], claims=tuple(of.values()))
    study.require_sound()
    end, area = study.find(Trainings(tmp_path)).verdicts
    assert (end.outcome, area.outcome) == ("open", "holds")
    # trapezoids: (0 + 0 + 101.5 / 2) / 3 and (90 + 90 + (90 + 101.5) / 2) / 3, on the mean over seeds
    assert (area.figures["sac"], area.figures["td3"]) == pytest.approx((101.5 / 6, (180 + 191.5 / 2) / 3))
    assert area.figures["judged by"] == "area" and "judged by" not in end.figures
    with pytest.raises(UsageError, match="two: a claim is of end or area, not of aera"):
        dataclasses.replace(study, claims=(dataclasses.replace(CLAIM, of="aera"),)).require_sound()


@pytest.mark.parametrize(("sac", "bands"), [((-900, -100), 0), ((-900, -500, -100), 1)])
def test_a_wide_interval_does_not_flatten_the_curves(sac, bands, tmp_path):
    """Of two seeds it is many times as high as all that was measured, and not drawn."""
    trained(tmp_path, RUNS[0], sac)
    (panel,) = Comparison("one", "", RUNS[:1]).find(Trainings(tmp_path)).plot["panels"]
    assert min(panel["methods"][0]["curve"]["low"]) < -1200
    with panels(tmp_path / "picture.png") as (axes,):
        draw_panel(axes, panel | {"published": []})
        low, high = axes.get_ylim()
        assert len(axes.collections) == bands
    assert -1000 < low < -900 and -100 < high < 100


def test_runs_that_are_missing_or_unfinished_are_named(tmp_path):
    trained(tmp_path, RUNS[0], (10, 11, 12, 13))
    missing = verdict_of(tmp_path, RUNS[:3])
    assert missing.outcome == "open" and missing.figures == {"not run": ["td3"]}
    trained(tmp_path, RUNS[1], (20, 21, 22, 23), last=200_000)
    verdict = verdict_of(tmp_path, RUNS[:3])
    # sac is compared where td3 ends: halfway, where it has half of its end
    assert verdict.outcome == "holds" and verdict.figures["not finished"] == ["td3"]
    assert (verdict.figures["td3"], verdict.figures["sac"], verdict.figures["frames"]) == (21.5, 5.75, 200_000)


# Reports


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
    study, folder = panel
    report = report_of(study, folder, tmp_path / "report")
    text = (tmp_path / "report" / "two-methods.html").read_text()
    reader = Reader()
    reader.feed(text)
    assert reader.open == [] and "<script" not in text and "url(http" not in text
    assert all(link.startswith("#") for link in reader.links)
    assert "a &amp; &lt;b&gt;?" in text and "Missing: sac+" in text and "viewport" in text
    assert all(run.command() in text for run in study.runs)
    assert "REDQ" in text and "published" in text and text.count("<svg") == 1
    assert report == json.loads((tmp_path / "report" / "two-methods.json").read_text())
    with (tmp_path / "report" / "two-methods.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 4 and rows[0]["mean_actor"] == "100.0"
    assert 1000 < (tmp_path / "report" / "two-methods.png").stat().st_size < 150_000


def test_both_forms_of_a_report_say_the_same(panel, tmp_path):
    study, folder = panel
    report_of(study, folder, tmp_path)
    page, text = ((tmp_path / f"two-methods.{ending}").read_text() for ending in ("html", "md"))
    heads = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert heads == re.findall(r"<h2>(.*?)</h2>", page) and "cheetah-run, 4 environments" in heads
    assert len(re.findall(r"^\| --- \|", text, re.MULTILINE)) == page.count("<table>")
    assert "| sac | 400,000 | 3 | 401.0 ± 1.0 |" in text and "<td>401.0 ± 1.0</td>" in page


def test_a_report_is_made_again_from_its_evaluations(panel, tmp_path):
    """The raw evaluations beside a study are enough for its report, without the folders of the runs."""
    study, folder = panel
    first = report_of(study, folder, tmp_path / "first")
    again = report_of(study, tmp_path / "nothing", tmp_path / "again", (tmp_path / "first" / "two-methods.csv",))
    methods = [report["data"]["panels"][0].pop("methods") for report in (first, again)]
    assert first["data"] == again["data"] and first["claims"] == again["claims"]
    assert [each["curve"] for each in methods[0]] == [each["curve"] for each in methods[1]]
    text = (tmp_path / "again" / "two-methods.md").read_text()
    assert "read from two-methods.csv" in text and "Missing: sac+" in text
    bad = tmp_path / "bad.csv"
    for content, message in (
        ("task,envs\nx,1\n", "lacks method, seed, frames, mean_actor"),
        ("task,envs,method,seed,frames,mean_actor\ncheetah-run,four,td3,0,1,2\n", "cannot be read"),
        ("", "lacks task"),
    ):
        bad.write_text(content)
        with pytest.raises(UsageError, match=message):
            report_of(study, folder, tmp_path / "out", (bad,))
    with pytest.raises(UsageError, match="cannot read"):
        report_of(study, folder, tmp_path / "out", (tmp_path / "none.csv",))


def test_lines_differ_beyond_the_number_of_colours():
    count = len(COLOURS) * len(DASHES)
    assert len({str(line_of(place)) for place in range(count)}) == count
    assert [short_frames(frame) for frame in (0, 500, 20_000, 1_500_000)] == ["0", "500", "20k", "1.5M"]


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

# Writes into the page's title what a reader would see: its width, and what of the pictures lies outside of them.
MEASURE = """<script>
const outside = [...document.querySelectorAll("svg text")].filter(part => {
  const box = part.getBoundingClientRect(), frame = part.ownerSVGElement.getBoundingClientRect();
  return box.left < frame.left - 8 || box.right > frame.right + 8 || box.bottom > frame.bottom + 8;
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
    study, folder = panel
    report_of(study, folder, tmp_path / "report")
    page = tmp_path / "report" / "two-methods.html"
    page.write_text(page.read_text().replace("</body>", f"{MEASURE}</body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--window-size={width},900", "--dump-dom", page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    seen = json.loads(shown.partition("<title>")[2].partition("</title>")[0])
    assert seen["window"] == width and seen["scroll"] <= width and seen["outside"] == []
    assert seen["lines"] >= 8  # three seeds and a mean of each of two methods, at the least


def test_published_figures_are_cut_at_the_frames_asked():
    points = {entry["algorithm"]: entry["points"] for entry in published("cheetah-run", 500_000)}
    assert points["REDQ"] == [(100_000, 726.0, 51.0), (500_000, 895.0, 8.0)]
    assert published("no-task", 10**7) == []
