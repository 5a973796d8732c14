"""The text classification example in a process to which something happens."""

import os
import subprocess
import sys
import textwrap

from classifier import SCRIPT

from keras_pe import processes

# What the code of a fault can use, and then the example as it is run by hand.
BEFORE = """
import itertools, os, runpy, signal, sys

def at(owner, name, happen, call=1, when=lambda *args: True, after=False):
    '''Let something happen before or after a function's call of that number.'''
    function, calls = getattr(owner, name), itertools.count(1)

    def wrapper(*args, **kwargs):
        now = when(*args) and next(calls) == call
        if now and not after:
            happen(*args)
        result = function(*args, **kwargs)
        if now and after:
            happen(*args)
        return result

    setattr(owner, name, wrapper)

def end(*args):
    os.kill(os.getpid(), number)

def pause(*args):
    print("paused", flush=True)
    sys.stdin.readline()

def halve(path):
    os.truncate(path, os.path.getsize(path) // 2)

signal.signal(signal.SIGINT, signal.default_int_handler)
number = signal.Signals[sys.argv[1]]
sys.argv = sys.argv[2:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
"""
RUN = """
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(fault, options, name="SIGKILL"):
    """Run the example, with the code of a fault before it, until it ends."""
    return processes.run(code_of(fault), name, SCRIPT, *options)


def start(fault, options):
    """Start the example, with the code of a fault before it, until it pauses."""
    return start_code(code_of(fault), "SIGKILL", SCRIPT, *options)


def code_of(fault):
    return BEFORE + textwrap.dedent(fault) + RUN


def start_code(code, *args):
    """Start a process, and return it when it has printed that it pauses."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": path},
    )
    for line in process.stdout:
        if line.endswith("paused\n"):
            return process
    raise AssertionError(f"ended with {process.wait()} before it paused")


def finish(process):
    """Let a process that pauses go on to its end, and return what it then prints."""
    printed, _ = process.communicate("\n")
    assert process.returncode == 0, printed
    return printed
