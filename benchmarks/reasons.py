"""Why a candidate could not, in a few words."""

import re

_ERROR = re.compile(r"^\W*(\w+(?:Error|Exception)): (.+)", re.MULTILINE)


class Cannot(Exception):
    """The candidate has no argument for it; the words say which."""


def reason(problem):
    """Return what is at the bottom of an error: its type and 80 characters of it."""
    if isinstance(problem, Cannot):
        # TensorFlow, as it traces, writes a traceback in front of it.
        return str(problem).rpartition("Cannot: ")[2].strip()
    # Keras wraps a message in its own, and prints it in bold type there.
    text = str(problem).rpartition("\x1b[1m")[2].partition("\x1b[0m")[0].strip()
    # TensorFlow, as it traces, writes a traceback into the message.
    found = _ERROR.findall(text)
    kind, words = found[-1] if found else (type(problem).__name__, text)
    words = words.partition("\n")[0]
    words = re.sub(r"(/[\w.-]+){2,}/", "", words).replace("|", "/").replace("`", "'")
    return f"{kind}: {words[:80].strip()}"
