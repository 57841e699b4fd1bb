"""Two applications that read a channel of the feed. Both must bear that they, channeld and the database are killed.

    kills.py exactly-once URL TOKEN_FILE CHANNEL PSQL DATABASE    writes a row for each event
    kills.py at-least-once URL TOKEN_FILE CHANNEL FILE            appends a line for each event

The client is a module in PYTHONPATH.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from channeld_feed import Event, Feed


def sql(psql: str, database: str, statements: str) -> str:
    """Executes statements in one transaction, and returns what they print."""
    command = [psql, "-XAtq1", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", "-"]
    return subprocess.run(command, input=statements, capture_output=True, encoding="utf-8", check=True).stdout


def write(psql: str, database: str, events: list[Event]) -> None:
    """Writes the rows of the events, and the position of the last one, in one transaction. Fails if another process, for example one
    that was started before a kill, has written these events."""
    rows = ",".join(f"({event.position}, {event.record['offset']})" for event in events)
    before, last = events[0].position - 1, events[-1].position
    moved = f"update progress set position = {last} where position = {before}; if not found then raise 'behind'; end if;"
    sql(psql, database, f"do $$ begin {moved} end $$; insert into processed (position, event_offset) values {rows};")


def exactly_once(feed: Feed, channel: str, psql: str, database: str) -> None:
    while True:
        try:
            after = int(sql(psql, database, "select position from progress"))
            for events in feed.pages(channel, after):
                write(psql, database, events)
        except subprocess.CalledProcessError as error:
            # The database is down, or the answer was lost. The stored position says what was written.
            print(error.stderr, file=sys.stderr)
            time.sleep(0.05)


def at_least_once(feed: Feed, channel: str, file: str) -> None:
    def process(events: list[Event]) -> None:
        with open(file, "a", encoding="utf-8") as lines:
            lines.write("".join(f"{event.position} {event.record['offset']}\n" for event in events))
            lines.flush()
            os.fsync(lines.fileno())

    feed.consume("ledger", channel, process, limit=40)


def main() -> None:
    how, url, token, channel, *rest = sys.argv[1:]
    feed = Feed(url, Path(token), on_retry=lambda error, wait: print(error, file=sys.stderr))
    {"exactly-once": exactly_once, "at-least-once": at_least_once}[how](feed, channel, *rest)


main()
