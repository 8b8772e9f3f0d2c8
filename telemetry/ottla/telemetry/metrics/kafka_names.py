"""Conversion of Kafka's MBean names to Prometheus names.

Pure. Dashboards and alerts for Kafka use the names that the JMX exporter derives from Kafka's
MBeans by a few rules. Ottla's metrics are declared with Kafka's documented MBean names, and the
same rules are applied, so that these dashboards work:

* jmx_exporter, `examples/kafka-kraft-3_0_0.yml`: the rules that are followed here;
* Strimzi, `examples/metrics/kafka-metrics.yaml`: the same rules; its dashboards
  `strimzi-kafka.json`, `strimzi-kraft.json` and its alerts `prometheus-kafka-rules.yaml` use these
  names (for the quorum raftmetrics; its own metrics reporter uses raft_metrics, like all others);
* Confluent, `jmx-monitoring-stacks`: its rules keep PerSec and Percent at the end of a name, where
  these have _total and _percent; its other names are equal.

Metrics that Kafka does not have are named `ottla_…`, with the unit at the end.
"""

import re

_MBEAN = re.compile(r"(kafka\.[\w.]+):type=([\w-]+)(?:,name=([\w-]+))?(?:,attribute=([\w-]+))?")


def prometheus_name(mbean: str) -> str:
    """Return the Prometheus name of an MBean. `mbean` is the MBean's name without labels.

    An MBean name is `kafka.server:type=ReplicaManager,name=IsrShrinksPerSec` (counters PerSec and
    -total get `_total`). If the number is an attribute of the bean itself, it is
    `kafka.server:type=raft-metrics,attribute=current-epoch`.
    """
    found = _MBEAN.fullmatch(mbean)
    assert found is not None, f"{mbean} is no MBean's name"
    domain, kind, name, attribute = found.groups()
    assert (name is None) != (attribute is None), f"{mbean} names no one number"
    parts = [domain.replace(".", "_"), kind]
    if name is None:
        parts.append(attribute)
    elif name.endswith("PerSec"):
        parts += [name.removesuffix("PerSec"), "total"]
    elif name.endswith("Percent"):
        parts += [name.removesuffix("Percent"), "percent"]
    else:
        parts.append(name)
    return "_".join(parts).replace("-", "_").lower()
