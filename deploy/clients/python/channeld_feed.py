"""A client of channeld's feed. Needs Python 3.9 or newer, and no other package. README.md in the folder above has examples."""

import json
import logging
import random
import re
import socket
import ssl
import time
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Union
from urllib.parse import quote, urlencode, urlsplit

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0  # seconds before a request is repeated
PATIENCE = 15.0  # seconds without any data after which a connection counts as broken
ACCESS_GRACE = 60.0  # seconds in which a refused access is retried if it worked before: the token may be being replaced

# A channel and the position of its newest event.
Channel = NamedTuple("Channel", [("name", str), ("id", str), ("position", int)])
# Positions are 1, 2, 3 and so on, in order of delivery. `channeld schema record` describes the record, and `text` is its JSON text.
Event = NamedTuple("Event", [("position", int), ("record", dict[str, Any]), ("text", str)])


class FeedError(Exception):
    """The feed refused a request. `kind` is the last part of the type of the problem. The status is 0 if there is no answer, because
    the token cannot be read (`kind` is "token") or TLS does not work, such as for an untrusted certificate ("tls")."""

    def __init__(self, status: int, kind: str, detail: str, retry_after: float = 0.0, oldest: int = 0) -> None:
        super().__init__(f"{status} {kind}: {detail}" if status else detail)
        self.status, self.kind, self.detail, self.retry_after, self.oldest = status, kind, detail, retry_after, oldest


class Gone(FeedError):
    """The events after the position were deleted. `oldest` is the position of the oldest event."""


Token = Union[str, Path, Callable[[], str], None]
_Answer = tuple[dict[str, Any], list[Event]]  # the members of an answer without its events, and its events
_Process = Callable[[list[Event]], object]
_OnRetry = Callable[[Exception, float], None]
_PASSING = (OSError, HTTPException, json.JSONDecodeError, UnicodeDecodeError, FeedError)  # errors that may pass


class Feed:
    """The feed at "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH". A token that is a path or a function is read again for
    each request. `ca_file` contains the CA certificates that sign the feed's certificate. `on_retry` is called with the error
    and the wait before a request is repeated. Without it, they are logged."""

    def __init__(self, url: str, token: Token = None, ca_file: Optional[str] = None, on_retry: Optional[_OnRetry] = None) -> None:
        parts, self._token, self._socket = urlsplit(url), token, url[5:] if url.startswith("unix:/") else ""
        if not self._socket and not (parts.scheme in ("http", "https") and parts.hostname):
            raise ValueError(f'the address must be "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH", not "{url}"')
        if isinstance(token, str) and token.startswith("/") and Path(token).exists():
            raise ValueError(f'the token is the name of a file: write Path("{token}")')
        self._path, address = "" if self._socket else parts.path.rstrip("/"), (parts.hostname or "localhost", parts.port)
        self._connection: Callable[..., HTTPConnection] = partial(HTTPConnection, *address)
        if parts.scheme == "https":
            self._connection = partial(HTTPSConnection, *address, context=ssl.create_default_context(cafile=ca_file))
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
            position = {} if after is None else {"after": after}
            answer, events = retries.run(partial(self._request, "GET", path, wait, None, limit=limit, **position))
            events, after = list(_in_order(events, after)), answer["next"]
            if events:
                yield events

    def stream(self, channel: str, after: Optional[int] = None) -> Iterator[Event]:
        """Like `events`, with server-sent events."""
        retries, path = _Retries(self._on_retry), f"/v1/channels/{quote(channel, safe='')}/stream"
        while True:
            try:
                with self._open("GET", path, {} if after is None else {"Last-Event-ID": str(after)}) as response:
                    retries.denied_after = float("inf")  # the access works
                    for event in _in_order(_stream_events(response), after):
                        retries.succeeded()
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
            answer, events = retries.run(partial(self._request, "POST", path + "/lease", wait, limit=limit))
            if not events:  # none came during the wait
                continue
            body = json.dumps({"lease": answer["lease"], "through": list(_in_order(events, None))[-1].position})
            process(events)
            try:
                retries.run(partial(self._request, "POST", path + "/commit", body=body))
            except FeedError as error:
                if error.kind != "not-leased":
                    raise
                # The lease has expired, or the answer to an earlier attempt was lost. The next lease begins at the cursor.
                self._on_retry(error, 0.0)

    def _request(self, method: str, path: str, wait: float = 0.0, body: Optional[str] = None, **query: Any) -> _Answer:
        path += "?" + urlencode({**query, "wait": f"{wait * 1000:.0f}ms"}) if query else ""
        with self._open(method, path, {}, wait, body) as response:
            return _parse_answer(response.read().decode()) if response.status == 200 else ({}, [])

    def _open(self, method: str, path: str, headers: dict[str, str], wait: float = 0.0, body: Optional[str] = None) -> HTTPResponse:
        """Returns the answer if it is a success. Closing the answer closes the connection, which is used for one request."""
        try:
            token = self._token() if callable(self._token) else self._token
            token = token.read_text() if isinstance(token, Path) else token
        except (OSError, UnicodeDecodeError) as error:
            raise FeedError(0, "token", f"the token cannot be read: {error}") from error
        access = {"Authorization": f"Bearer {token.strip()}"} if token else {}
        connection = self._connection(timeout=PATIENCE + wait)
        try:
            if self._socket:
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(PATIENCE + wait)
                connection.sock.connect(self._socket)
            connection.request(method, self._path + path, body, {**headers, **access, "Connection": "close"})
            response = connection.getresponse()
        except BaseException as error:
            connection.close()
            if type(error) in (ssl.SSLError, ssl.SSLCertVerificationError):  # the other subclasses mean a broken connection
                raise FeedError(0, "tls", str(error)) from error
            raise
        if response.status not in (200, 204):
            with response:
                raise _problem(response.status, response.read(65536).decode(errors="replace"), response.headers)
        return response


class _Retries:
    """Waits before a request is repeated: longer after each failure."""

    def __init__(self, on_retry: _OnRetry) -> None:
        self._on_retry, self._wait, self._has_waited = on_retry, FIRST_WAIT, False
        self.denied_after = 0.0  # when a refused access is an error: infinity after an access that worked

    def run(self, request: Callable[[], _Answer]) -> _Answer:
        while True:
            try:
                answer = request()
                self.succeeded()
                return answer
            except _PASSING as error:
                self.failed(error)

    def succeeded(self) -> None:
        self._wait, self.denied_after = FIRST_WAIT, float("inf")

    def failed(self, error: Exception) -> None:
        """Waits, or raises the error if it will not pass."""
        status, kind, least = (error.status, error.kind, error.retry_after) if isinstance(error, FeedError) else (503, "", 0.0)
        wait, self._wait = max(least, self._wait * random.uniform(0.5, 1.0)), min(self._wait * 2, LONGEST_WAIT)
        if kind != "leased" and status not in (408, 429) and status < 500:
            self.denied_after = min(self.denied_after, time.monotonic() + ACCESS_GRACE)
            if status not in (0, 401, 403, 404) or time.monotonic() >= self.denied_after:
                raise error
        if kind != "leased" or not self._has_waited:  # the wait for a lease is reported once
            self._on_retry(error, wait)
        if kind == "leased":  # this is not a failure: another client has the lease
            self._wait, self.denied_after, self._has_waited = FIRST_WAIT, float("inf"), True
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


def _stream_events(response: HTTPResponse) -> Iterator[Event]:
    """The events of a stream until it ends. A message that was not received completely is ignored."""
    fields: dict[str, str] = {}
    for line in response:
        if line not in (b"\n", b"\r\n"):
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            fields[name] = fields.get(name, "") + value + "\n"
            continue
        text, kind, fields = fields.get("data", "").strip(), fields.get("event", "").strip(), {}
        message = json.loads(text or "{}")
        if message and kind == "problem":
            raise _problem(message["status"], text, response.headers)
        if message:
            yield Event(message["position"], message, text)


def _problem(status: int, text: str, headers: Any) -> FeedError:
    """The error of an answer. A proxy in front of the feed may send another text than a problem."""
    kind, detail, oldest = "", text[:200], 0
    with suppress(ValueError, LookupError, TypeError, AttributeError):
        problem = json.loads(text)
        kind, detail, oldest = problem["type"].rpartition(":")[2], problem["detail"], problem.get("oldest", 0)
    seconds, error = headers.get("Retry-After", ""), Gone if kind == "gone" else FeedError
    return error(status, kind, detail, min(float(seconds), LONGEST_WAIT) if seconds.isdigit() else 0.0, oldest)
