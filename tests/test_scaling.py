"""How rates are scaled: beside transformers, the papers, and what is refused."""

import math

import numpy as np
import pytest

from keras_pe.scaling import check_scaling, rotary_rates, scaled_rates

LLAMA = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}
DEEP = {
    **YARN,
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 0.707,
}
PLAIN = {
    **YARN,
    "factor": 16.0,
    "original_max_position_embeddings": 2048,
    "attention_factor": 1.5,
    "truncate": False,
}
LINEAR = {"type": "linear", "factor": 4.0}

# What `ROPE_INIT_FUNCTIONS` of transformers 5.24.0 gives on torch 2.13.0, in float32,
# for a config of that scaling, `rope_theta` and head width: the attention factor, and
# the rates of the first and the second pair, those a quarter, half and three quarters
# of the way, and the last.
TRANSFORMERS = [
    (LINEAR, 1e4, 16, 1.0, [0.25, 0.07905694097280502, 0.02500000037252903,
     0.0024999999441206455, 0.0002500000118743628, 7.905694656074047e-05]),
    (LINEAR, 5e5, 128, 1.0, [0.25, 0.20365430414676666, 0.009401507675647736,
     0.0003535533614922315, 1.3295739336172119e-05, 6.137851755738666e-07]),
    (LLAMA, 1e4, 16, 1.0, [1.0, 0.3162277638912201, 0.10000000149011612,
     0.009999999776482582, 0.00021360757818911225, 3.9528473280370235e-05]),
    (LLAMA, 5e5, 128, 1.0, [1.0, 0.8146172165870667, 0.03760603070259094,
     0.0005248460220173001, 6.647869668086059e-06, 3.068925877869333e-07]),
    (YARN, 1e4, 16, 1.138629436111989, [1.0, 0.3162277638912201, 0.10000000149011612,
     0.009999999776482582, 0.0006250000442378223, 0.00013834965648129582]),
    (YARN, 5e5, 128, 1.138629436111989, [1.0, 0.8146172165870667, 0.03760603070259094,
     0.0009428090415894985, 1.3295739336172119e-05, 6.137851755738666e-07]),
    (DEEP, 1e4, 16, 1.0857263992561355, [1.0, 0.3162277638912201, 0.10000000149011612,
     0.005124999675899744, 2.499999936844688e-05, 7.905694474175107e-06]),
    (DEEP, 5e5, 128, 1.0857263992561355, [1.0, 0.8146172165870667, 0.033532045781612396,
     3.535533687681891e-05, 1.3295739336172119e-06, 6.137852182064307e-08]),
    (PLAIN, 1e4, 16, 1.5, [1.0, 0.3162277638912201, 0.10000000149011612,
     0.003821214661002159, 6.25000029685907e-05, 1.9764236640185118e-05]),
    (PLAIN, 5e5, 128, 1.5, [1.0, 0.8146172165870667, 0.02784452959895134,
     8.838834037305787e-05, 3.3239348340430297e-06, 1.5344629389346665e-07]),
    # Of an original length so short, or so long, that the channels end before.
    ({**YARN, "factor": 2.0, "original_max_position_embeddings": 6}, 1e4, 16,
     1.0693147180559945, [1.0, 0.15811388194561005, 0.05000000074505806,
     0.004999999888241291, 0.0005000000237487257, 0.00015811389312148094]),
    ({**YARN, "factor": 2.0, "original_max_position_embeddings": 10**12}, 1e4, 16,
     1.0693147180559945, [0.5, 0.15811388194561005, 0.05000000074505806,
     0.004999999888241291, 0.0005000000237487257, 0.00015811389312148094]),
]  # fmt: skip


@pytest.mark.parametrize(("scaling", "theta", "dim", "factor", "rates"), TRANSFORMERS)
def test_rates_are_those_of_transformers(scaling, theta, dim, factor, rates):
    found = scaled_rates(dim, theta, check_scaling(scaling))
    half = dim // 2
    picked = found.rates[[0, 1, half // 4, half // 2, 3 * half // 4, half - 1]]
    np.testing.assert_allclose(picked, rates, rtol=1e-6)
    assert found.attention_factor == pytest.approx(factor, rel=1e-12)
    assert found.rates.dtype == "float64" and found.rates.shape == (half,)


def test_rates_are_the_formula():
    expected = [500.0 ** (-2 * i / 6) for i in range(3)]
    np.testing.assert_allclose(rotary_rates(6, 500.0), expected, rtol=1e-15)
    found = scaled_rates(6, 500.0, check_scaling({"rope_type": "default"}))
    np.testing.assert_array_equal(found.rates, rotary_rates(6, 500.0))
    assert found.attention_factor == 1


def test_llama3_in_loops():
    """The three cases of the code of Llama 3.1, as it is written there."""
    plain = rotary_rates(64, 5e5)
    found = scaled_rates(64, 5e5, check_scaling(LLAMA)).rates
    cases = set()
    for rate, scaled in zip(plain, found, strict=True):
        wavelength = 2 * math.pi / rate
        if wavelength < 8192 / 4:
            expected, case = rate, "fast"
        elif wavelength > 8192 / 1:
            expected, case = rate / 8, "slow"
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            expected, case = (1 - smooth) * rate / 8 + smooth * rate, "between"
        cases.add(case)
        assert scaled == pytest.approx(expected, rel=1e-12)
    assert cases == {"fast", "slow", "between"}


def test_llama3_without_a_band_between():
    """As in the config of Llama 4 Scout: some rates are kept, the others slowed."""
    plain = rotary_rates(64, 5e5)
    scaling = check_scaling({**LLAMA, "low_freq_factor": 1.0, "high_freq_factor": 1.0})
    found = scaled_rates(64, 5e5, scaling).rates
    slow = 2 * math.pi / plain > 8192
    assert 0 < slow.sum() < 32
    np.testing.assert_array_equal(found, np.where(slow, plain / 8, plain))


def test_yarn_keeps_the_fast_and_slows_the_slow_ones():
    found = scaled_rates(128, 1e4, check_scaling(YARN)).rates / rotary_rates(128, 1e4)
    assert found[0] == 1 and found[-1] == pytest.approx(1 / 4)
    assert (np.diff(found) <= 0).all()


def test_a_factor_of_one_changes_nothing():
    for scaling in (LINEAR, LLAMA, YARN):
        checked = check_scaling({**scaling, "factor": 1})
        found = scaled_rates(64, 1e4, checked)
        np.testing.assert_allclose(found.rates, rotary_rates(64, 1e4), rtol=1e-15)
        assert found.attention_factor == 1


def test_numbers_of_numpy_are_taken_as_python_s():
    checked = check_scaling({**YARN, "factor": np.int64(4), "truncate": np.True_})
    assert [type(checked[key]) for key in ("factor", "truncate")] == [int, bool]


def test_older_configs_say_type():
    assert check_scaling(LINEAR) == {"rope_type": "linear", "factor": 4.0}
    both = {**LINEAR, "rope_type": "linear", "mscale": None}
    assert check_scaling(both) == {"rope_type": "linear", "factor": 4.0}
    assert LINEAR == {"type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        (None, "must be a dict. Received: scaling=None"),
        ("linear", "must be a dict"),
        ({}, "`rope_type` one of 'default', 'linear', 'llama3', 'yarn'. Received"),
        ({"factor": 2.0}, "`rope_type` one of"),
        ({"rope_type": "longrope", "factor": 2.0}, "`rope_type` one of"),
        ({"rope_type": ["linear"], "factor": 2.0}, "`rope_type` one of"),
        ({"rope_type": "linear", "type": "yarn", "factor": 2.0}, "`rope_type` one of"),
        ({"rope_type": np.array(["linear", "b"]), "factor": 2.0}, "`rope_type` one of"),
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic': its rows would depend"),
        ({"type": "dynamic", "factor": 2.0}, "'dynamic': its rows would depend"),
        ({"rope_type": "linear"}, "lacks factor. It must have factor. Received"),
        (
            {**LINEAR, "beta_fast": 3},
            "has no use for beta_fast. It must have factor",
        ),
        (
            {"rope_type": "default", "factor": 2.0},
            "It must have no other key. Received",
        ),
        (
            {k: v for k, v in LLAMA.items() if "low" not in k},
            "lacks low_freq_factor. It",
        ),
        (
            {**YARN, "short_factor": 3},
            "no use for short_factor. .* may have .*truncate",
        ),
        (
            {"rope_type": "linear", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
            "'linear' lacks factor, has no use for rope_theta .which is for `max_wave"
            "length`., has no use for partial_rotary_factor .which is for `rotary_dim`",
        ),
        ({**LINEAR, "factor": "2"}, "a number in 1..1e.18 as its `factor`"),
        ({**LINEAR, "factor": True}, "a number in 1..1e.18 as its `factor`"),
        ({**LINEAR, "factor": 0.5}, "a number in 1..1e.18 as its `factor`"),
        ({**LINEAR, "factor": math.nan}, "a number in 1..1e.18 as its `factor`"),
        ({**YARN, "factor": math.inf}, "a number in 1..1e.18 as its `factor`"),
        ({**YARN, "beta_slow": 0}, "a number in 1e-18..1e.18 as its `beta_slow`"),
        ({**YARN, "truncate": 1}, "True or False as its `truncate`"),
        ({**LINEAR, "factor": 10**400}, "a number in 1..1e.18 as its `factor`"),
        ({**YARN, "attention_factor": 1e300}, "1e-18..1e.18 as its `attention_factor`"),
        ({**LLAMA, "low_freq_factor": 4.5}, "`low_freq_factor` up to its `high_freq"),
    ],
    ids=str,
)
def test_bad_scalings_are_refused(scaling, message):
    with pytest.raises(ValueError, match=f"`scaling` .*{message}"):
        check_scaling(scaling)
