// Uses the TypeScript client for the tests in clients.rs: does one task, and prints JSON lines. The task is the first argument.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Feed, FeedError, type FeedEvent, Gone, type Options, tokenFile } from "../../../../deploy/clients/typescript/channeld-feed.ts";
import { NotVerified, verify } from "../../../../deploy/clients/typescript/channeld-verify.ts";

const say = (line: string) => process.stdout.write(`${line}\n`);
const sayError = (kind: string, status = 0, oldest = 0) => say(JSON.stringify({ error: { kind, status, oldest } }));
const sayEvents = (events: FeedEvent[]) => say(`{"events":[${events.map(({ text }) => text).join(",")}]}`);

/** The test does not want the events to be committed. */
class Stopped extends Error {}

const task = JSON.parse(process.argv[2]);
const { limit, count } = task;
const after = task.after ?? undefined;
const options: Options = {
  token: task.token_file && tokenFile(task.token_file),
  ca: task.ca_file && readFileSync(task.ca_file, "utf8"),
  onRetry: (error) => say(JSON.stringify({ retry: (error instanceof FeedError && error.kind) || "connection" })),
};

/** The address is not one of a feed. */
class WrongAddress extends Error {}

function connect(): Feed {
  try {
    return new Feed(task.url, options);
  } catch {
    throw new WrongAddress();
  }
}

async function run(): Promise<void> {
  const feed = connect();
  if (task.do === "channels") {
    say(JSON.stringify({ channels: await feed.channels() }));
  } else if (task.do === "consume") {
    const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    const consume = async (events: FeedEvent[]) => {
      sayEvents(events);
      if ((await lines.next()).value !== "commit") throw new Stopped();
    };
    await feed.consume("ledger", "c0", consume, { limit });
  } else if (task.do === "verify") {
    for await (const page of feed.pages("c0", { after, limit: count })) {
      const verdicts = await verify(page, task.arguments);
      return void say(JSON.stringify({ verdicts: verdicts.map(({ status }) => status) }));
    }
  } else {
    let left = count;
    const events = task.do === "stream" ? feed.stream("c0", { after }) : feed.events("c0", { after, limit });
    for await (const event of events) {
      sayEvents([event]);
      if (--left === 0) return;
    }
  }
}

try {
  await run();
} catch (error) {
  if (error instanceof FeedError) sayError(error.kind, error.status, error instanceof Gone ? error.oldest : 0);
  else if (error instanceof NotVerified) sayError("not-verified");
  else if (error instanceof Stopped) sayError("stopped");
  else if (error instanceof WrongAddress) sayError("address");
  else throw error;
}
process.exit();
