"""Values over time that the console keeps in memory. They come from the requests of open pages.

The console sends no requests of its own, so that an unused console costs the brokers nothing.

lag_history.py      lags of groups (pure)
metric_history.py   metrics of nodes during the last hour (pure)
rate_history_driver.py  rates of traffic between two samples, and the metrics of these samples
"""
