"""The state of a training in a file, with which the same command goes on."""

import hashlib
import io
import json
import os
import time
from pathlib import Path

from options import InputError
from results import aside, versions, writing

# Around the file, so that it is known as ours with either end damaged.
MARK = b"\x93keras_pe backup\n"
DIGITS = 64  # of the digest after the first


class Backup:
    """The last whole epoch of a training, in one file that the next one replaces.

    keras.callbacks.BackupAndRestore writes its weights over those of the epoch before,
    and the number of the epoch into a second file: killed in between, the two do not
    belong together. It also keeps no history, and nothing of EarlyStopping.

    Args:
        folder: Where the file is.
        run: What has to be the same for going on, as a dict that JSON can hold.
    """

    def __init__(self, folder, run):
        self.path = folder / ".training.backup"
        self.run = json.loads(json.dumps(run))
        self.start = time.monotonic()
        self.seconds = 0.0  # taken by the processes before this one

    def save(self, state, arrays):
        import numpy as np

        state = json.dumps({"run": self.run, "seconds": self.elapsed(), **state})
        content = io.BytesIO()
        np.savez(content, state, *arrays)
        content = packed(content.getvalue())
        with writing(self.path), aside(self.path.parent) as folder:
            (folder / "backup").write_bytes(content)
            os.replace(folder / "backup", self.path)

    def load(self):
        """Return state and arrays, or None; say so if there are some of no use.

        A file of others is refused: it would be replaced.
        """
        import numpy as np

        if not os.path.lexists(self.path):
            return None
        content = self.path.read_bytes() if self.path.is_file() else None
        if content is None or not is_ours(content):
            raise InputError(
                f"`--out` must not hold files of others: {str(self.path)!r} is not a "
                f"backup of a training. Received: {str(self.path.parent)!r}"
            )
        arrays = content[len(MARK) + DIGITS : -len(MARK)]
        if content != packed(arrays):
            return self._refuse("is damaged")
        with np.load(io.BytesIO(arrays)) as file:
            state, *arrays = (file[f"arr_{i}"] for i in range(len(file.files)))
        state = json.loads(str(state))
        run = state.pop("run")
        other = [name for name in self.run if run.get(name) != self.run[name]]
        if other:
            return self._refuse(f"is of a run with other {', '.join(other)}")
        self.seconds = state.pop("seconds")
        return state, arrays

    def _refuse(self, why):
        print(f"The backup {self.path} {why}: training starts anew.")

    def elapsed(self):
        """Return the seconds taken since training began."""
        return self.seconds + time.monotonic() - self.start

    def remove(self):
        self.path.unlink(missing_ok=True)


def packed(content):
    return MARK + digest(content).encode() + content + MARK


def is_ours(content):
    """Whether this is a backup, or what damage may have made of one."""
    cut = MARK.startswith(content)
    return cut or content.startswith(MARK) or content.endswith(MARK)


def describe_run(name, args, model, texts, vocabulary):
    """Return what decides the result of a training, long things as digests."""
    import keras_pe

    # They say where things are, not what.
    places = ("data", "out", "saved_models")
    return {
        "example": name,
        "options": {k: v for k, v in vars(args).items() if k not in places},
        "number of devices": model.distribute_strategy.num_replicas_in_sync,
        "texts": digest(json.dumps(texts).encode()),
        "vocabulary": digest(json.dumps(vocabulary).encode()),
        "versions": versions(),
        "code": digest(
            *(
                path.read_bytes()
                for module in (__file__, keras_pe.__file__)
                for path in sorted(Path(module).parent.glob("*.py"))
            )
        ),
    }


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()
