"""`fcritic describe`: what it prints of the recipe of the paper is the paper's own table."""

from test_cli import printed

from fcritic.cli.dispatch import run

PAPER_TABLE = {
    "optimizer": "adam",
    "learning_rate": 3e-4,
    "batch_size": 256,
    "discount": 0.99,
    "tau": 0.005,
    "actor_hidden": [256, 256],
    "state_action_hidden": [256, 256],
    "joint_hidden": [256, 256],
    "encoder.depth": 4,
    "encoder.heads": 1,
    "encoder.probes": 512,
    "encoder.layers": [-2, -1],
    "encoder.code": 128,
    "state_action_code": 64,
    "activation": "relu",
}
"""Every row of Table `tab:hyperparams`, in its order."""
PAPER_TEXT = {"critics": 10, "members": 10, "critic_steps": 3, "cycles": 1}


def test_describe_is_the_paper(capsys):
    facts = printed(capsys, "describe", "--recipe", "fac", "--task", "cheetah-run")
    for name, value in (PAPER_TABLE | PAPER_TEXT | {"tokens": 262, "action_width": 6}).items():
        assert facts[name] == value, name
    facts = printed(capsys, "describe", "--recipe", "fac", "--task", "hopper-hop")
    assert facts["tokens"] == 260 and facts["action_width"] == 4
    assert run(["describe", "--recipe", "fac-small", "--task", "probe-both"]) == 0
    assert capsys.readouterr().out.startswith("fac-small: ")
