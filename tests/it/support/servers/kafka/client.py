"""Requests of the Kafka sink's tests to a broker, with a client library other than the sink's.

    client.py read ADDRESS TOPIC              prints each record as one JSON object when it arrives, until the input ends
    client.py all ADDRESS TOPIC               prints each existing record
    client.py make ADDRESS TOPIC PARTITIONS [KEY=VALUE]…
    client.py alter ADDRESS TOPIC [KEY=VALUE]…
    client.py permit ADDRESS TOPIC USER RIGHT…   from now on, the user has only these rights to the topic
    client.py settings ADDRESS TOPIC          prints the settings as one JSON object
    client.py delete ADDRESS TOPIC
    client.py put ADDRESS TOPIC KEY [VALUE]   produces a record to partition 0, a tombstone without a value
    client.py hold ADDRESS TOPIC              begins a transaction with a record in partition 0, prints a line, and commits it when
                                              its input ends
"""

import json
import sys
import threading
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (ACL, ACLOperation, ACLPermissionType, ConfigResource, ConfigResourceType, NewTopic, ResourcePattern,
                         ResourceType)


def consumer(address):
    return KafkaConsumer(
        bootstrap_servers=address,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
        reconnect_backoff_max_ms=200,
        metadata_max_age_ms=1000,
        max_poll_records=5000,
        allow_auto_create_topics=False,
    )


def assigned(reader, topic, waits):
    """Waits until the topic has partitions, and assigns all of them to the reader."""
    while not (partitions := reader.partitions_for_topic(topic)):
        if not waits:
            return []
        time.sleep(0.05)
    all_of_them = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    reader.assign(all_of_them)
    reader.seek_to_beginning(*all_of_them)
    return all_of_them


def show(records):
    for record in (record for of_partition in records.values() for record in of_partition):
        text = lambda value: None if value is None else value.decode()
        headers = {name: text(value) for name, value in record.headers}
        print(json.dumps({"partition": record.partition, "at": record.offset, "key": text(record.key), "headers": headers,
                          "body": text(record.value)}))
    sys.stdout.flush()


def read(address, topic):
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    reader = consumer(address)
    assigned(reader, topic, waits=True)
    while not ended.is_set():
        show(reader.poll(timeout_ms=100))


def read_all(address, topic):
    reader = consumer(address)
    partitions = assigned(reader, topic, waits=False)
    ends = reader.end_offsets(partitions) if partitions else {}
    while any(reader.position(partition) < end for partition, end in ends.items()):
        show(reader.poll(timeout_ms=100))


def admin(address):
    return KafkaAdminClient(bootstrap_servers=address)


def pairs(settings):
    return dict(setting.split("=", 1) for setting in settings)


def make(address, topic, partitions, *settings):
    new = NewTopic(name=topic, num_partitions=int(partitions), replication_factor=1, topic_configs=pairs(settings))
    admin(address).create_topics([new])


def alter(address, topic, *settings):
    admin(address).alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=pairs(settings))])


def permit(address, topic, user, *rights):
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    admin(address).create_acls([ACL(f"User:{user}", "*", ACLOperation[right], ACLPermissionType.ALLOW, pattern)
                                for right in rights])


def settings(address, topic):
    reader = consumer(address)
    count = len(reader.partitions_for_topic(topic) or [])
    told = admin(address).describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]) if count else {}
    print(json.dumps({"partitions": count, "told": told}, default=str))


def delete(address, topic):
    admin(address).delete_topics([topic])


def put(address, topic, key, value=None):
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send(topic, key=key.encode(), value=None if value is None else value.encode(), partition=0).get(timeout=30)


def hold(address, topic):
    producer = KafkaProducer(bootstrap_servers=address, transactional_id="another-lane", transaction_timeout_ms=60000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, key=b"another-lane", value=b"{}", partition=0).get(timeout=30)
    print("held", flush=True)
    sys.stdin.read()
    producer.commit_transaction()


if __name__ == "__main__":
    commands = {"read": read, "all": read_all, "make": make, "alter": alter, "permit": permit, "settings": settings, "delete": delete,
                "put": put, "hold": hold}
    commands[sys.argv[1]](*sys.argv[2:])
