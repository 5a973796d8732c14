"""What every test needs: a known seed, and the settings of Keras as they were."""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "Agg")  # no window, where there is a screen
# What Hypothesis reads off the source it keeps: in the clone, and out of git's sight.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY",
    str(Path(__file__).parents[1] / ".venv" / "hypothesis"),
)

import classifier
import keras
import pytest

pytest.register_assert_rewrite("contract", "generated", "ladder")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Before Hypothesis, which looks for the profile that it is asked for."""
    import generated

    generated.configure(config)


def pytest_terminal_summary(terminalreporter, config):
    import generated

    reports = [report for some in terminalreporter.stats.values() for report in some]
    if lines := generated.summary(config, reports):
        terminalreporter.section("generated examples")
        terminalreporter.write_line("\n".join(lines))


def pytest_collection_modifyitems(config, items):
    """Deselect what is of JAX or torch alone where Keras is on another backend."""
    names = {"jax", "torch"} - {keras.config.backend()}
    others = [item for item in items if any(map(item.get_closest_marker, names))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(autouse=True)
def settings_of_keras():
    policy, floatx = keras.config.dtype_policy(), keras.config.floatx()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(policy)


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(autouse=True)
def away_from_the_clone(empty_folder, monkeypatch):
    """Results in the clone are nothing to a test, and none is written there."""
    monkeypatch.chdir(empty_folder)
    yield
    assert os.listdir(empty_folder) == []


@pytest.fixture
def tf():
    """TensorFlow, which the tests of other backends run without."""
    import tensorflow

    return tensorflow


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Texts of two classes that differ in the order of two words alone."""
    return classifier.write_texts(
        tmp_path_factory.mktemp("data"),
        up=classifier.ordered_texts("alpha", "beta", seed=1),
        down=classifier.ordered_texts("beta", "alpha", seed=2),
    )


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """The folder of one run of the example, with its `out` and `saved`."""
    folder = tmp_path_factory.mktemp("trained")
    classifier.train(data, folder, "--epochs", "8")
    return folder
