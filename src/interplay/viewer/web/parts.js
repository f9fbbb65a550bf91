// Small pieces that several pages use.
import { h } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { exported } from "viewer/store.js";

export const html = htm.bind(h);

// Marks that change the direction of the text after them, and control characters, are shown as �.
const HARMFUL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
export const plain = (text) => String(text ?? "").replace(HARMFUL, "\ufffd");

export function num(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(1)
    : size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}
export const signed = (value) => (value > 0 ? "+" : "") + num(value);
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
export const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(1)}%`);

export function ago(seconds) {
  const gap = Date.now() / 1000 - seconds;
  if (exported || gap > 86400 * 3) return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  if (gap < 60) return `${Math.max(0, Math.round(gap))} s ago`;
  if (gap < 3600) return `${Math.round(gap / 60)} min ago`;
  return gap < 86400 ? `${Math.round(gap / 3600)} h ago` : `${Math.round(gap / 86400)} days ago`;
}

// The place of a role in its list decides its colour.
export const hue = (index) => `var(--c${index % 8})`;
export const Role = ({ name, roles }) => html`
  <span class="role" style=${{ "--own": hue(Math.max(0, roles.indexOf(name))) }}>${plain(name)}</span>`;

// A number from red (below zero) over grey to blue. `most` is the value of the full colour.
export function diverging(value, most) {
  if (!value || !most) return "transparent";
  const share = Math.min(1, Math.abs(value) / most);
  const colour = value >= 0 ? "var(--good)" : "var(--bad)";
  return `color-mix(in srgb, ${colour} ${Math.round(14 + 62 * share)}%, transparent)`;
}
export const sequential = (share) => `color-mix(in srgb, var(--accent) ${Math.round(6 + 64 * share)}%, transparent)`;

export function Advantage({ value, onClick, most = 1 }) {
  if (value === null || value === undefined) return null;
  return html`<button class="advantage" style=${{ background: diverging(value, most) }} onClick=${onClick}
    title="Where does this number come from?">A ${signed(value)}</button>`;
}

export const Rewards = ({ rows, named = false }) => rows.filter((r) => r.value !== null).map((r) => html`
  <span class=${"reward " + (r.value > 0 ? "up" : r.value < 0 ? "down" : "")}
    title=${`${r.level} reward of ${r.role || "the team"}, weight ${num(r.weight)}`}
    >${plain(r.name)}${named && r.role ? ` of ${plain(r.role)}` : ""} ${signed(r.value)}</span>`);

// The sum of each reward over the episode: an environment may give the same one after every action.
export function summed(rows) {
  const sums = new Map();
  for (const r of rows.filter((r) => r.value !== null)) {
    const key = JSON.stringify([r.name, r.role, r.level]);
    sums.set(key, { ...r, value: (sums.get(key)?.value ?? 0) + r.value });
  }
  return [...sums.values()];
}

export const Fault = ({ text }) => html`<p class="fault" role="alert">${plain(text)}</p>`;
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

// What to show before an answer is there.
export const Waiting = ({ error }) => (error ? html`<${Fault} text=${error} />` : html`<p class="empty">Loading…</p>`);

// Text that is folded where it is long.
export function Long({ text, lines = 8, className = "" }) {
  const [open, set] = useState(false);
  const shown = plain(text);
  const long = shown.length > 90 * lines || shown.split("\n").length > lines + 2;
  return html`<div class=${"long " + className}>
    <pre class=${long && !open ? "folded" : ""} style=${{ "--lines": lines }}>${shown}</pre>
    ${long && html`<button class="more" onClick=${() => set(!open)}>${open ? "less" : "more"}</button>`}
  </div>`;
}

export function Sparkline({ values, width = 120, height = 28 }) {
  if (!values || values.length < 2) return html`<span class="soft">–</span>`;
  const low = Math.min(...values), high = Math.max(...values), span = high - low || 1;
  const points = values.map((v, i) =>
    `${(2 + (i / (values.length - 1)) * (width - 4)).toFixed(1)},${(height - 3 - ((v - low) / span) * (height - 6)).toFixed(1)}`);
  return html`<svg class="spark" width=${width} height=${height} role="img"
    aria-label=${`from ${num(values[0])} to ${num(values.at(-1))}`}>
    <polyline points=${points.join(" ")} /><circle cx=${points.at(-1).split(",")[0]} cy=${points.at(-1).split(",")[1]} r="2.5" />
  </svg>`;
}

// A value with its interval, from 0 to 1.
export const Interval = ({ value, low, high }) => html`<span class="interval" title=${`${percent(value)}, 95% interval ${percent(low)} to ${percent(high)}`}>
  <i class="band" style=${{ left: `${100 * low}%`, width: `${100 * Math.max(0, high - low)}%` }}></i>
  <i class="dot" style=${{ left: `${100 * value}%` }}></i></span>`;

export function Tabs({ tabs, at }) {
  return html`<nav class="tabs">${tabs.filter(Boolean).map((tab) => html`
    <a href=${tab.to} class=${tab.key === at ? "here" : ""} aria-current=${tab.key === at ? "page" : undefined}>
      ${tab.name}${tab.count !== undefined && html`<small>${tab.count.toLocaleString("en")}</small>`}</a>`)}</nav>`;
}

export const Smooth = ({ value, onInput }) => html`<label class="soft">smooth <input type="range" min="0" max="0.95" step="0.05" value=${value} onInput=${(e) => onInput(Number(e.target.value))} /></label>`;

// A text field that reports what is in it a moment after the last key.
export function Search({ value, onInput, label }) {
  const timer = useRef(0), field = useRef(null);
  useEffect(() => () => clearTimeout(timer.current), []);
  return html`<input type="search" class="search" ref=${field} placeholder=${label} aria-label=${label}
    defaultValue=${value || ""} onInput=${(e) => {
      clearTimeout(timer.current);
      const text = e.target.value;
      timer.current = setTimeout(() => onInput(text), 250);
    }} />`;
}

export function Messages({ messages, run, lines = 10 }) {
  return messages.map((m) => html`<div class=${"message " + m.role}>
    <small>${plain(m.name || m.role)}</small>
    ${m.content && html`<${Long} text=${m.content} lines=${lines} />`}
    ${m.calls.map(([name, given]) => html`<pre class="call">${plain(name)}(${plain(given)})</pre>`)}
    <${Pictures} media=${m.media} run=${run} />
  </div>`);
}

export const Pictures = ({ media, run }) => media.map((one) => {
  if (one.kind === "soft") return html`<span class="soft">vectors through a channel, ${one.digest.slice(0, 8)}</span>`;
  const from = exported ? exported[`media/${one.digest}`] : `api/run/${encodeURIComponent(run)}/media/${one.digest}`;
  if (!from) return html`<span class="soft">${one.kind} ${one.digest.slice(0, 8)} (not in this file)</span>`;
  return one.kind === "image"
    ? html`<a href=${from} target="_blank" rel="noopener"><img class="picture" src=${from} alt=${`picture ${one.digest.slice(0, 8)}`} loading="lazy" /></a>`
    : html`<audio controls preload="metadata" src=${from}></audio>`;
});
