"""Declares the options that commands for changing topics and settings share."""

from ottla.cli.options import one_of, option

DRY_RUN = option("--dry-run", "validate and show the changes without making them")
CHANGE_OPTIONS = (
    option(
        "--unset KEY ...", "remove a setting, so that the inherited value applies; may be repeated"
    ),
    one_of(
        DRY_RUN,
        option("--yes", "make changes that delete or risk records without a question"),
    ),
)
