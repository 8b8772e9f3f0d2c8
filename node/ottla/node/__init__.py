"""What controller and broker processes share.

properties.py       `.properties` files
clock_driver.py     the machine's time and chance
process_driver.py   limits, signals, the garbage collector
"""
