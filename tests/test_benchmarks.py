"""The benchmark: its clockwork, its bars, and a candidate that fails."""

import json

import pytest
from likeness import first_of

from benchmarks import family_table
from benchmarks.apart import Died, apart
from benchmarks.bars import Bar, judged, ratio_bars, rows
from benchmarks.cases import Case
from benchmarks.family_members import (
    MEMBERS,
    WIDTH,
    learned_rows,
    nothing,
    numbers,
)
from benchmarks.measure import RESULTS, interleave, over
from benchmarks.plans import FULL, QUICK
from benchmarks.readings import (
    against,
    any_shape,
    exponents,
    is_pasted,
    memory,
    ratios,
)
from benchmarks.reasons import Cannot, reason


class Clock:
    """A clock that only the functions made here move."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def function(self, name, seconds, first=0.0):
        def call():
            self.now += seconds + (first if name not in self.calls else 0)
            self.calls.append(name)

        return call


def test_a_call_costs_what_it_costs_without_its_first():
    clock = Clock()
    functions = {
        "floor": clock.function("floor", 0.001, first=5),
        "slow": clock.function("slow", 0.003, first=7),
    }
    times = interleave(functions, rounds=5, seconds=0.1, clock=clock)
    assert times["floor"] == pytest.approx([0.001] * 5)
    assert over(times["slow"], times["floor"]) == pytest.approx([3, 3, 3])
    # 100 loops a round, and less than a round to find that out.
    assert 500 < clock.calls.count("floor") < 600


def test_all_take_turns_in_every_round():
    clock = Clock()
    functions = {name: clock.function(name, 1) for name in "abc"}
    interleave(functions, rounds=3, seconds=1, clock=clock)
    assert "".join(clock.calls) == "aabbcc" + "abc" + "cba" + "abc"


def test_a_round_divides_by_its_own_floor():
    assert over([2.0, 8.0, 6.0], [1.0, 4.0, 3.0]) == [2, 2, 2]


def timed(shape, **found):
    case = Case("tensorflow", "graph", "float32", "unknown", "zero", shape, 0)
    return {**case._asdict(), "candidates": found}


def ratio(*quartiles):
    return {"ratio": quartiles}


BAR = Bar("case", "unlimited", 1.1, ratios("unlimited", any_shape), "1.10")


def test_a_bar_is_met_by_the_lower_quartile_in_every_shape():
    small = timed((1, 2, 3), unlimited=ratio(1.1, 1.3, 1.5))
    large = timed((4, 5, 6), unlimited=ratio(1.2, 1.2, 1.2))
    assert judged(BAR, {"times": [small]}).word == "met"
    verdict = judged(BAR, {"times": [small, large]})
    assert verdict.word == "not met"
    assert (verdict.met, verdict.total) == (1, 2)
    assert verdict.worst[0::2] == ("4 x 5 x 6", "1.20 (1.20)")


def test_a_bar_without_results_is_not_measured():
    assert judged(BAR, {"times": []}).word == "not measured"


def test_a_bar_is_not_met_by_a_failure():
    failed = timed((1, 2, 3), unlimited={"reason": "ValueError: no"})
    verdict = judged(BAR, {"times": [failed]})
    assert verdict.word == "not met"
    assert verdict.worst.shown == "ValueError: no"


@pytest.mark.parametrize("low, word", [(1.29, "met"), (1.31, "not met")])
def test_slower_is_slower_beyond_the_quartiles(low, word):
    bar = BAR._replace(limit=1, read=against("unlimited", is_pasted))
    ours, theirs = ratio(low, 1.4, 1.5), ratio(1.1, 1.2, 1.3)
    result = {"times": [timed((1, 2, 3), unlimited=ours, pasted=theirs)]}
    assert judged(bar, result).word == word


@pytest.mark.parametrize("power, word", [(1.05, "met"), (2, "not met")])
def test_exponents(power, word):
    bar = BAR._replace(limit=0.1, read=exponents("unlimited", "graph"))
    growth = [
        timed(
            (1, n, 8), nothing={"ms": [99] * 3}, unlimited={"ms": [99 + n**power] * 3}
        )
        for n in (1024, 2048, 4096)
    ]
    assert judged(bar, {"growth": growth}).word == word


@pytest.mark.parametrize("growth, word", [(500, "met"), (501, "not met")])
def test_memory_is_over_a_ready_table_in_encodings(growth, word):
    bar = BAR._replace(limit=1, read=memory("unlimited", "graph"))
    records = [
        {"mode": "graph", "candidate": "ready", "growth": [99, 100, 1000]},
        {"mode": "graph", "candidate": "unlimited", "growth": [0, growth, growth]},
    ]
    verdict = judged(bar, {"held": (8, 10, 10), "memory": records})
    assert verdict.word == word


@pytest.mark.parametrize("plan", [QUICK, FULL], ids=["quick", "full"])
def test_both_plans_measure_what_the_bars_ask_for(plan):
    found = {name: ratio(1, 1, 1) for name in ("unlimited", "bounded", "pasted")}
    times = [{**case._asdict(), "candidates": found} for case in plan.times]
    for bar in ratio_bars():
        assert judged(bar, {"times": times}).total, bar.case


def test_every_bar_has_a_verdict_in_the_results():
    path = RESULTS / "performance.json"
    result = json.loads(path.read_text("utf-8"))
    for row in rows(result)[1:]:
        assert row[-1] in ("met", "not met", "no peer is"), row


@pytest.mark.tensorflow
def test_a_candidate_that_fails_has_a_reason(tf):
    from benchmarks import candidates
    from benchmarks.performance_tables import of_cases
    from benchmarks.times import side_by_side

    def raises(problem):
        def make(case):
            raise problem

        return make

    makers = {
        "floor": candidates.floor,
        "unlimited": candidates.unlimited,
        "bounded": lambda case: lambda x: x[:, :1],
        "pasted": raises(Cannot("it takes no positions")),
        "keras-hub": raises(ImportError("No module named 'keras_hub'")),
        "positional-encodings": lambda case: lambda x: x + float("nan"),
    }
    case = Case("tensorflow", "graph", "float32", "unknown", "zero", (2, 3, 4), 0)
    record = side_by_side(case, makers, rounds=2, seconds=1e-6)
    found = record["candidates"]
    assert found["floor"]["ratio"] == [1, 1, 1]
    assert found["unlimited"]["error"] < 3e-7
    assert found["unlimited"]["first_s"] > 0
    assert {name: f["reason"] for name, f in found.items() if "reason" in f} == {
        "bounded": "ValueError: a result of shape (2, 1, 4) for (2, 3, 4)",
        "pasted": "it takes no positions",
        "keras-hub": "ImportError: No module named 'keras_hub'",
        "positional-encodings": "ValueError: rows that are not finite",
    }
    written = of_cases([record], lambda found: "no" if "reason" in found else "yes")
    assert "| yes | no | no | no | no |" in written
    assert "- pasted recipe: it takes no positions (1 of 1)" in written


def test_a_reason_is_the_error_at_the_bottom():
    traced = "in user code:\n\n  File x\n\n    TypeError: it | is `this`\n  Arguments"
    assert reason(ValueError(traced)) == "TypeError: it / is 'this'"
    wrapped = "Exception encountered\n\n\x1b[1mno float\x1b[0m\n\nArguments"
    assert reason(ValueError(wrapped)) == "ValueError: no float"
    traced = "in user code:\n\n    raise Cannot(1)\n\n    Cannot: it takes no start\n"
    assert reason(Cannot(traced)) == "it takes no start"
    assert reason(ValueError("in /some/where/file.py")) == "ValueError: in file.py"
    assert len(reason(ValueError("x" * 100))) == len("ValueError: ") + 80


def test_a_process_that_ends_is_told_of(capsys):
    with pytest.raises(Died, match="its process ended with code 1"):
        apart({"no_such_module": {}})
    assert "no_such_module" in capsys.readouterr().err


def cannot(dtype):
    def call(x, **at):
        raise Cannot("it takes no unknown size")

    return call


def tiny(index, theirs=cannot):
    """Return a member of the family on small inputs, and beside another peer."""
    member = MEMBERS[index]
    turns = member.ready == member.shape
    size = (1, 3, 2, 4) if len(member.shape) == 4 else (1, 3, WIDTH)
    probe = (lambda: numbers(size)) if turns else nothing(*size)
    ready = size if turns else size[1:]
    return member._replace(shape=size, ready=ready, probe=probe, theirs=theirs)


@pytest.mark.tensorflow
@pytest.mark.parametrize("index", first_of(range(len(MEMBERS)), 2))
def test_the_family_is_exact_where_it_is_measured(index):
    from benchmarks.family import FIRSTS, MODES, POLICIES, measure

    record, _ = measure(tiny(index), rounds=2, seconds=1e-6)
    assert record["mask"] is True
    assert {*record["times"]} == {f"{m}, {p}" for m in MODES for p in POLICIES}
    assert all(len(quartiles) == 3 for quartiles in record["times"].values())
    near, far = FIRSTS
    for policy, bound in zip(POLICIES, (5e-7, 2**-8), strict=True):
        assert record["errors"][f"{near}, {policy}"] <= bound
        found = record["errors"][f"{far}, {policy}"]
        learned = "Learned" in record["member"]
        assert found == {"beyond": "NaN"} if learned else found <= bound


@pytest.mark.tensorflow
@pytest.mark.long
def test_what_is_wrong_about_a_peer_is_found(tf):
    from benchmarks.family import error, measure

    def wrong(dtype):
        return lambda x, **at: x + tf.cast(3, x.dtype)

    def clamps(dtype):
        rows = learned_rows()
        last = len(rows) - 1
        return lambda x, positions: x + tf.gather(rows, tf.minimum(positions, last))

    ours, peer = measure(tiny(0, wrong), rounds=2, seconds=1e-6)
    assert (ours["mask"], peer["mask"]) == (True, False)
    assert 2 <= peer["errors"]["0, float32"] <= 4
    _, peer = measure(tiny(0), rounds=2, seconds=1e-6)
    found = {peer["mask"], *peer["times"].values(), *peer["errors"].values()}
    assert found == {"it takes no unknown size"}
    assert error(tiny(4), clamps, "float32", 10**6) == {"beyond": "last row"}


def test_the_table_of_the_family():
    def record(member, candidate, time, error, mask):
        policies = family_table.POLICIES
        return {
            "member": member,
            "candidate": candidate,
            "shape": [1, 2, 3],
            "times": {
                f"{mode}, {p}": time for mode in ("graph", "XLA") for p in policies
            },
            "errors": {f"{at}, {p}": error for at in (0, 10**6) for p in policies},
            "mask": mask,
        }

    written = family_table.written(
        [
            record("ours", "ours", [1, 1.25, 2], 3e-8, True),
            record("ours", "peer", "it cannot", {"beyond": "NaN"}, False),
        ]
    )
    assert "| ours | 1 x 2 x 3 | 1.25 | 1.25 | 3.0e-08 | 3.0e-08 | passes |" in written
    assert "| peer |  | no | no | NaN | NaN | lost |" in written
    assert written.endswith("\n- peer: it cannot\n")


def test_the_results_are_of_the_whole_family():
    records = json.loads((RESULTS / "family.json").read_text("utf-8"))["family"]
    wanted = [name for member in MEMBERS for name in (member.name, member.peer)]
    assert [record["candidate"] for record in records] == wanted


@pytest.mark.tensorflow
@pytest.mark.long
def test_steps_of_attention_are_timed():
    from benchmarks import attention

    how = {"rounds": 2, "seconds": 0.001}
    found = attention.training("graph", (1, 4, attention.WIDTH), **how)
    assert list(found["ratios"]) == list(attention.WAYS)
    found = attention.decoding("graph", 1, 8, **how)
    assert list(found.get("ratios", attention.WAYS)) == list(attention.WAYS)
