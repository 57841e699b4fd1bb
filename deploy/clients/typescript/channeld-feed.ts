// A client of channeld's feed for Node.js 18 or newer, without other packages. README.md in the folder above has examples.

import { readFile } from "node:fs/promises";
import * as http from "node:http";
import * as https from "node:https";
import { text as textOf } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { TLSSocket } from "node:tls";

const [FIRST_WAIT, LONGEST_WAIT] = [100, 10_000]; // milliseconds before a request is repeated
const PATIENCE = 15_000; // milliseconds without any data after which a connection counts as broken
const ACCESS_GRACE = 60_000; // milliseconds in which a refused access is retried if it worked before

export type Channel = { name: string; id: string; position: number };
export type Process = (events: FeedEvent[]) => Promise<unknown>;
export type OnRetry = (error: Error, wait: number) => void;
export type Token = string | (() => string | Promise<string>); // a function is called for each request: see `tokenFile`

/** Positions are 1, 2, 3 and so on, in order of delivery. `channeld schema record` describes the record, and `text` is its JSON text. */
export type FeedEvent = { position: number; record: { [member: string]: any }; text: string };
/** `ca` contains the CA certificates in PEM that sign the feed's certificate. `onRetry` is called before a request is repeated. */
export type Options = { token?: Token; ca?: string; onRetry?: OnRetry };
const warn: OnRetry = (error, wait) => console.warn(`channeld feed: ${error.message}: the request is repeated in ${wait} ms`);
/** Without `after`, the events begin with the oldest one. `limit` is the largest number of events of one answer. `wait` is how long one
 * request waits for an event, in seconds: 30 by default. `signal` ends the reading. */
export type Reading = { after?: number; limit?: number; wait?: number; signal?: AbortSignal };

/** The feed refused a request. `kind` is the last part of the type of the problem. The status is 0 if there is no answer, because the
 * token cannot be read (`kind` is "token") or TLS does not work, such as for an untrusted certificate ("tls"). */
export interface FeedError { status: number; kind: string; oldest: number; retryAfter: number }
export class FeedError extends Error {
  constructor(detail: string, members: Partial<FeedError>) {
    super(members.status ? `${members.status} ${members.kind}: ${detail}` : detail);
    Object.assign(this, members);
  }
}

/** The events after the position were deleted. `oldest` is the position of the oldest event. */
export class Gone extends FeedError {}

/** Returns a function that reads the token from a file for each request. */
export const tokenFile = (path: string): Token => () => readFile(path, "utf8");

/** The feed at "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH". */
export class Feed {
  #url: URL;
  #options: Options & { onRetry: OnRetry };
  #socketPath: string;
  constructor(url: string, options: Options = {}) {
    this.#socketPath = url.startsWith("unix:/") ? url.slice(5) : "";
    if (!this.#socketPath && !/^https?:\/\/./.test(url))
      throw new TypeError(`the address must be "http://HOST:PORT", "https://HOST:PORT" or "unix:/PATH", not "${url}"`);
    [this.#url, this.#options] = [new URL(url), { ...options, onRetry: options.onRetry ?? warn }];
  }

  /** The channels that the token may read. Makes one attempt. */
  async channels(): Promise<Channel[]> { return (await this.#request("GET", "/v1/channels")).channels; }

  /** All events after a position, in order, without an end. */
  async *events(channel: string, reading: Reading = {}): AsyncGenerator<FeedEvent> {
    for await (const page of this.pages(channel, reading)) yield* page;
  }

  /** Like `events`, in lists of 1 to `limit` events. */
  async *pages(channel: string, reading: Reading = {}): AsyncGenerator<FeedEvent[]> {
    const retries = retrying(this.#options.onRetry, reading.signal);
    for (let after = reading.after; ; ) {
      const path = `/v1/channels/${encodeURIComponent(channel)}/events?${query({ ...reading, after })}`;
      const answer = await retries.run(() => this.#request("GET", path, reading));
      checkOrder(answer.events, after);
      after = answer.next;
      if (answer.events.length > 0) yield answer.events;
    }
  }

  /** Like `events`, with server-sent events. */
  async *stream(channel: string, reading: Reading = {}): AsyncGenerator<FeedEvent> {
    const [path, retries] = [`/v1/channels/${encodeURIComponent(channel)}/stream`, retrying(this.#options.onRetry, reading.signal)];
    for (let after = reading.after; ; ) {
      try {
        const headers = after === undefined ? {} : { "Last-Event-ID": `${after}` };
        const answer = await this.#open("GET", path, { signal: reading.signal, wait: 0 }, "", headers);
        retries.allowed();
        for await (const event of streamEvents(answer)) {
          checkOrder([event], after);
          retries.succeeded();
          after = event.position;
          yield event;
        }
        throw new Error("the stream has ended");
      } catch (error) { await retries.failed(error); }
    }
  }

  /** Calls `process` with the next 1 to `limit` events, and commits them when its promise is fulfilled. Does not end.
   * If `process` throws, nothing is committed, and this function throws the same. If `process` takes longer than the lease, the
   * events come again. While another process has the lease, this function waits. */
  async consume(consumer: string, channel: string, process: Process, { limit, wait, signal }: Reading = {}): Promise<never> {
    const path = `/v1/consumers/${encodeURIComponent(consumer)}/${encodeURIComponent(channel)}`;
    for (const retries = retrying(this.#options.onRetry, signal); ; ) {
      const { lease, events } = await retries.run(() => this.#request("POST", `${path}/lease?${query({ limit, wait })}`, { wait, signal }));
      if (events.length === 0) continue; // none came during the wait
      checkOrder(events, undefined);
      await process(events);
      const body = JSON.stringify({ lease, through: events[events.length - 1].position });
      await retries.run(() => this.#request("POST", `${path}/commit`, { wait: 0, signal }, body)).catch((error) => {
        if (error.kind !== "not-leased") throw error;
        // The lease has expired, or the answer to an earlier attempt was lost. The next lease begins at the cursor.
        this.#options.onRetry(error, 0);
      });
    }
  }

  async #request(method: string, path: string, reading: Reading = {}, body = ""): Promise<any> {
    const answer = await this.#open(method, path, reading, body);
    const text = await textOf(answer); // Only the status 204 means that there are no events: an empty 200 is a broken answer.
    return answer.statusCode === 204 ? { events: [] } : parseAnswer(text);
  }

  /** Returns the answer if it is a success. A connection is used for one request. */
  async #open(method: string, path: string, { wait, signal }: Reading, body: string, headers = {}): Promise<http.IncomingMessage> {
    const { token, ca } = this.#options;
    const noToken = (error: any) => { throw new FeedError(`the token cannot be read: ${error?.message}`, { status: 0, kind: "token" }); };
    const value = (typeof token === "function" ? await Promise.resolve().then(token).catch(noToken) : token)?.trim();
    const all = { ...headers, ...(value && { Authorization: `Bearer ${value}` }), "Content-Length": Buffer.byteLength(body) };
    const options = { method, agent: false, timeout: PATIENCE + 1000 * (wait ?? 30), signal, headers: all };
    const { protocol, hostname, port, pathname } = this.#url;
    const address = { host: hostname.replace(/[[\]]/g, ""), port, path: pathname.replace(/\/$/, "") + path };
    const target = this.#socketPath ? { socketPath: this.#socketPath, path } : address;
    const answer = await new Promise<http.IncomingMessage>((resolve, reject) => {
      const send = protocol === "https:" ? https.request({ ...options, ...target, ca }) : http.request({ ...options, ...target });
      send.on("timeout", () => send.destroy(new Error("the feed has sent nothing for too long")));
      send.on("response", resolve).on("error", (error) => reject(tlsError(error, send) ?? error)).end(body);
    });
    answer.setEncoding("utf8");
    if (answer.statusCode === 200 || answer.statusCode === 204) return answer;
    throw problem(answer.statusCode ?? 0, await textOf(answer), answer);
  }
}

/** The error of a connection whose TLS does not work. A broken connection is another error. */
function tlsError(error: NodeJS.ErrnoException, { socket }: http.ClientRequest): FeedError | undefined {
  const isUntrusted = socket instanceof TLSSocket && socket.authorizationError;
  if (isUntrusted || /^(EPROTO|ERR_SSL_.*)$/.test(error.code ?? "")) return new FeedError(error.message, { status: 0, kind: "tls" });
}

/** Repeats requests, with a longer wait after each failure. */
function retrying(onRetry: OnRetry, signal?: AbortSignal) {
  let [nextWait, deniedAfter, hasWaited] = [FIRST_WAIT, 0, false];
  const allowed = () => void (deniedAfter = Infinity);
  const succeeded = () => void ([nextWait, deniedAfter] = [FIRST_WAIT, Infinity]);
  const failed = async (error: unknown): Promise<void> => { // Throws the error if it will not pass.
    signal?.throwIfAborted();
    if (!(error instanceof Error) || error instanceof TypeError) throw error;
    const { status = 503, kind, retryAfter = 0 }: Partial<FeedError> = error instanceof FeedError ? error : {};
    const wait = Math.max(retryAfter, Math.round(nextWait * (0.5 + Math.random() / 2)));
    nextWait = Math.min(nextWait * 2, LONGEST_WAIT);
    if (kind !== "leased" && ![408, 429].includes(status) && status < 500) {
      deniedAfter = Math.min(deniedAfter, performance.now() + ACCESS_GRACE);
      if (![0, 401, 403, 404].includes(status) || performance.now() >= deniedAfter) throw error;
    }
    if (kind !== "leased" || !hasWaited) onRetry(error, wait); // The wait for a lease is not a failure, and reported once.
    if (kind === "leased") [nextWait, deniedAfter, hasWaited] = [FIRST_WAIT, Infinity, true];
    await sleep(wait, undefined, { signal });
  };
  const run = async <T>(request: () => Promise<T>): Promise<T> => {
    for (;;) {
      try {
        const answer = await request();
        succeeded();
        return answer;
      } catch (error) { await failed(error); }
    }
  };
  return { allowed, succeeded, failed, run };
}

function query({ after, limit = 100, wait = 30 }: Reading): string {
  return `limit=${limit}&wait=${Math.round(wait * 1000)}ms${after === undefined ? "" : `&after=${after}`}`;
}

/** Checks that no event is missing: each position is one more than the position before it. */
function checkOrder(events: FeedEvent[], after: number | undefined): void {
  for (const { position } of events) {
    if (after !== undefined && position !== after + 1)
      throw new FeedError(`the feed sent position ${position} after position ${after}`, { status: 200, kind: "missing-events" });
    after = position;
  }
}

/** `JSON.parse` changes large numbers, so the text of each event is cut out of the answer. */
function parseAnswer(text: string): any {
  const [answer, texts] = [JSON.parse(text), [] as string[]];
  let [depth, start] = [0, 0];
  for (const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]/g)) {
    if ("{[".includes(token) && depth++ === 2) start = index;
    else if ("}]".includes(token) && --depth === 2) texts.push(text.slice(start, index + 1));
  }
  const event = (record: any, at: number): FeedEvent => ({ position: record.position, record, text: texts[at] });
  return answer.events ? { ...answer, events: answer.events.map(event) } : answer;
}

/** The events of a stream until it ends. A message that was not received completely is ignored. */
async function* streamEvents(answer: http.IncomingMessage): AsyncGenerator<FeedEvent> {
  let rest = "";
  for await (const part of answer) {
    const messages = (rest + part).split(/\r?\n\r?\n/);
    rest = messages.pop() ?? "";
    for (const lines of messages.map((message) => message.split(/\r?\n/))) {
      const field = (name: string) => lines.filter((it) => it.startsWith(name)).map((it) => it.slice(name.length)).join("\n").trim();
      const text = field("data:");
      const record = text && JSON.parse(text);
      if (record && field("event:") === "problem") throw problem(record.status, text, answer);
      if (record) yield { position: record.position, record, text };
    }
  }
}

/** The error of an answer. A proxy in front of the feed may send another text than a problem. */
function problem(status: number, text: string, answer: http.IncomingMessage): FeedError {
  let found: any = {};
  try { found = JSON.parse(text); } catch {}
  const kind = `${found.type ?? ""}`.split(":").pop() ?? "";
  const retryAfter = Math.min(1000 * Number(answer.headers["retry-after"] ?? 0) || 0, LONGEST_WAIT);
  return new (kind === "gone" ? Gone : FeedError)(found.detail ?? text.slice(0, 200), { status, kind, retryAfter, oldest: found.oldest });
}
