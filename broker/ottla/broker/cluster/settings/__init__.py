"""Settings of topics, brokers and groups: described, altered, effective.

configs_api.py                settings of the resources that DescribeConfigs describes
config_resources.py           ListConfigResources
own_obstacles.py              changes of settings that only this broker can check
alter_certificates_driver.py  tests certificates of listeners before they are accepted
split_changes.py              changes that this broker refuses, apart from others
topic_settings.py             effective settings of a topic
dynamic_settings.py           broker settings that change at run time, and their listeners
settings_without_effect.py    warns of settings that have no effect
"""
