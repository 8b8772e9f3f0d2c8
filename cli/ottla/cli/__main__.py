"""Entry point of `python -m ottla.cli`: the `ottla` command."""

from ottla.cli.main import main

if __name__ == "__main__":
    main()
