"""Names of metrics: what Kafka calls its MBeans, and what Prometheus gets to see of them.

Pure.  Dashboards and alerts for Kafka ask for names that the JMX exporter made of Kafka's MBeans
by a handful of rules.  We declare our families by Kafka's own documented MBean names and apply the
same rules, so that those dashboards find what they ask for:

* jmx_exporter, `examples/kafka-kraft-3_0_0.yml`: the rules followed here;
* Strimzi, `examples/metrics/kafka-metrics.yaml`: the same rules; its dashboards
  `strimzi-kafka.json`, `strimzi-kraft.json` and its alerts `prometheus-kafka-rules.yaml` ask for
  what they give (of the quorum it says raftmetrics; its own metrics reporter says raft_metrics, as
  everybody else does);
* Confluent, `jmx-monitoring-stacks`: its rules keep PerSec and Percent at the end of a name, where
  these say _total and _percent; its other names are the same.

What Kafka has no name for is `ottla_…`, with its unit at the end.
"""

import re

_MBEAN = re.compile(r"(kafka\.[\w.]+):type=([\w-]+)(?:,name=([\w-]+))?(?:,attribute=([\w-]+))?")


def prometheus_name(mbean: str) -> str:
    """Return the name that the rules make of an MBean, named without its labels.

    `kafka.server:type=ReplicaManager,name=IsrShrinksPerSec` (counters PerSec and -total get
    `_total`), or, where the number is an attribute of the bean itself,
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
