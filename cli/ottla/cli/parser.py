"""The argument parser of a command. A usage error is reported by one line, and the help has an
example of each verb."""

import argparse
import re
from typing import Any, NoReturn

from ottla.cli.suggestions import remedy_for_usage
from ottla.cli.terminal import as_typed_here
from ottla.model.visible_text import visible

USAGE_ERROR = 1
INVALID_VALUE = re.compile(r"invalid (\w+) value: ('.*')", re.DOTALL)
"""Pattern of argparse's message about an invalid value. It captures the name of the type whose
conversion failed, and the value."""
INVALID_VERB = re.compile(r"^argument VERB: invalid choice: ")
KINDS = {"int": "a whole number", "_port": "a whole number", "_count": "a whole number",
         "number": "a whole number", "float": "a number", "size": "a size such as 16k"}  # fmt: skip


class Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """argparse action that declares the verbs of a command. The help of each verb begins with its
    summary."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        """Declare a verb of a command, and return its argument parser."""
        settings.setdefault("description", settings.get("help"))
        return super().add_parser(name, **settings)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Parse the arguments of the verb by the verb's own parser, which then explains usage
        errors."""
        if isinstance(parser, Parser):
            parser.chosen = self.choices.get(values[0])
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a usage error by one line and exit code 1."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.register("action", "parsers", Verbs)
        self.chosen: argparse.ArgumentParser | None = None
        """Parser of the verb on the command line. None until the verb is known."""

    def error(self, message: str) -> NoReturn:
        """Print a usage error and a reference to the help, and exit with code 1."""
        if self.chosen is not None:
            # Argparse reports unknown options at the command, whose help has no options.
            self.chosen.error(message)
        # The list of choices is removed: the error refers to the help, which has it.
        short = INVALID_VALUE.sub(_in_words, message.partition(" (choose from")[0])
        short = INVALID_VERB.sub("there is no verb ", short)
        cure = remedy_for_usage(self, message)
        hint = as_typed_here(f"; see '{self.prog} --help'")
        self.exit(USAGE_ERROR, visible(f"{self.prog}: {short}{cure}{hint}") + "\n")

    def format_help(self) -> str:
        """Return the help text of the command or verb, with an example."""
        # Imported only for help.
        from ottla.cli.examples import example_of

        text = super().format_help()
        example = example_of(self.prog)
        if example:
            text += f"\nexample:\n  {example}\n"
        return as_typed_here(text)


def _in_words(found: re.Match[str]) -> str:
    kind = KINDS.get(found[1])
    return f"is {found[2]}; it must be {kind}" if kind else f"{found[2]} is not valid"
