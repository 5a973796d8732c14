"""The check of a device: it has a row for every case, and calls wrong numbers wrong."""

import itertools
import json

import pytest

from benchmarks import device_check
from benchmarks.devices import find_device

SIZE = device_check.Size(batch=2, steps=64, width=8, rounds=2, seconds=1e-4)


@pytest.fixture
def check(tmp_path, capsys):
    """Return a function that runs the check: its status, its rows, what it printed."""

    def run():
        status = device_check.main(["--out-dir", str(tmp_path)], SIZE)
        (path,) = tmp_path.glob("device-*.json")
        rows = json.loads(path.read_text("utf-8"))["rows"]
        return status, rows, capsys.readouterr().out

    return run


def test_a_row_for_every_case(check):
    status, rows, printed = check()
    assert status == 0
    modes = ["eager", *find_device().modes]
    cases = itertools.product(
        modes, device_check.LIMITS, ["nothing", *device_check.GIVEN]
    )
    found = [(row["mode"], row["dtype"], row["given"]) for row in rows]
    assert found == [*cases, ("eager", "float32", "a mask")]
    assert all(row["ok"] for row in rows)
    assert printed.count("| ok |") == len(rows)
    assert "WRONG" not in printed
    for row in rows[:-1]:
        assert len(row["errors"]) == (1 if row["given"] == "nothing" else 3)
        assert row["ratio"][1] > 0 and row["addition_microseconds"] > 0


def test_wrong_numbers_are_called_wrong(check, monkeypatch):
    class Wrong(device_check.PositionalEncoding):
        def call(self, inputs, *, positions=None, start_index=0):
            rows = super().call(inputs, positions=positions, start_index=start_index)
            return rows + 1e-3

    eager = find_device()._replace(modes={})
    monkeypatch.setattr(device_check, "find_device", lambda: eager)
    monkeypatch.setattr(device_check, "PositionalEncoding", Wrong)
    status, rows, printed = check()
    assert status == 1
    wrong = [row for row in rows if not row["ok"]]
    assert {row["given"] for row in wrong} == {"nothing", *device_check.GIVEN}
    assert all(not row["ok"] for row in rows[:-1] if row["dtype"] == "float32")
    assert printed.count("| WRONG |") == len(wrong)
