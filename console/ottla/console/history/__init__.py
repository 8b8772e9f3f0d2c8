"""Values over time that the console stores in memory, from the requests of open pages.

The console sends no further requests, so that an unused console causes no load on the brokers.

lag_history.py      lags of groups (pure)
metric_history.py   metrics of nodes during the last hour (pure)
rate_history_driver.py  rates of traffic between two samples, and the metrics of these samples
"""
