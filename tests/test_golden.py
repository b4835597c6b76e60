"""The part of the golden values that no CPU decides; all of them: `python -m tests.golden.make --check`."""

from golden import make


def test_agents_that_were_given_away_act_as_they_did():
    assert make.differences("agents") == []


def test_a_change_of_any_value_is_seen():
    change = {
        "trainings": lambda entry: entry["arrays"].update({next(iter(entry["arrays"])): "0" * 64}),
        "programs": lambda entry: entry["operations"].update({"add float32[] float32[] -> float32[]  ": 10**6}),
        "agents": lambda entry: entry.update(frame=entry["frame"] + 1),
        "contract": lambda entry: entry.update(code=3),
        "studies": lambda entry: entry["printed"].update(verdict="otherwise"),
    }
    for part, (_, compare, _) in make.PARTS.items():
        old, new = make.read(part), make.read(part)
        for name in old:
            assert list(compare(name, old[name], new[name])) == []
            change[part](new[name])
            assert not all(line.startswith("(") for line in compare(name, old[name], new[name])), (part, name)
