"""Explanations of a cluster's state, for the command line, web pages and agents.

answers.py         the table of answers, each with its command and its MCP tool: start here
answers_driver.py  returns one answer: `answer(admin, name, values)`
explanation.py     the result: verdict, causes with evidence and commands, and its JSON form
mcp_server_driver.py  the answers as tools of an MCP server
mcp_http_driver.py    the same tools over HTTP

facts/             the facts of answers, read by bounded admin requests
rules/             the rules that derive causes from facts (pure)
changes/           changes of a cluster that take several steps
"""
