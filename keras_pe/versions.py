"""The folders BASE/1, BASE/2 ... that TensorFlow Serving takes its models from."""

import contextlib
import os
import tempfile
from pathlib import Path

LARGEST = 2**63 - 1  # TensorFlow Serving's version numbers are int64


@contextlib.contextmanager
def new_version(base_dir):
    """Give a folder to write in, which becomes the next version if nothing fails.

    It has a name that is no number while it is written, since TensorFlow Serving may
    load a numbered folder at any time.

    Args:
        base_dir: Folder of the versions; made if it is not there.

    Yields:
        A pair: the folder to write the files into, not made yet, and a function that
        moves it into place and returns where it is. Files that are not moved are
        removed; if anything fails, so are the folders that were made for `base_dir`.

    Raises:
        ValueError: If `base_dir` is no folder, and none can be made there.
    """
    try:
        # Not "", which would be the folder that the process happens to be in.
        base = Path(base_dir if base_dir != "" else None)
        missing = [path for path in (base, *base.parents) if not path.exists()]
        base.mkdir(parents=True, exist_ok=True)
    except (TypeError, ValueError, FileExistsError, NotADirectoryError) as error:
        raise ValueError(
            "`base_dir` must be a folder, or a path where one can be made. "
            f"Received: base_dir={base_dir!r} ({error})"
        ) from error
    try:
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=base) as aside:
            written = Path(aside) / "model"
            yield written, lambda: _move(written, base)
    except BaseException:
        with contextlib.suppress(OSError):  # not empty, or gone: no longer ours
            for path in missing:
                path.rmdir()
        raise


def _move(written, base):
    while True:
        number = 1 + max(version_numbers(base), default=0)
        if number > LARGEST:
            raise ValueError(
                f"`base_dir` must have a number left, of at most {LARGEST}. "
                f"Received: base_dir={str(base)!r}, which has that one"
            )
        version = base / str(number)
        try:
            # Moves over an empty folder at most, and `version` is not even that.
            os.rename(written, version)
            return version
        except OSError:
            # Another export may just have taken the number.
            if not os.path.lexists(version):
                raise


def version_numbers(base):
    """Return the numbers among the names in a folder, in no order."""
    names = os.listdir(base)
    numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
    return [number for number in numbers if number <= LARGEST]
