"""Settings of topics, brokers and groups: described, altered, effective.

configs_api.py                DescribeConfigs
config_resources.py           ListConfigResources
alter_loggers.py              IncrementalAlterConfigs: loggers here, the rest by the controller
alter_certificates_driver.py  tests certificates of listeners before they are accepted
merged_results.py            results that two nodes decided, in the order of a request
log_levels.py                 levels of this process's loggers
topic_settings.py             effective settings of a topic
dynamic_settings.py           broker settings that change at run time, and their listeners
settings_without_effect.py    warns of settings that have no effect
"""
