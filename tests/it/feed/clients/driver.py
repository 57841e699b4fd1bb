"""Uses the Python client for the tests in clients.rs: does one task, and prints JSON lines. The task is the first argument."""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parents[4] / "deploy/clients/python"))
import channeld_feed as client  # noqa: E402
import channeld_verify as verification  # noqa: E402


def say(line: str) -> None:
    print(line, flush=True)


def say_error(kind: str, status: int = 0, oldest: int = 0) -> None:
    say(json.dumps({"error": {"kind": kind, "status": status, "oldest": oldest}}))


class Stopped(Exception):
    """The test does not want the events to be committed."""


def process(events: list) -> None:
    say('{"events":[' + ",".join(event.text for event in events) + "]}")
    if sys.stdin.readline() != "commit\n":
        raise Stopped


def on_retry(error: Exception, wait: float) -> None:
    say(json.dumps({"retry": getattr(error, "kind", "") or "connection"}))


class WrongAddress(Exception):
    """The address is not one of a feed."""


def do(task: dict) -> None:
    token = Path(task["token_file"]) if "token_file" in task else None
    try:
        feed = client.Feed(task["url"], token, task.get("ca_file"), on_retry)
    except ValueError as error:
        raise WrongAddress from error
    channel, after, limit, count = "c0", task.get("after"), task.get("limit", 100), task.get("count", 0)
    if task["do"] == "channels":
        say(json.dumps({"channels": [channel._asdict() for channel in feed.channels()]}))
    elif task["do"] == "consume":
        feed.consume("ledger", channel, process, limit)
    elif task["do"] == "verify":
        for page in feed.pages(channel, after, count):
            verdicts = verification.verify(page, *task["arguments"])
            return say(json.dumps({"verdicts": [verdict["status"] for verdict in verdicts]}))
    else:
        events = feed.stream(channel, after) if task["do"] == "stream" else feed.events(channel, after, limit)
        for _, event in zip(range(count), events):
            assert event.position == event.record["position"]
            say(f'{{"events":[{event.text}]}}')


try:
    do(json.loads(sys.argv[1]))
except client.FeedError as error:
    say_error(error.kind, error.status, error.oldest if isinstance(error, client.Gone) else 0)
except verification.NotVerified:
    say_error("not-verified")
except Stopped:
    say_error("stopped")
except WrongAddress:
    say_error("address")
