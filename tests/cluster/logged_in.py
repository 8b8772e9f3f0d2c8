"""Runs a program whose clients log in as the session that started it does. Arguments: PROGRAM
WORDS.

Programs in the form of a client's documentation have no login settings; see `secure_form.py`.
"""

import runpy
import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[2])
    import_module("tests.cluster.secure_form")
    sys.path[0] = str(Path(sys.argv[1]).parent)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
