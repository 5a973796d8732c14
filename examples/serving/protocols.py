"""Asks a TensorFlow Serving server about a batch of texts, by REST or by gRPC."""

import base64
import http.client
import ipaddress
import json
from urllib.parse import quote, urlsplit


class ServerError(Exception):
    """No answer that can be used; told in one line, without a traceback."""


def predict_rest(
    texts, url, model, input_name="text", signature=None, version=None, timeout=10.0
):
    """Returns `{output name: value}` for each text, asking `http://host:8501`.

    Without a signature or a version the server takes `serving_default` and the newest.
    An output that is the only one comes without its name: it is named `predictions`.
    Strings are `str`, or `bytes` if the output's name ends with `_bytes`.
    """
    import requests

    body = {"instances": [{input_name: text} for text in clean(texts)]}
    if signature is not None:
        body["signature_name"] = signature
    versions = "" if version is None else f"/versions/{version}"
    names = ("http", "https", "all") if is_local(urlsplit(url).hostname) else ()
    try:
        answer = requests.post(
            f"{url.rstrip('/')}/v1/models/{quote(model, safe='')}{versions}:predict",
            json=body,
            timeout=timeout,
            allow_redirects=False,
            # A proxy of the environment would look for 127.0.0.1 on its own machine.
            proxies={name: None for name in names},
        )
    # A host name that cannot be one is the latter.
    except (requests.RequestException, ValueError) as error:
        cause = error
        while cause.__cause__ or cause.__context__:
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, TimeoutError):
            raise ServerError(no_answer(url, timeout)) from error
        reason = getattr(cause, "strerror", None) or cause
        if type(cause) is http.client.BadStatusLine:  # which is the answer itself
            reason = "what answers there does not speak HTTP"
        raise ServerError(f"Cannot reach a server at {url}: {line(reason)}") from error
    return read_rest(answer.status_code, answer.content, len(texts), url)


def read_rest(status, content, count, url):
    """The rows of an answer, which has to be one of TensorFlow Serving."""
    content = content.decode("utf-8", "replace")
    try:
        answer = json.loads(content)
        rows = answer.get("predictions") if status == 200 else None
        if isinstance(rows, list) and len(rows) == count:
            return [read_row(row) for row in rows]
        reason = ": " + answer["error"]
    except (AttributeError, ValueError, TypeError, LookupError, RecursionError):
        reason = f", and not as TensorFlow Serving does: {content[:200]!r}"
    raise ServerError(f"{url} answered {status}{line(reason)}")


def read_row(row):
    if isinstance(row, dict) and list(row) != ["b64"]:
        return {name: read_value(value) for name, value in row.items()}
    return {"predictions": read_value(row)}


def read_value(value):
    if isinstance(value, list):
        return [read_value(item) for item in value]
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def predict_grpc(
    texts, target, model, input_name="text", signature=None, version=None, timeout=10.0
):
    """Returns `{output name: value}` for each text, asking `host:8500`.

    As `predict_rest`, except that an output which is the only one has its name.
    """
    import grpc
    from messages import import_messages, to_proto

    import_messages()
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    if signature is not None:
        request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    request.inputs[input_name].CopyFrom(to_proto(clean(texts)))
    options = {
        # 4 MB is the default, less than a batch of large texts.
        "grpc.max_send_message_length": -1,
        "grpc.max_receive_message_length": -1,
        "grpc.enable_http_proxy": int(not is_local(urlsplit(f"//{target}").hostname)),
    }
    with grpc.insecure_channel(target, list(options.items())) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            response = stub.Predict(request, timeout=timeout)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ServerError(no_answer(target, timeout)) from error
            reason = f"{error.code().name}: {line(error.details())}"
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                reason = f"Cannot reach a server at {target}: {reason}"
                raise ServerError(reason) from error
            raise ServerError(f"{target} answered {reason}") from error
    return read_grpc(response, len(texts), target)


def read_grpc(response, count, target):
    """The rows of an answer, in which each output needs one for each text."""
    from tensors import from_proto

    columns = {}
    for name, proto in sorted(response.outputs.items()):
        try:
            column = from_proto(proto)
            if column.shape[:1] != (count,):
                raise ValueError(f"{count} rows expected. Received: {column.shape}")
        except ValueError as error:
            raise ServerError(f"{target} answered {name!r} wrongly: {error}") from error
        columns[name] = read_strings(column.tolist(), name.endswith("_bytes"))
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def read_strings(value, keep):
    if isinstance(value, list):
        return [read_strings(item, keep) for item in value]
    is_text = isinstance(value, bytes) and not keep
    return value.decode("utf-8", "replace") if is_text else value


# What both share.


def clean(texts):
    """Puts U+FFFD for what UTF-8 cannot have: halves of surrogate pairs."""
    return [
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for text in texts
    ]


def is_local(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def no_answer(server, timeout):
    return f"{server} did not answer within {timeout:g} seconds"


def line(reason):
    """Text of a server in one printable line that is not too long."""
    reason = "".join(c if c.isprintable() else " " for c in str(reason))
    return reason if len(reason) < 400 else reason[:400] + " ..."
