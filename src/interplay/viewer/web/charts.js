// Curves over the steps of a run, drawn by uPlot (loaded before the modules, as the global `uPlot`).
import { useEffect, useRef } from "preact/hooks";
import { html, hue, num, plain } from "viewer/parts.js";

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const resolved = (colour) => (colour.startsWith("var(") ? css(colour.slice(4, -1)) : colour);

// An exponential moving average; gaps stay gaps.
export function smooth(values, share) {
  if (!share) return values;
  let last = null;
  return values.map((v) => {
    if (v === null || v === undefined) return v;
    last = last === null ? v : share * last + (1 - share) * v;
    return last;
  });
}

// The range of the y axis, a little wider than the values. Values that hardly differ get a range that can be labelled.
function wide(_, low, high) {
  if (low === null || low === undefined) return [0, 1];
  const middle = (low + high) / 2, size = Math.abs(middle) || 1;
  const half = low === high ? size / 5 : Math.max(0.56 * (high - low), size * 1e-4);
  return [middle - half, middle + half];
}

// Labels with as many digits as are needed to write the distance between two of them exactly: 0.25 needs two.
function labels(_, ticks) {
  const gap = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) : 1;
  let digits = 0;
  while (digits < 7 && Math.abs(gap * 10 ** digits - Math.round(gap * 10 ** digits)) > 1e-6 * gap * 10 ** digits) digits++;
  return ticks.map((t) => (digits > 0 && digits < 7 ? t.toFixed(digits).replace("-", "−") : num(t)));
}

// The width of the y axis, so that its longest label fits. uPlot asks for it several times, and later calls return the first size.
function widest(plot, texts, i, round) {
  const axis = plot.axes[i];
  if (round > 1) return axis._size;
  plot.ctx.font = axis.font[0];
  const needed = Math.max(0, ...(texts || []).map((text) => plot.ctx.measureText(text || "").width)) / devicePixelRatio;
  return Math.ceil(Math.max(42, needed + axis.gap + 4));
}

// A run has dozens of charts. They are drawn from the top of the page down, for a short time in each frame, so that those in the
// window appear first and the page can be used while the others are drawn. Returns a function that takes the request back.
const waiting = new Set();
const FRAME = 40; // milliseconds
let working = false;
function soon(draw) {
  waiting.add(draw);
  if (!working) requestAnimationFrame(work);
  working = true;
  return () => waiting.delete(draw);
}
async function work() {
  const began = performance.now();
  for (const draw of waiting) {
    waiting.delete(draw);
    draw();
    await null; // uPlot draws in a microtask
    if (performance.now() - began > FRAME) break;
  }
  working = waiting.size > 0;
  if (working) requestAnimationFrame(work);
}

// series: [{name, values, colour?, low?, high?}] over `steps`; values may have gaps. Between low and high a band is drawn.
const STEPS = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6].map((p) => n * 10 ** p)).sort((a, b) => a - b); // steps are whole numbers
export function Chart({ title, steps, series, smoothing = 0, height = 170, note }) {
  const place = useRef(null), legend = useRef(null), remove = useRef(() => {});
  const theme = document.documentElement.dataset.theme;
  const drawn = series.map((s, i) => ({ ...s, colour: s.colour || hue(i) }));
  const key = JSON.stringify([title, smoothing, theme, drawn.map((s) => [s.name, s.values.length, s.values.at(-1)]), steps.length]);
  useEffect(() => () => remove.current(), []);
  useEffect(() => soon(() => {
    remove.current(); // what was drawn before stays until now
    const box = place.current;
    if (!box) return; // another page is shown by now
    const tell = (at) => {
      if (!legend.current) return;
      const fields = legend.current.querySelectorAll("b");
      drawn.slice(0, fields.length).forEach(({ values }, i) => { fields[i].textContent = num(at === null ? lastOf(values) : values[at]); });
      legend.current.querySelector("em").textContent = at === null ? "" : `step ${steps[at]}`;
    };
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const banded = drawn.filter((s) => s.low);
    // The curves set the range of the y axis, with some room for bands. Bands do not: the interval of two seeds can be ten times as
    // wide as the seeds are apart.
    const edge = { auto: false, stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
    const roomy = (u, low, high) => wide(u, low - 0.5 * (high - low), high + 0.5 * (high - low));
    const plot = new window.uPlot({
      width: box.clientWidth || 300, height, cursor: { sync: { key: "steps" }, points: { size: 6 }, drag: { x: true, y: false } },
      legend: { show: false }, scales: { x: { time: false }, y: { range: banded.length ? roomy : wide } },
      axes: [{ ...axis, size: 24, gap: 2, incrs: STEPS }, { ...axis, size: widest, values: labels }],
      series: [{}, ...drawn.map((s, i) => ({
        label: s.name, stroke: resolved(s.colour), width: 1.6, spanGaps: true, dash: i >= 8 ? [5, 3] : undefined,
        points: { show: s.values.filter((v) => v !== null).length < 40, size: 4, fill: resolved(s.colour) },
      })), ...banded.flatMap(() => [edge, edge])],
      bands: banded.map((s, i) => ({ series: [drawn.length + 2 * i + 1, drawn.length + 2 * i + 2], fill: resolved(s.colour) + "2e" })),
      hooks: { setCursor: [(u) => tell(u.cursor.idx ?? null)] },
    }, [steps, ...[...drawn.map((s) => s.values), ...banded.flatMap((s) => [s.high, s.low])].map((v) => smooth(v, smoothing))], box);
    tell(null);
    // The first call comes at once, with the size that the chart already has.
    const watch = new ResizeObserver(() => box.clientWidth !== plot.width && plot.setSize({ width: box.clientWidth, height }));
    watch.observe(box);
    remove.current = () => { watch.disconnect(); plot.destroy(); };
  }), [key]);
  return html`<figure class="chart">
    <figcaption>${plain(title)}</figcaption>
    <div ref=${place} class="plot" style=${{ minHeight: `${height}px` }}></div>
    <div class="legend" ref=${legend}>
      ${drawn.map((s, i) => html`<span><i class=${i >= 8 ? "dashed" : ""} style=${{ "--own": s.colour }}></i>${plain(s.name)} <b></b></span>`)}<em></em>
    </div>
    ${note && html`<p class="soft">${note}</p>`}
  </figure>`;
}

export const lastOf = (values) => {
  for (let i = values.length - 1; i >= 0; i--) if (values[i] !== null && values[i] !== undefined) return values[i];
  return null;
};

// Metrics that belong in one chart: [{group, title, lines: [{name, key}]}], in the order that people ask for them.
const ORDER = ["Reward", "Evaluation", "Learning", "Play", "Credit", "Judges", "League", "Stream", "Cluster", "Throughput", "Time", "Other"];
const FIRST = ["reward", "win_rate", "entropy", "tokens_per_second"]; // of their groups
const PLAY = /^(turns_|reply_|episodes|tool_calls|history)/;
export function arranged(names, policies) {
  const charts = new Map();
  const put = (group, title, name, key) => {
    const at = `${group}/${title}`;
    if (!charts.has(at)) charts.set(at, { group, title, lines: [] });
    charts.get(at).lines.push({ name, key });
  };
  for (const key of names) {
    const [first, ...rest] = key.split("/");
    if (key === "time") continue;
    if (key === "reward" || key === "reward_kept") put("Reward", "reward", key === "reward" ? "total" : "total of the kept lines", key);
    else if (/^reward(_kept)?$/.test(first)) put("Reward", rest[0], rest.slice(1).join("/") || first, key);
    else if (/^reward(_kept)?_level$/.test(first)) put("Reward", "reward by level", rest.join("/"), key);
    else if (first === "eval") put("Evaluation", rest[0], rest.slice(1).join("/") || rest[0], key);
    else if (policies.includes(first)) put("Learning", rest.join("/"), first, key);
    else if (first === "seconds") put("Time", "seconds per step", rest.join("/"), key);
    else if (first === "league") put("League", rest.slice(0, rest.length > 2 ? 2 : 1).join(" of "), rest.at(-1), key);
    else if (first === "judge") put("Judges", rest.slice(1).join("/"), rest[0], key);
    else if (key.startsWith("stream/age/")) put("Stream", "share of tokens by age in steps", rest[1], key);
    else if (first === "stream") put("Stream", rest.join("/"), rest.join("/"), key);
    else if (first === "cluster") put("Cluster", rest[0], rest.slice(1).join("/") || rest[0], key);
    else if (first === "credit") put("Credit", rest[0], rest.slice(1).join("/") || rest[0], key);
    else if (/^(tokens_|prompt_tokens|memory)/.test(key)) put("Throughput", key, key, key);
    else if (PLAY.test(key)) put("Play", key, key, key);
    else put("Other", key, key, key);
  }
  const place = (chart) => 2 * ORDER.indexOf(chart.group) + (FIRST.includes(chart.title) ? 0 : 1);
  return [...charts.values()].sort((a, b) => place(a) - place(b));
}
