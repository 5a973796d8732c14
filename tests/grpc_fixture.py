"""Fixture of a gRPC server: the official services over TensorFlow's C++ runtime.

    python tests/grpc_fixture.py FOLDER

Serves FOLDER/NAME/NUMBER on a free port of 127.0.0.1, which it prints, until standard
input ends. It runs in a process without Python's TensorFlow, and answers a request as
the source of TensorFlow Serving says.
"""

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "serving"))

import grpc
from cpp_runtime import Error, Runtime
from messages import import_messages, to_proto
from tensors import FIELDS

import_messages()

from tensorflow_serving.apis import (  # noqa: E402
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

load = functools.cache(Runtime)
CODES = {code.value[0]: code for code in grpc.StatusCode}


def told(method):
    """Tells the caller about an error by its code, which TensorFlow and gRPC share."""

    def answer(self, request, context):
        try:
            return method(self, request)
        except Error as error:
            context.abort(CODES[error.code], error.message)

    return answer


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, folder):
        self.folder = folder

    @told
    def Predict(self, request):
        path = find(self.folder, request.model_spec)
        runtime = load(path)
        name = request.model_spec.signature_name or "serving_default"
        if name not in runtime.signatures:
            message = f'Serving signature key "{name}" not found.'
            raise Error("FAILED_PRECONDITION", message)
        arrays = runtime.run(name, request.inputs, request.output_filter)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.signature_name = name
        response.model_spec.version.value = int(path.name)
        for key, array in arrays.items():
            fill(response.outputs[key], array)
        return response


class Models(model_service_pb2_grpc.ModelServiceServicer):
    def __init__(self, folder):
        self.folder = folder

    @told
    def GetModelStatus(self, request):
        path = find(self.folder, request.model_spec)
        response = get_model_status_pb2.GetModelStatusResponse()
        response.model_version_status.add(
            version=int(path.name),
            state=get_model_status_pb2.ModelVersionStatus.AVAILABLE,
        )
        return response


def find(folder, spec):
    """The folder of the version asked for, else of the newest."""
    wanted = spec.version.value if spec.HasField("version") else None
    numbers = [int(path.name) for path in (folder / spec.name).glob("[0-9]*")]
    if wanted in numbers or (wanted is None and numbers):
        return folder / spec.name / str(max(numbers) if wanted is None else wanted)
    wanted = (
        f"Latest({spec.name})" if wanted is None else f"Specific({spec.name}, {wanted})"
    )
    raise Error("NOT_FOUND", f"Servable not found for request: {wanted}")


def fill(proto, array):
    """Puts the values into the field of their type, as TensorFlow Serving does."""
    proto.CopyFrom(to_proto(array))
    if proto.tensor_content:
        proto.tensor_content = b""
        field = FIELDS[proto.dtype]
        values = array.view("uint16") if field == "half_val" else array
        getattr(proto, field).extend(values.ravel().tolist())


def main(folder):
    options = [("grpc.max_receive_message_length", 2**31 - 1)]
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Prediction(folder), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Models(folder), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None).wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
