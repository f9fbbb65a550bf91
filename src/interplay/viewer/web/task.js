// The same task over the steps of a run.
import { Chart } from "viewer/charts.js";
import { Waiting, counted, html, hue, plain } from "viewer/parts.js";
import { EpisodeTable } from "viewer/run.js";
import { useAnswer } from "viewer/store.js";

export function TaskPage({ run, query, about }) {
  const { data, error } = useAnswer(`run/${run}/task`, { id: query.id, source: query.source }, run);
  if (!data) return html`<${Waiting} error=${error} />`;
  const steps = [...new Set(data.rows.map((r) => r.step))].sort((a, b) => a - b);
  const roles = Object.keys(data.rows[0]?.seats || {});
  const mean = (role, step) => { const found = data.rows.filter((r) => r.step === step && role in r.reward).map((r) => r.reward[role]); return found.length ? found.reduce((a, b) => a + b, 0) / found.length : null; };
  return html`<section><h2>Task ${plain(data.task)}</h2>
    <p class="soft">${counted(data.total, "recorded episode")}${data.rows.length < data.total ? `, the first ${data.rows.length} are shown` : ""}.</p>
    ${steps.length > 1 && html`<div class="charts"><${Chart} title="mean reward of a step" steps=${steps} series=${roles.map((role, i) => ({ name: role, colour: hue(i), values: steps.map((s) => mean(role, s)) }))} /></div>`}
    <${EpisodeTable} rows=${data.rows} run=${run} roles=${roles} source=${query.source || "train"} /></section>`;
}
