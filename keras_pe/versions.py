"""The folders BASE/1, BASE/2 ... that TensorFlow Serving takes its models from."""

import contextlib
import glob
import os
import platform
import shutil
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

LARGEST = 2**63 - 1  # TensorFlow Serving's version numbers are int64
# Of this machine: of locks on a shared drive, others may know nothing.
PREFIX = f".exporting-{platform.node()}-"
INSIDE = "model"  # all that such a folder has


@contextlib.contextmanager
def new_version(base_dir):
    """Give a folder to write in, which becomes the next version if nothing fails.

    It has a name that is no number while it is written, since TensorFlow Serving may
    load a numbered folder at any time. What killed exports have left is removed.

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
        _remove_leftovers(base)
        with _aside(base) as aside:
            written = aside / INSIDE
            yield written, lambda: _move(written, base)
    except BaseException:
        with contextlib.suppress(OSError):  # not empty, or gone: no longer ours
            for path in missing:
                path.rmdir()
        raise


@contextlib.contextmanager
def _aside(base):
    """Make a folder that is locked until it is removed."""
    while True:
        aside = tempfile.TemporaryDirectory(prefix=PREFIX, dir=base)
        with _locked(aside.name, wait=True), aside:
            # Another export may have removed it as long as it was not locked.
            if os.path.lexists(aside.name):
                yield Path(aside.name)
                return


def _remove_leftovers(base):
    for aside in base.glob(f"{glob.escape(PREFIX)}*"):
        # A lock ends with its process: what can be locked is nobody's.
        with _locked(aside, wait=False) as locked, contextlib.suppress(OSError):
            if locked and set(os.listdir(aside)) <= {INSIDE}:
                shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder, wait):
    """Lock a folder, and give whether that could be done."""
    with contextlib.ExitStack() as stack:
        locked = False
        with contextlib.suppress(OSError):  # locked by another, gone, or no such thing
            if fcntl is not None:
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                locked = True
        yield locked


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
