"""Generators of documentation pages and shell scripts for `make docs`, and of release files for
`make release`.

reference_pages.py     generates pages of docs/, and the table of features in README.md
cli_page.py            generates docs/reference/cli.md
client_page.py         generates docs/reference/client.md
permissions_page.py    generates docs/reference/permissions.md
markdown.py            Markdown tables
completion_scripts.py  generates the scripts of `ottla completion` from templates in this package
release.py             notes, bill of materials and checksums of a release, for `make release`
"""
