"""Declares the verb `ottla topic reassign` and its options, without importing its
implementation."""

from ottla.cli.confirmation import CONFIRMATION
from ottla.cli.options import one_of, option
from ottla.cli.verbs import admin_verb

REASSIGN = admin_verb(
    "reassign",
    "move replicas to other brokers or log directories",
    "ottla.cli.cluster.moves.reassign:reassign",
    option("names NAME", "names of topics (default: all)", nargs="*"),
    one_of(
        option("--brokers ID,ID,…", "brokers to spread the topics over, with few moves"),
        option("--evacuate ID", "broker to move every replica away from", type=int),
        option("--plan FILE", "file with a plan, as of --save or kafka-reassign-partitions"),
        option("--cancel", "cancel ongoing reassignments and restore the previous replicas"),
        option(
            "--verify", "show ongoing reassignments, and remove throttles that none of them needs"
        ),
        option(
            "--log-dir [ID:]PATH",
            "log directory to move replicas into; may be repeated (default: on each broker that "
            "has it)",
            action="append",
        ),
    ),
    option(
        "-r --replicas COUNT",
        "with --brokers: number of replicas of a partition (default: as before)",
        type=int,
    ),
    CONFIRMATION,
    option("--save FILE", "file to write the plan to, for --plan"),
    option("--watch", "show progress until every reassignment is complete"),
    option(
        "--throttle RATE",
        "limit in bytes per second to and from each broker, such as 20M, removed "
        "at the end; without a plan it applies to ongoing reassignments (default: none)",
    ),
    option(
        "--log-dir-throttle --replica-alter-log-dirs-throttle RATE",
        "with --log-dir: limit in bytes per second on each broker (default: none)",
    ),
    option(
        "--adapt",
        "let the controllers make the moves, two at a time on a broker, below the throttle "
        "(default: 20M) while producers wait longer than before",
    ),
    option("--no-wait", "return when the reassignments have started"),
    description="Without --brokers, --evacuate, --plan, --log-dir, --cancel or --verify it "
    "shows what moves between brokers now. A throttle must be above what is produced to the "
    "replicas that move, or they never catch up.",
)
