// Verifies events of channeld's feed again. Needs `channeld-feed.ts` and the program `channeld`.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { FeedEvent } from "./channeld-feed.ts";

export type Verdict = { event_id: string | null; status: string; reason: string | null; signers: string[] };

/** At least one event is not verified. */
export class NotVerified extends Error { verdicts: Verdict[] = []; }

/** Runs `channeld verify` with these arguments, such as "--config", "verify.toml", and returns the verdict of each event. Throws
 * `NotVerified` if an event is not verified. With "--allow-unsigned", notices are accepted, which are never signed. */
export async function verify(events: FeedEvent[], options: string[] = [], program = "channeld"): Promise<Verdict[]> {
  const run = promisify(execFile)(program, ["verify", "--json", ...options], { maxBuffer: Infinity });
  run.child.stdin?.on("error", () => {}).end(`[${events.map(({ text }) => text).join(",")}]`);
  const { stdout, stderr, code = 0 } = await run.catch((error) => error);
  const verdicts: Verdict[] = stdout.split("\n").filter(Boolean).map((line: string) => JSON.parse(line));
  if (![0, 1].includes(code) || verdicts.length !== events.length)
    throw new Error(`${program} verify ended with ${code}: ${stderr.trim()}`);
  if (code === 1) throw Object.assign(new NotVerified("an event is not verified"), { verdicts });
  return verdicts;
}
