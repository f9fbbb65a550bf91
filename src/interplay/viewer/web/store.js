// Answers of the server, kept until a run changes. An exported page has all its answers inside (`window.ANSWERS`).
import { useEffect, useState } from "preact/hooks";

export const exported = typeof window.ANSWERS === "object" ? window.ANSWERS : null;
const cache = new Map(); // url -> {data, stamp}
const listeners = new Set();
let stamps = {}; // run -> a text that changes when the run's files do

export function url(path, query = {}) {
  const given = Object.entries(query).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const text = given.sort(([a], [b]) => (a < b ? -1 : 1)).map(([k, v]) => `${k}=${encodeURIComponent(v)}`).join("&");
  return text ? `${path}?${text}` : path;
}

// A path may have the name of a folder in it, and that may have any character but a slash.
const address = (path, query) => url(path.split("/").map(encodeURIComponent).join("/"), query);

export async function ask(path, query) {
  const at = url(path, query);
  if (exported) {
    if (at in exported) return exported[at];
    throw new Error("This page was exported and does not contain this. Open the run with: interplay view RUN");
  }
  const reply = await fetch(`api/${address(path, query)}`, { headers: { Accept: "application/json" } });
  const data = await reply.json().catch(() => ({ error: `the server answered ${reply.status}.` }));
  if (!reply.ok) throw new Error(data.error || `the server answered ${reply.status}.`);
  return data;
}

export async function send(path, body) {
  const reply = await fetch(`api/${address(path)}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const data = await reply.json().catch(() => ({ error: `the server answered ${reply.status}.` }));
  if (!reply.ok) throw new Error(data.error || `the server answered ${reply.status}.`);
  return data;
}

// The answer to a question: {data, error, late}. `data` stays while a newer one is fetched. With `run`, it is asked again
// when that run changes; `late` says why that failed, if it did.
export function useAnswer(path, query, run) {
  const at = path === null ? null : url(path, query);
  const [, redraw] = useState(0);
  const [failed, fail] = useState(null);
  const stamp = useStamp(run);
  useEffect(() => {
    if (at === null) return;
    const known = cache.get(at);
    if (known && known.stamp === stamp) return;
    let gone = false;
    ask(path, query).then(
      (data) => {
        cache.set(at, { data, stamp });
        if (cache.size > 300) cache.delete(cache.keys().next().value);
        if (!gone) { fail(null); redraw((n) => n + 1); }
      },
      (error) => { if (!gone) fail({ at, text: error.message }); },
    );
    return () => { gone = true; };
  }, [at, stamp]);
  const found = at === null ? undefined : cache.get(at)?.data;
  const why = failed && failed.at === at ? failed.text : null;
  return { data: found, error: found === undefined ? why : null, late: found === undefined ? null : why };
}

export function useStamp(run) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const heard = () => redraw((n) => n + 1);
    listeners.add(heard);
    return () => listeners.delete(heard);
  }, []);
  return run === undefined ? "" : run === "*" ? JSON.stringify(stamps) : stamps[run] || "";
}

export let connected = Boolean(exported);
export function listen() {
  if (exported) return;
  const events = new EventSource("api/events");
  events.onmessage = (event) => {
    stamps = JSON.parse(event.data);
    connected = true;
    for (const heard of listeners) heard();
  };
  events.onerror = () => { connected = false; for (const heard of listeners) heard(); };
}
