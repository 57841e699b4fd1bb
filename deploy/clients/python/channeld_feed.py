"""A client of channeld's feed. Needs Python 3.9 or newer, and no other package. README.md in the folder above has examples, one of which
processes each event exactly once."""

import http.client
import json
import logging
import random
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union
from urllib.parse import quote, urlencode, urlsplit

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0  # seconds before a request is repeated
PATIENCE = 15.0  # seconds without any data after which a connection counts as broken
ACCESS_GRACE = 60.0  # seconds in which 401, 403 and 404 are retried if the access worked before: a token may be in replacement


class Channel(NamedTuple):
    name: str
    id: str
    position: int  # of the newest event


class Event(NamedTuple):
    position: int  # 1, 2, 3 and so on, in order of delivery
    record: dict[str, Any]  # `channeld schema record` describes it
    text: str  # the JSON text of the event as it was received: `verify` needs it


class FeedError(Exception):
    """The feed refused a request. `kind` is the last part of the type of the problem."""

    def __init__(self, status: int, kind: str, detail: str, retry_after: float = 0.0, oldest: int = 0) -> None:
        super().__init__(f"{status} {kind}: {detail}")
        self.status, self.kind, self.detail, self.retry_after, self.oldest = status, kind, detail, retry_after, oldest


class Gone(FeedError):
    """The events after the position were deleted. `oldest` is the position of the oldest event."""


class NotVerified(Exception):
    """At least one event is not verified. The argument is the list of all verdicts."""


Token = Union[str, Path, Callable[[], str], None]
_T = TypeVar("_T")
_Response = http.client.HTTPResponse
_Process = Callable[[list[Event]], object]
_OnRetry = Callable[[Exception, float], None]
_PASSING = (OSError, http.client.HTTPException, json.JSONDecodeError, FeedError)  # a request may be repeated after them


class Feed:
    """The feed at "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH". A token that is a path or a function is read again for
    each request. `ca_file` has the authorities that sign the certificate of the feed. `on_retry` is called with the error and the
    wait before a request is repeated. Without it, they are logged."""

    def __init__(self, url: str, token: Token = None, ca_file: Optional[str] = None, on_retry: Optional[_OnRetry] = None) -> None:
        self._url, self._token = urlsplit(url), token
        address = (self._url.hostname or "localhost", self._url.port)
        self._connection: Callable[..., http.client.HTTPConnection] = partial(http.client.HTTPConnection, *address)
        if self._url.scheme == "https":
            self._connection = partial(http.client.HTTPSConnection, *address, context=ssl.create_default_context(cafile=ca_file))
        self._on_retry = on_retry or partial(logging.getLogger(__name__).warning, "%s: the request is repeated in %.1f s")

    def channels(self) -> list[Channel]:
        """The channels that the token may read. Makes one attempt."""
        return [Channel(it["name"], it["id"], it["position"]) for it in self._request("GET", "/v1/channels")[0]["channels"]]

    def events(self, channel: str, after: Optional[int] = None, limit: int = 100, wait: float = 30.0) -> Iterator[Event]:
        """All events after a position, in order, without an end. Without `after`, they begin with the oldest one."""
        return (event for page in self.pages(channel, after, limit, wait) for event in page)

    def pages(self, channel: str, after: Optional[int] = None, limit: int = 100, wait: float = 30.0) -> Iterator[list[Event]]:
        """Like `events`, in lists of 1 to `limit` events. `wait` is how long one request waits for an event, in seconds."""
        retries, path = _Retries(self._on_retry), f"/v1/channels/{quote(channel, safe='')}/events"
        while True:
            query = {"limit": limit, **({} if after is None else {"after": after})}
            answer, events = retries.run(lambda: self._request("GET", path, query, wait))
            events, after = list(_in_order(events, after)), answer["next"]
            if events:
                yield events

    def stream(self, channel: str, after: Optional[int] = None) -> Iterator[Event]:
        """Like `events`, with server-sent events."""
        retries, path = _Retries(self._on_retry), f"/v1/channels/{quote(channel, safe='')}/stream"
        while True:
            headers = {} if after is None else {"Last-Event-ID": str(after)}
            try:
                with self._open("GET", path, headers) as response:
                    retries.succeeded()
                    for event in _in_order(_stream_events(response), after):
                        after = event.position
                        yield event
                raise ConnectionError("the stream has ended")
            except _PASSING as error:
                retries.failed(error)

    def consume(self, consumer: str, channel: str, process: _Process, limit: int = 100, wait: float = 30.0) -> None:
        """Calls `process` with the next 1 to `limit` events, and commits them when it has returned. Does not end.

        If `process` raises an exception, nothing is committed, and this function raises it. If `process` takes longer than the
        lease, the events come again. While another process has the lease, this function waits."""
        retries, path = _Retries(self._on_retry), f"/v1/consumers/{quote(consumer, safe='')}/{quote(channel, safe='')}"
        while True:
            answer, events = retries.run(lambda: self._request("POST", path + "/lease", {"limit": limit}, wait))
            if not events:  # none came during the wait
                continue
            body = json.dumps({"lease": answer["lease"], "through": list(_in_order(events, None))[-1].position})
            process(events)
            try:
                retries.run(lambda: self._request("POST", path + "/commit", body=body))
            except FeedError as error:
                if error.kind != "not-leased":
                    raise
                # The lease has expired, or the answer to an earlier attempt was lost. The next lease begins at the cursor.
                self._on_retry(error, 0.0)

    def _request(self, method: str, path: str, query: Optional[dict[str, Any]] = None, wait: float = 0.0,
                 body: Optional[str] = None) -> tuple[dict[str, Any], list[Event]]:
        """The members of the answer without its events, and its events."""
        path += "?" + urlencode({**query, "wait": f"{wait * 1000:.0f}ms"}) if query else ""
        with self._open(method, path, {}, wait, body) as response:
            return _parse_answer(response.read().decode()) if response.status == 200 else ({}, [])

    def _open(self, method: str, path: str, headers: dict[str, str], wait: float = 0.0, body: Optional[str] = None) -> _Response:
        """Returns the answer if it is a success. Closing the answer closes the connection, which is used for one request."""
        token = self._token() if callable(self._token) else self._token
        token = token.read_text() if isinstance(token, Path) else token
        if token:
            headers = {**headers, "Authorization": f"Bearer {token.strip()}"}
        connection = self._connection(timeout=PATIENCE + wait)
        try:
            if self._url.scheme == "unix":
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(PATIENCE + wait)
                connection.sock.connect(self._url.path)
            else:
                path = self._url.path.rstrip("/") + path
            connection.request(method, path, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if response.status not in (200, 204):
            with response:
                raise _problem(response.status, response.read(65536).decode(errors="replace"), response.headers)
        return response


class _Retries:
    """Waits before a request is repeated: longer after each failure."""

    def __init__(self, on_retry: _OnRetry) -> None:
        self._on_retry, self._wait, self._denied_after = on_retry, FIRST_WAIT, 0.0

    def run(self, request: Callable[[], _T]) -> _T:
        while True:
            try:
                answer = request()
                self.succeeded()
                return answer
            except _PASSING as error:
                self.failed(error)

    def succeeded(self) -> None:
        self._wait, self._denied_after = FIRST_WAIT, float("inf")

    def failed(self, error: Exception) -> None:
        """Raises the error if it will not pass."""
        wait, self._wait = self._wait * random.uniform(0.5, 1.0), min(self._wait * 2, LONGEST_WAIT)
        self._denied_after = min(self._denied_after, time.monotonic() + ACCESS_GRACE)
        if isinstance(error, FeedError):
            passing = error.status in (408, 429) or error.status >= 500 or error.kind == "leased"
            if not passing and not (error.status in (401, 403, 404) and time.monotonic() < self._denied_after):
                raise error
            wait, self._wait = max(wait, error.retry_after), FIRST_WAIT if error.kind == "leased" else self._wait
        self._on_retry(error, wait)
        time.sleep(wait)


def _in_order(events: Iterable[Event], after: Optional[int]) -> Iterator[Event]:
    """Checks that no event is missing: each position is one more than the position before it."""
    for event in events:
        if after is not None and event.position != after + 1:
            raise FeedError(200, "missing-events", f"the feed sent position {event.position} after position {after}")
        after = event.position
        yield event


def _parse_answer(text: str) -> tuple[dict[str, Any], list[Event]]:
    before, *rest = re.split(r'"events"\s*:\s*\[', text, maxsplit=1)
    if not rest:
        return json.loads(text), []
    events, at, decoder, between = [], 0, json.JSONDecoder(), re.compile(r"[\s,]*")
    while rest[0][(at := between.match(rest[0], at).end()) : at + 1] != "]":  # type: ignore[union-attr]
        start, (record, at) = at, decoder.raw_decode(rest[0], at)
        events.append(Event(record["position"], record, rest[0][start:at]))
    return json.loads(f'{before}"events":[{rest[0][at:]}'), events


def _stream_events(response: _Response) -> Iterator[Event]:
    """The events of a stream until it ends. A message that was not received completely is ignored."""
    kind, data = "", ""
    for line in response:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name == "data":
            data += value + "\n"
        elif name == "event":
            kind = value.strip()
        elif line in (b"\n", b"\r\n") and data:
            message = json.loads(data)
            if kind == "problem":
                raise _problem(message["status"], data, response.headers)
            yield Event(message["position"], message, data.strip())
            kind, data = "", ""


def _problem(status: int, text: str, headers: Any) -> FeedError:
    """The error of an answer. A proxy in front of the feed may send another text than a problem."""
    try:
        problem = json.loads(text)
        kind, detail, oldest = problem["type"].rpartition(":")[2], problem["detail"], problem.get("oldest", 0)
    except (ValueError, LookupError, TypeError, AttributeError):
        kind, detail, oldest = "", text[:200], 0
    retry_after = headers.get("Retry-After", "")
    error = Gone if kind == "gone" else FeedError
    return error(status, kind, detail, min(float(retry_after), LONGEST_WAIT) if retry_after.isdigit() else 0.0, oldest)


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
