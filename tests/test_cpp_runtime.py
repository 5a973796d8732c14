"""SavedModels in TensorFlow's C++ runtime: tensors, errors, memory and threads."""

import shutil
import sys

import cpp_models
import numpy as np
import pytest
from cpp import SERVING, ask, each_library

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("echo")
    cpp_models.write_echo(folder)
    return folder


@each_library
def test_numbers_of_every_dtype_and_rank(echo, libraries):
    printed = ask(
        """
        import ml_dtypes
        from messages import to_proto

        def parse(text):
            text = text.decode()
            if text in ("true", "false"):
                return text == "true"
            return complex(*map(float, text.strip("()").split(",")))

        runtime = load(sys.argv[1])
        for name in sys.argv[2].split(","):
            values = np.array([0, 1, 3, 100, 17, 5]).astype(name)
            if values.dtype.kind not in "bui":
                values /= np.array(8, name)
            if values.dtype.kind not in "bu":
                values[2] *= -1
            if values.dtype.kind == "c":
                values += 1j * values[::-1]
            for shape in ((6,), (2, 3), (1, 3, 2), (1, 2, 1, 3, 1), (0,), (3, 0, 2)):
                x = values[: np.prod(shape, dtype=int)].reshape(shape)
                for given in (x, to_proto(x), x.tolist()):
                    if 0 in shape and given is not x:
                        continue  # nested lists don't tell all their sizes
                    got = runtime.run(name, {"x": given})
                    assert got["same"].dtype == x.dtype == name, got
                    assert got["shape"].tolist() == list(shape), got
                    np.testing.assert_array_equal(got["same"], x)
                    assert got["text"].shape == shape
                    read = [parse(text) for text in got["text"].ravel()]
                    np.testing.assert_allclose(read, x.ravel().astype(complex), 1e-6)
            for scalar in (values[3], values[3:4].reshape(()), values[3].item()):
                got = runtime.run(name, {"x": scalar})
                assert got["same"].shape == () == got["text"].shape
                assert got["same"] == values[3] and parse(got["text"][()]) == values[3]
            # Neither the order of bytes nor that of axes is the machine's.
            if name != "bfloat16":
                other = values.astype(values.dtype.newbyteorder()).reshape(2, 3).T
                got = runtime.run(name, {"x": other})["same"]
                np.testing.assert_array_equal(got, values.reshape(2, 3).T)
            print(name)
        """,
        *(echo, ",".join(cpp_models.DTYPES)),
        libraries=libraries,
    )
    assert printed.split() == list(cpp_models.DTYPES)


@each_library
def test_strings(echo, libraries):
    ask(
        """
        runtime = load(sys.argv[1])
        long = bytes(range(256)) * 4096
        strings = [b"", b"a", b"\\0", b"a\\0b\\0", b"\\xff", b"x" * 22, b"x" * 23, long]
        for shape in ((8,), (2, 4), (2, 1, 2, 2), (0,), (0, 3)):
            x = np.array(strings, object)[: np.prod(shape)].reshape(shape)
            got = runtime.run("string", {"x": x})
            assert got["same"].shape == got["length"].shape == shape
            assert got["same"].tolist() == x.tolist()
            assert got["more"].ravel().tolist() == [s + b"!" for s in x.ravel()]
            assert got["length"].ravel().tolist() == [len(s) for s in x.ravel()]
            assert got["same"].dtype == object
        for given, expected in (
            (long, long),
            ("\u8d28\u91cf", "\u8d28\u91cf".encode()),
            (["\u8d28\u91cf", b"b"], ["\u8d28\u91cf".encode(), b"b"]),
            (np.array([["ab", "c"]]), [[b"ab", b"c"]]),
            (np.array([b"ab", b"c"]), [b"ab", b"c"]),
            (np.array("ab", object), b"ab"),
            ([], []),
        ):
            assert runtime.run("string", {"x": given})["same"].tolist() == expected
        """,
        echo,
        libraries=libraries,
    )


@each_library
def test_signatures_and_keys(echo, libraries):
    ask(
        """
        runtime = load(sys.argv[1])
        names = [*sys.argv[2].split(","), "string", "two", "nothing"]
        assert list(runtime.signatures) == sorted(names)
        two = runtime.signatures["two"]
        assert {key: tensor[1:] for key, tensor in two.inputs.items()} == {
            "a": ("float32", (None, 2)),
            "b": ("float32", ()),
        }
        assert {key: tensor[1:] for key, tensor in two.outputs.items()} == {
            "difference": ("float32", (None, 2)),
            "quotient": ("float32", (None, 2)),
        }
        assert runtime.signatures["string"].inputs["x"][1:] == ("string", None)
        assert runtime.signatures["bfloat16"].outputs["same"].dtype == "bfloat16"

        inputs = {"b": 4, "a": [[8, 2]]}
        got = runtime.run("two", inputs)
        assert {key: value.tolist() for key, value in got.items()} == {
            "difference": [[4, -2]],
            "quotient": [[2, 0.5]],
        }
        got = runtime.run("two", inputs, ["quotient", "difference"])
        assert list(got) == ["quotient", "difference"]
        assert got["quotient"].tolist() == [[2, 0.5]]
        assert list(runtime.run("two", inputs, ["quotient"])) == ["quotient"]
        assert list(runtime.run("two", inputs, [])) == ["difference", "quotient"]
        assert runtime.run("nothing", {})["seven"] == 7
        """,
        *(echo, ",".join(cpp_models.DTYPES)),
        libraries=libraries,
    )


@each_library
def test_errors(echo, libraries):
    ask(
        """
        import re
        from messages import to_proto

        runtime = load(sys.argv[1])
        broken, resized = to_proto(np.ones(2, "float32")), to_proto(["a"])
        broken.tensor_content = b"12345"
        resized.tensor_shape.dim[0].size = -5
        a = [[1, 2]]
        for name, inputs, outputs, message in (
            ("three", {}, None, "`signature` must be of .*'two'.*'three'"),
            ("two", {"a": a}, None, "must also have .'b'"),
            ("two", {"a": a, "c": 1}, None, "`inputs` must be of .'a', 'b'.*'c'"),
            ("two", {"a": a, "b": 1}, ["sum"], "of .'difference', 'quotient'.*'sum'"),
            ("two", {"a": a, "b": "1"}, None, "'b'.*float32.*'1'"),
            ("two", {"a": [[1, 2], [3]], "b": 1}, None, "'a'"),
            ("two", {"a": a, "b": np.array(1)}, None, "float.*int64"),
            ("two", {"a": [[1, 2, 3]], "b": to_proto(["s"])}, None, "float.*string"),
            ("int32", {"x": [1.5]}, None, "'x'.*int32.*1.5"),
            ("int32", {"x": 2**31}, None, "'x'"),
            ("uint8", {"x": -1}, None, "'x'"),
            ("bool", {"x": 2}, None, "'x'.*bool.*2"),
            ("int32", {"x": np.array(0, "datetime64[s]")}, None, "'x'.*datetime64"),
            ("string", {"x": [1]}, None, "'x'.*str or bytes.*1"),
            ("string", {"x": [["a"], ["b", "c"]]}, None, "'x'"),
            ("float32", {"x": broken}, None, "(?i)tensor"),
            ("string", {"x": resized}, None, "(?i)tensor"),
        ):
            error = error_of(runtime.run, name, inputs, outputs)
            assert error.code == 3, error
            assert re.search(message, error.message), (message, error)
            assert str(error) == f"INVALID_ARGUMENT: {error.message}"
        # It goes on as if nothing had been.
        assert runtime.run("two", {"a": a, "b": 1})["quotient"].tolist() == a

        runtime.close()
        runtime.close()
        assert error_of(runtime.run, "nothing", {}).code == 9
        error = error_of(load, sys.argv[1] + "/none")
        assert error.code == 5 and "/none" in error.message
        error = error_of(Runtime, sys.argv[1], "/none")
        assert error.code == 9 and "one TensorFlow" in error.message
        """,
        echo,
        libraries=libraries,
    )


def test_libraries_that_cannot_be_used(tmp_path):
    ask(
        """
        import cpp_library

        folder = Path(sys.argv[1])
        error = error_of(cpp_library.load, folder)
        assert error.code == 5 and cpp_library.NAME in error.message, error
        (folder / cpp_library.NAME).write_text("no library")
        error = error_of(cpp_library.load, folder)
        assert error.code == 9 and str(folder) in error.message, error
        """,
        tmp_path,
    )


def test_messages(monkeypatch, tf):
    monkeypatch.syspath_prepend(SERVING)
    import messages

    messages.import_messages()
    assert sys.modules["tensorflow"] is tf
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="tensorflow, which is not installed: `pip"):
        messages.import_messages()


def test_not_beside_tensorflow_in_python(monkeypatch, tf):
    monkeypatch.syspath_prepend(SERVING)
    import cpp_library

    with pytest.raises(
        cpp_library.Error, match=r"FAILED_PRECONDITION: .* none in Python"
    ):
        cpp_library.load()


@each_library
def test_table_fills_itself_from_its_assets_in_another_place(tmp_path, libraries):
    words = tmp_path / "words.txt"
    words.write_text("one\ntwo\n\u8d28\n", encoding="utf-8")
    cpp_models.write_table(tmp_path / "table", words)
    words.unlink()
    ask(
        """
        with load(sys.argv[1]) as runtime:
            got = runtime.run("find", {"word": ["two", "\u8d28", "", "one"]})
            assert got["line"].tolist() == [1, 2, -1, 0]
        """,
        shutil.move(tmp_path / "table", tmp_path / "moved \u8d28"),
        libraries=libraries,
    )


@each_library
def test_xla_is_off_as_in_a_server(tf, tmp_path, libraries):
    cpp_models.write_compiled(tmp_path)
    served = tf.saved_model.load(str(tmp_path)).signatures
    np.testing.assert_array_equal(served["compiled"](x=tf.constant([3.0]))["y"], [6])
    ask(
        """
        runtime = load(sys.argv[1])
        for _ in range(2):
            error = error_of(runtime.run, "compiled", {"x": [3]})
            assert error.code == 13, error
            assert "XLA compilation disabled" in error.message, error
        assert runtime.run("plain", {"x": [3]})["y"].tolist() == [6]
        """,
        tmp_path,
        libraries=libraries,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what memory is in use")
def test_memory_does_not_grow(echo):
    ask(
        """
        runtime = load(sys.argv[1])
        text, numbers = b"x" * 50_000, np.ones((6_250, 2), "float32")

        def run(times):
            for _ in range(times):
                runtime.run("string", {"x": text})
                runtime.run("two", {"a": numbers, "b": 1})
                error_of(runtime.run, "two", {"a": numbers, "b": np.array("b")})
            # Not the peak, which a process has from the one that started it.
            return int(Path("/proc/self/statm").read_text().split()[1])

        # Holding on to one of the tensors would take 100 MB, a quarter as much again.
        before = run(200)
        assert run(2000) < 1.05 * before
        """,
        echo,
    )


def test_threads(echo):
    ask(
        """
        from concurrent.futures import ThreadPoolExecutor

        runtime = load(sys.argv[1])

        def check(thread):
            for i in range(30):
                text = b"%d " % thread * (i + 1)
                got = runtime.run("string", {"x": [text]})
                assert got["same"].tolist() == [text] and got["more"] == [text + b"!"]
                a = np.full((i, 2), thread, "float32")
                got = runtime.run("two", {"a": a, "b": i + 1})
                np.testing.assert_array_equal(got["difference"], a - (i + 1))
                assert error_of(runtime.run, "two", {"a": a, "b": "b"}).code == 3

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(check, range(8)))
        """,
        echo,
    )
