"""Small tagged lines, and the examples that read them, as modules."""

import json
import random
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

TINY = ["--dim=16", "--heads=2", "--dropout=0", "--batch-size=16"]
TINY += ["--learning-rate=0.02", "--length=24", "--epochs=6"]
NAMES = {
    "nr": ("江/nr 泽民/nr", "李/nr 鹏/nr", "克林顿/nr"),
    "ns": ("北京/ns", "延安/ns"),
}


def lines(count=300):
    """Return lines, each of a person, a place, an organization and a number."""
    draw = random.Random(0)
    return [
        f"{draw.choice(NAMES['nr'])} {draw.choice(['在/p', '到/v'])} "
        f"{draw.choice(NAMES['ns'])} {number}/m {draw.choice(['说/v', '看/v'])} "
        f"{draw.choice(['新华社/nt', '联合国/nt'])} 。/w"
        for number in range(count)
    ]


def text():
    return "\n".join(
        "".join(word.rpartition("/")[0] for word in line.split()) for line in lines()
    )


def train(example, data, folder, *options):
    """Run an example into `out` and `saved` of a folder, and return its metrics."""
    places = [f"--out={folder / 'out'}", f"--saved-models={folder / 'saved'}"]
    example.main([f"--data={data}", *places, *TINY, *options])
    return json.loads((folder / "out" / "metrics.json").read_text("utf-8"))


def check_refused(example, options, message, monkeypatch, capsys):
    """An error is one line, before anything is trained or written."""
    import pytest

    def train(*args):
        raise AssertionError("training began")

    monkeypatch.setattr(example, "train_and_export", train)
    with pytest.raises(SystemExit) as stop:
        example.main([str(option) for option in options])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(ValueError, match=message):
        raise ValueError(error)
