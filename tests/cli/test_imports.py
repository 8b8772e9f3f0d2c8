"""The garbage collector is off during imports, and a node's collections skip imported modules."""

import gc
import subprocess
import sys

import pytest

from ottla.cli.imports import importing


def test_no_garbage_is_collected_within_the_block() -> None:
    assert gc.isenabled()
    with pytest.raises(ImportError), importing():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()


def test_what_a_node_imported_is_out_of_later_collections() -> None:
    script = (
        "import gc\n"
        "from ottla.cli.imports import importing_for_good\n"
        "with importing_for_good():\n"
        "    import ottla.model.ids\n"
        "assert gc.isenabled()\n"
        "assert not any(one is ottla.model.ids.__dict__ for one in gc.get_objects())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
