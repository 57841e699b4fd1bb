"""Verifies events of channeld's feed again. Needs `channeld_feed.py` and the program `channeld`."""

import json
import subprocess
from typing import Any

from channeld_feed import Event


class NotVerified(Exception):
    """At least one event is not verified. The argument is the list of all verdicts."""


def verify(events: list[Event], *arguments: str, program: str = "channeld") -> list[dict[str, Any]]:
    """Runs `channeld verify` with these arguments, such as "--config", "verify.toml", and returns the verdict of each event. Raises
    NotVerified if an event is not verified. With "--allow-unsigned", notices are accepted, which are never signed."""
    given, command = "[" + ",".join(event.text for event in events) + "]", [program, "verify", "--json", *arguments]
    done = subprocess.run(command, input=given, capture_output=True, encoding="utf-8", check=False)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode not in (0, 1) or len(verdicts) != len(events):
        raise OSError(f"{program} verify ended with {done.returncode}: {done.stderr.strip()}")
    if done.returncode == 1:
        raise NotVerified(verdicts)
    return verdicts
