"""`ottla log`: shows, checks and recovers log directories without a broker.

All verbs except `recover` change no file. `recover` writes after the user's confirmation or with
--yes.
"""

from ottla.cli.logs import log_dump
from ottla.cli.logs.log_recover import RECOVER
from ottla.cli.logs.log_verify import VERIFY

VERBS = (*log_dump.VERBS, VERIFY, RECOVER)
