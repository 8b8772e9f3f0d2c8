"""A producer and a consumer as in confluent-kafka's own examples. Arguments: BOOTSTRAP WHAT."""

import sys
from typing import Any

from confluent_kafka import Consumer, Producer


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})

    def delivery_report(error: Any, message: Any) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")

    for line in sys.stdin:
        producer.poll(0)
        producer.produce("mytopic", line.strip().encode("utf-8"), callback=delivery_report)
    producer.flush()


def consume(bootstrap: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "mygroup", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["mytopic"])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                raise SystemExit(f"consumer error: {message.error()}")
            print(message.value().decode("utf-8"), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[2]](sys.argv[1])
