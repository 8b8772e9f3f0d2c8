"""A producer and a consumer as in kafka-python's own examples. Arguments: BOOTSTRAP WHAT."""

import sys

from kafka import KafkaConsumer, KafkaProducer


def produce(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for line in sys.stdin:
        producer.send("mytopic", line.strip().encode("utf-8"))
    producer.flush()
    producer.close()


def consume(bootstrap: str) -> None:
    consumer = KafkaConsumer("mytopic", group_id="mygroup", bootstrap_servers=bootstrap)
    try:
        for message in consumer:
            print(message.value.decode("utf-8"), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[2]](sys.argv[1])
