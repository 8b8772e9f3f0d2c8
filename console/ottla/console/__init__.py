"""Web pages about a cluster, served by a separate process that uses the admin client.

page_types.py     types of a page: its row, its request, its view, its actions and live parts
pages.py          PAGES: the table of screens and actions, from the view modules
listing.py        search, order and pages of a list, for every table (pure)
sheets.py         parts of a page as values, for pages without a layout of their own (pure)
absences.py       reasons for missing facts: permission, unsupported request, unresponsive node
form_values.py    numbers in paths and forms (pure)
links.py          addresses of pages, with values as path segments (pure)
command_lines.py  commands that pages show (pure)
cluster_rows.py   rows of brokers and disks (pure)
setting_rows.py   settings with source and difference from the default (pure)
partition_offsets_driver.py  offsets, by a separate request to each leader
shared_facts_driver.py  partition counts and latest changes, read once for all open pages
live_views.py     live parts of pages, updated by repeated calls of a view
http_errors.py    HTTP status and sentence for errors of views (pure)
rendering.py      templates, filters and the functions that templates call
static_files.py   scripts and styles, with their digests
requests_driver.py  queries and forms, within limits
long_actions_driver.py  actions that continue after their page was closed
event_stream.py   server-sent events for the live part of a page
seams.py          clock, random numbers and audit log, which tests replace
app.py            the ASGI application: routes from PAGES, errors, headers
path_route.py     routes that match undecoded paths
server_settings.py  settings of the server, and the rules that keep it safe (pure)
server_driver.py  runs the application on trio, with clients for its users

access/           access control: sessions, logins, roles, tokens against forged forms
history/          lags, rates and metrics over time, from the requests of open pages
records/          records of topics: filters, bounded reads, formats
views/            one module for each screen, with its own PAGES
templates/        one template for each page, base.html and macros.html
static/           console.css, console.js, and the vendored htmx and uPlot
"""
