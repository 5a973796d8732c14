"""Run a SavedModel in TensorFlow's C++ runtime, which is what TF Serving is built on.

    python examples/serving/cpp_runtime.py saved_models/text_classification
    python examples/serving/cpp_runtime.py saved_models/text_classification TEXT ...
    python examples/serving/cpp_runtime.py MODEL --libraries DIR

Loads the newest version, or the version given, prints its signatures, and runs its
warm-up requests and the texts. Python's TensorFlow is not imported, which can load
models that C++ cannot. `--libraries` takes libtensorflow_cc and libtensorflow_framework
of another version: unzip them from its wheel.
"""

import argparse
import os
import sys
from ctypes import c_char_p, c_void_p, string_at
from pathlib import Path

import cpp_library
import numpy as np
from cpp_library import Error
from records import WARMUP, read_warmup
from signatures import check_keys, make_protos, read_signatures


class Runtime:
    """Loads the SavedModel in the version folder `path`; `close` it, or use `with`.

    `signatures` has its signatures, with the keys, dtypes and shapes of each.
    `libraries` is a folder with another version of TensorFlow's two C++ libraries.
    `run` may be called from several threads, `close` after all of them.
    """

    def __init__(self, path, libraries=None):
        self._library = library = cpp_library.load(libraries)
        self.version = library.TF_Version().decode()
        self._graph = library.TF_NewGraph()
        options, buffer = library.TF_NewSessionOptions(), library.TF_NewBuffer()
        try:
            with cpp_library.checked(library) as status:
                self._session = library.TF_LoadSessionFromSavedModel(
                    *(options, None, os.fsencode(path), (c_char_p * 1)(b"serve"), 1),
                    *(self._graph, buffer, status),
                )
            meta = string_at(buffer.contents.data, buffer.contents.length)
        except Error as error:
            library.TF_DeleteGraph(self._graph)
            message = f"Cannot load {os.fspath(path)!r}: {error.message}"
            raise Error(error.code, message) from error
        finally:
            library.TF_DeleteSessionOptions(options)
            library.TF_DeleteBuffer(buffer)
        self.signatures = read_signatures(meta)

    def run(self, signature, inputs, outputs=None):
        """Returns `{key: array}` for all outputs, or for the keys in `outputs`.

        `inputs` has an array for each key, or a `TensorProto`, either of which the
        model sees as it is; or lists or numbers, which take on the input's dtype.
        """
        check_keys("signature", [signature], self.signatures)
        signature = self.signatures[signature]
        protos = make_protos(inputs, signature.inputs)
        check_keys("outputs", outputs or (), signature.outputs)
        feeds = self._find(signature.inputs.values())
        keys = list(outputs or signature.outputs)
        fetches = self._find(signature.outputs[key] for key in keys)

        library = self._library
        tensors, results = (c_void_p * len(feeds))(), (c_void_p * len(keys))()
        try:
            for i, proto in enumerate(protos):
                tensors[i] = cpp_library.new_tensor(library, proto)
            with cpp_library.checked(library) as status:
                library.TF_SessionRun(
                    *(self._session, None, feeds, tensors, len(feeds), fetches),
                    *(results, len(keys), None, 0, None, status),
                )
            arrays = [cpp_library.read_tensor(library, tensor) for tensor in results]
        finally:
            for tensor in filter(None, (*tensors, *results)):
                library.TF_DeleteTensor(tensor)
        return dict(zip(keys, arrays, strict=True))

    def _find(self, tensors):
        if self._session is None:
            raise Error("FAILED_PRECONDITION", "The runtime is closed.")
        found = []
        for tensor in tensors:
            name, _, index = tensor.name.partition(":")
            operation = self._library.TF_GraphOperationByName(
                self._graph, name.encode()
            )
            if operation is None:
                raise Error("NOT_FOUND", f"The model has no tensor {tensor.name!r}")
            found.append(cpp_library.Output(operation, int(index or 0)))
        return (cpp_library.Output * len(found))(*found)

    def close(self):
        session, self._session = self._session, None
        if session is None:
            return
        with cpp_library.checked(self._library) as status:
            self._library.TF_CloseSession(session, status)
        with cpp_library.checked(self._library) as status:
            self._library.TF_DeleteSession(session, status)
        self._library.TF_DeleteGraph(self._graph)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def newest_version(path):
    """Returns the version folder `path`, or the one with the largest number in it."""
    path = Path(path)
    if any((path / f"saved_model.{end}").exists() for end in ("pb", "pbtxt")):
        return path
    entries = path.iterdir() if path.is_dir() else []
    names = [entry.name for entry in entries if entry.is_dir()]
    numbers = [name for name in names if name.isascii() and name.isdigit()]
    if not numbers:
        raise Error(
            "NOT_FOUND",
            "The model must be a folder with saved_model.pb, or with folders 1, 2, ... "
            f"that have one. Received: {str(path)!r}",
        )
    return path / max(numbers, key=int)


# The command.


def main(argv=None):
    parser = make_parser()
    args = parser.parse_intermixed_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        path = newest_version(args.model)
        with Runtime(path, args.libraries) as runtime:
            print(f"{path}, in TensorFlow {runtime.version}")
            print_signatures(runtime.signatures)
            if args.texts:
                check_texts(parser, args.signature, runtime.signatures)
            if (path / WARMUP).exists():
                print(f"{run_warmup(runtime, path)} warm-up requests ran")
            if args.texts:
                print_outputs(runtime, args.signature, args.texts)
    except (Error, OSError, ImportError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a version's folder, or its parent")
    add("texts", metavar="TEXT", nargs="*", help="run these, and print each output")
    add("--libraries", metavar="DIR", type=Path, help="of another TensorFlow")
    add("--signature", default="serving_default", metavar="NAME", help="for the texts")
    return parser


def print_signatures(signatures):
    for name, signature in signatures.items():
        print(name)
        for kind, tensors in signature._asdict().items():
            for key, tensor in tensors.items():
                print(f"  {kind[:-1]:<7} {key}: {tensor.dtype} {tensor.shape}")


def run_warmup(runtime, path):
    """Returns how many ran, which is all of them, or raises."""
    try:
        logs = read_warmup(path)
    except ImportError as error:
        message = "Warm-up requests need `pip install tensorflow-serving-api`"
        raise Error("FAILED_PRECONDITION", f"{message}: {error}") from error
    except ValueError as error:
        raise Error("FAILED_PRECONDITION", f"Warm-up: {error}") from error
    for i, log in enumerate(logs):
        request = log.predict_log.request
        try:
            runtime.run(
                request.model_spec.signature_name or "serving_default",
                request.inputs,
                request.output_filter,
            )
        except Error as error:
            raise Error(error.code, f"Warm-up record {i}: {error.message}") from error
    return len(logs)


def check_texts(parser, name, signatures):
    inputs = signatures[name].inputs if name in signatures else {}
    if [tensor.dtype for tensor in inputs.values()] != ["string"]:
        parser.error(
            "TEXT needs a signature whose one input is a string. Received: "
            f"--signature {name}, and the model has {list(signatures)}"
        )


def print_outputs(runtime, name, texts):
    [(key, tensor)] = runtime.signatures[name].inputs.items()
    column = tensor.shape is not None and len(tensor.shape) == 2
    texts = [[text] for text in texts] if column else texts
    for output, array in runtime.run(name, {key: texts}).items():
        print(f"{output}: {printable(array)}")


def printable(array):
    if array.dtype == object:
        array = np.vectorize(lambda s: s.decode(errors="replace"), [object])(array)
    return array.tolist()


if __name__ == "__main__":
    sys.exit(main())
