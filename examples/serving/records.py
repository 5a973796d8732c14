"""Read the warm-up requests that lie beside a SavedModel."""

import struct
from pathlib import Path

from messages import import_messages

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")
MOST = 1000  # TF Serving refuses a model with more


def read_warmup(path):
    """Returns the records of version folder `path`, each a `PredictionLog`.

    Raises `ValueError` for what keeps TF Serving from making the model available: a
    damaged file, another message, too many records.
    """
    import_messages()
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    logs = []
    for i, record in enumerate(read_records(Path(path) / WARMUP)):
        if i == MOST:
            raise ValueError(f"A model must have at most {MOST} warm-up records.")
        try:
            log = prediction_log_pb2.PredictionLog.FromString(record)
        except DecodeError as error:
            raise ValueError(f"Record {i} must be a PredictionLog: {error}") from error
        if log.WhichOneof("log_type") != "predict_log":
            raise ValueError(
                f"Record {i} must be a PredictionLog with `predict_log`. Received: "
                f"{log.WhichOneof('log_type') or 'none of its logs'}"
            )
        logs.append(log)
    return logs


def read_records(path):
    """Yields the records of a TFRecord file, in bytes."""
    data = memoryview(Path(path).read_bytes())
    while data:
        size = _checked(data, 8, path)
        [length] = struct.unpack("<Q", size)
        yield bytes(_checked(data[12:], length, path))
        data = data[16 + length :]


def _checked(data, length, path):
    """Returns the first bytes, if the sum that follows them is theirs."""
    if len(data) < length + 4:
        raise ValueError(f"A record is cut off: {str(path)!r}")
    [crc] = struct.unpack("<I", data[length : length + 4])
    if crc != masked_crc(data[:length]):
        raise ValueError(f"A record is damaged: {str(path)!r}")
    return data[:length]


def masked_crc(data):
    """Returns the CRC-32C as TFRecord files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _entry(crc):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_TABLE = [_entry(byte) for byte in range(256)]
