"""`python -m ottla.cli`: the `ottla` command by its module's name."""

from ottla.cli.main import main

if __name__ == "__main__":
    main()
