"""The page of a ranking: the answer first, the picture to scale, and names as text."""

import math
import re

import pytest

from fcritic.view.ranking import number, page, share


def row(name: str, value: float, half: float, trusted: bool = True, **more) -> dict:
    base = {
        "rank": None,
        "name": name,
        "kind": "function",
        "stochastic": False,
        "value": value,
        "low": value - half,
    }
    base |= {"high": value + half, "chance_best": 0.5 if trusted else None, "trusted": trusted, "coverage": 1.5}
    return base | {"spread": 0.1, "reason": "covered" if trusted else "outside", "measured": None} | more


def report(ranked: list[dict], untrusted: list[dict] = ()) -> dict:
    ranked = [each | {"rank": place} for place, each in enumerate(ranked, start=1)]
    facts = {"policies": len(ranked) + len(untrusted), "method": "functional", "discount": 0.9, "unit": "per start"}
    texts = {"data_text": "these data", "method_text": "this method", "check_text": ""}
    return facts | texts | {"ranked": ranked, "untrusted": list(untrusted)}


def places(text: str) -> list[float]:
    """Horizontal places of the dots, from the top of the picture on."""
    return [
        float(x) for x in re.findall(r'<circle class="\w+" cx="([\d.]+)" cy="\d', text.partition("<figcaption>")[0])
    ]


def test_dots_are_sorted_by_value_and_to_scale():
    text = page(report([row("b", 30, 2), row("a", 10, 2)], [row("c", 20, 40, trusted=False)]))
    dots = places(text)
    assert len(dots) == 3
    assert dots[0] - dots[1] == pytest.approx(dots[1] - dots[2], abs=0.2)
    assert dots[0] > dots[2]
    lines = re.findall(r'<line class="(\w+)" stroke-width="2.5" x1="([\d.]+)" x2="([\d.]+)"', text)[:3]
    assert [kind for kind, *_ in lines] == ["sure", "unsure", "sure"]
    widths = [float(end) - float(start) for _, start, end in lines]
    assert widths[1] == pytest.approx(20 * widths[0], rel=0.05)


def test_the_answer_comes_first_with_what_cannot_be_told_apart():
    ranked = [row("b", 30, 2, chance_best=0.6), row("a", 29, 2, chance_best=0.39), row("z", 1, 2, chance_best=0.01)]
    text = page(report(ranked, [row("c", 99, 40, trusted=False)]))
    assert "<h1>Best: b</h1>" in text
    assert "60 %; it cannot be distinguished from a.</p>" in text
    assert "1 of 4 cannot be judged" in text
    assert text.index("The data cannot judge these") < text.index("<h2>Ranking</h2>")
    assert "outside" in text
    alone = page(report([], [row("c", 99, 40, trusted=False)]))
    assert "do not show which policy is best" in alone


def test_what_was_measured_is_drawn_and_contradiction_is_said():
    close = row("a", 30, 2, measured={"value": 31.0, "error": 0.5, "episodes": 4})
    far = row("a", 30, 2, measured={"value": 12.0, "error": 0.5, "episodes": 4})
    assert 'class="cross"' in page(report([close]))
    assert "do not rely on this ranking" not in page(report([close]))
    assert "Measured it is 12.0, which lies outside" in page(report([far]))


def test_a_single_critic_has_no_interval_and_no_chance():
    text = page(report([row("a", 30, 2, low=None, high=None, chance_best=None), row("b", 10, 2)]))
    assert "<p>Its value is 30.0; a single critic has no interval.</p>" in text
    assert text.count("<td class=n>none</td>") == 1
    assert places(text)[0] > places(text)[1]


def test_names_of_strangers_are_text():
    nasty = "<script>document.title='run'</script>\"'&"
    text = page(report([row(nasty, 1, 1)], [row(nasty, 2, 1, trusted=False, reason=nasty)]))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 5


def test_infinite_and_equal_numbers_can_be_drawn():
    rows = [row("a", 1, 0), row("b", 1, 0, coverage=math.inf)]
    wide = row("c", 1, 1, trusted=False) | {"low": -math.inf, "high": math.inf}
    assert "∞" in page(report(rows, [wide]))
    many = page(report([row(f"policy {place}", place, 1) for place in range(1000, 0, -1)]))
    assert places(many) == sorted(places(many), reverse=True)
    assert len(places(many)) == 1000
    assert len(many) < 2_000_000


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345.6, "12,346"),
        (123.4, "123"),
        (1.234, "1.23"),
        (-0.01234, "-0.0123"),
        (math.inf, "∞"),
        (1e-9, "1.0e-09"),
    ],
)
def test_numbers_have_the_digits_that_matter(value, text):
    assert number(value) == text


def test_chances_are_never_rounded_to_certainty():
    assert [share(value) for value in (0.001, 0.5, 0.999, 1.0, 0.0)] == ["< 1 %", "50 %", "> 99 %", "100 %", "0 %"]
