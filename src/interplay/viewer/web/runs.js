// The list of runs, and runs beside each other.
import { useEffect, useState } from "preact/hooks";
import { Chart, arranged, lastOf } from "viewer/charts.js";
import { Empty, Search, Smooth, Sparkline, Waiting, ago, counted, html, hue, num, percent, plain } from "viewer/parts.js";
import { adjust, decoded, go, link, useKeys } from "viewer/route.js";
import { estimate, meanCurve, sameRecipe, written } from "viewer/seeds.js";
import { useAnswer } from "viewer/store.js";

const joined = (keys) => keys.map(encodeURIComponent).join(","); // a name may have a comma in it

let placed = location.hash !== ""; // else the page was opened without a place in it

export function Runs({ query }) {
  const { data, error } = useAnswer("runs", {}, "*");
  useEffect(() => {
    if (data && !placed && data.length === 1) go(["run", data[0].key], {}, true); // there is nothing to choose from
    placed = placed || Boolean(data);
  }, [data]);
  const [chosen, choose] = useState([]);
  const [wanted, find] = useState("");
  useKeys({ c: () => chosen.length > 1 && go(["compare"], { runs: joined(chosen) }) });
  if (!data) return html`<${Waiting} error=${error} />`;
  const shown = data.filter((run) => JSON.stringify([run.key, run.name, run.env, run.algorithm, run.bases]).toLowerCase().includes(wanted.toLowerCase()));
  const toggle = (key) => choose((now) => (now.includes(key) ? now.filter((k) => k !== key) : [...now, key]));
  return html`<main>
    <header class="page"><div><h1>Runs</h1><p class="soft">${counted(data.length, "run")}${data.length === 1 ? "." : "; choose two or more to compare them."}</p></div>
      <div class="tools"><${Search} label="Find a run" value=${wanted} onInput=${find} />
        <a class=${"button " + (chosen.length > 1 ? "" : "off")} href=${chosen.length > 1 ? link(["compare"], { runs: joined(chosen) }) : undefined}>Compare ${chosen.length || ""}</a></div>
    </header>
    ${data.length === 0 ? html`<${Empty}>No runs here yet. A run shows up when it begins: interplay train RECIPE<//>` : html`
    <div class="scroll"><table class="list"><thead><tr>
      <th></th><th>run</th><th>environment</th><th>algorithm</th><th>model</th><th class="n">seed</th><th>steps</th><th>reward</th><th>wins against</th><th>written</th>
    </tr></thead><tbody>${shown.map((run) => html`<tr key=${run.key}>
      <td><input type="checkbox" aria-label=${`choose ${run.key}`} checked=${chosen.includes(run.key)} onChange=${() => toggle(run.key)} /></td>
      <td><a class="strong" href=${link(["run", run.key])}>${plain(run.key)}</a> <${State} of=${run} /></td>
      <td>${plain(run.env)}</td><td>${plain(run.algorithm)}</td><td>${plain(run.bases.join(", "))}</td><td class="n">${run.seed}</td>
      <td><${Progress} done=${run.step} of=${run.steps} /></td>
      <td class="nowrap"><${Sparkline} values=${run.curve} /> <b>${num(run.reward)}</b></td>
      <td>${Object.entries(run.wins).map(([who, share]) => html`<span class="chip">${plain(who.replace("bot:", ""))} ${percent(share)}</span>`)}</td>
      <td class="soft nowrap">${ago(run.updated)}</td>
    </tr>`)}</tbody></table></div>`}
  </main>`;
}

export const State = ({ of }) => of.state && html`<span class=${of.state === "training" ? "live" : "chip warn"}>${of.state}</span>`;

export const Progress = ({ done, of }) => html`<span class="progress" title=${`${done} of ${counted(of, "step")}`}>
  <i style=${{ width: `${of ? Math.min(100, (100 * done) / of) : 0}%` }}></i><span>${done} / ${of}</span></span>`;

// -- comparing --------------------------------------------------------------------------------------------------------

export function Compare({ query }) {
  const keys = (query.runs || "").split(",").filter(Boolean).map(decoded);
  return html`<main>
    <header class="page"><div><h1>Compare</h1><p>${keys.map((key) => html`<a class="chip" href=${link(["run", key])}>${plain(key)}</a>`)}</p></div></header>
    ${keys.length ? html`<${Overlay} keys=${keys} joined=${query.seeds === "together"} wanted=${query.find || ""} /><${Differences} keys=${keys} />` : html`<${Empty}>Choose runs in the list of runs.<//>`}
  </main>`;
}

function useAll(keys, question) {
  // The number of runs is fixed by the address, so the number of hooks is too.
  return keys.map((key) => useAnswer(`run/${key}/${question}`, {}, key));
}

function Overlay({ keys, joined, wanted }) {
  const found = useAll(keys, "metrics"), about = useAll(keys, "about");
  const [smoothing, smooth] = useState(0);
  const failed = [...found, ...about].find((x) => x.error);
  if (found.some((x) => !x.data) || about.some((x) => !x.data)) return html`<${Waiting} error=${failed?.error} />`;
  const policies = [...new Set(about.flatMap((x) => Object.keys(x.data.about.recipe?.policies || {})))];
  const names = [...new Set(found.flatMap((x) => Object.keys(x.data.columns)))];
  const steps = [...new Set(found.flatMap((x) => x.data.steps))].sort((a, b) => a - b);
  const place = found.map((x) => new Map(x.data.steps.map((step, i) => [step, i])));
  const column = (i, metric) => steps.map((step) => found[i].data.columns[metric]?.[place[i].get(step)] ?? null);
  const same = sameRecipe(about.map((x) => flat(x.data.about.recipe || {})));
  const rows = (joined ? same : keys.map((_, i) => [i])).map((runs, i) => ({ runs, colour: hue(i), name: keys[runs[0]] + (runs.length > 1 ? ` and ${runs.length - 1} more` : "") }));
  const drawn = (metric) => rows.map((row) => ({ ...row, ...(row.runs.length > 1 ? meanCurve(row.runs.map((i) => column(i, metric))) : { values: column(row.runs[0], metric) }) }));
  const charts = arranged(names, policies).flatMap((chart) => chart.lines.map((line) => ({ ...chart, line })))
    .filter(({ line, group }) => (wanted ? line.key.toLowerCase().includes(wanted.toLowerCase())
      : ["Reward", "Evaluation", "Learning"].includes(group)));
  return html`<section><${Latest} rows=${rows} column=${column} names=${names} />
    <div class="tools"><h2>Curves</h2><${Search} label="Find a metric" value=${wanted} onInput=${(text) => adjust({ find: text })} /><${Smooth} value=${smoothing} onInput=${smooth} />
      ${same.some((runs) => runs.length > 1) && html`<label class="soft"><input type="checkbox" checked=${joined} onChange=${() => adjust({ seeds: joined ? "" : "together" })} /> seeds together: the mean of runs that differ only in their seed, with its 95% interval</label>`}</div>
    <div class="charts">${charts.slice(0, 60).map(({ line }) => html`<${Chart} key=${line.key} title=${line.key} steps=${steps} smoothing=${smoothing}
      series=${drawn(line.key).filter((s) => s.values.some((v) => v !== null))} />`)}</div></section>`;
}

// The latest value of what people compare first. A run that has not measured it has none.
function Latest({ rows, column, names }) {
  const shown = names.filter((n) => n === "reward" || n === "reward_kept" || n.startsWith("eval/win_rate/") || n === "eval/exploitability").slice(0, 8);
  if (!shown.length) return null;
  const cell = (row, metric) => {
    const last = row.runs.map((i) => lastOf(column(i, metric)));
    return last.includes(null) ? "–" : written(estimate(last));
  };
  return html`<h2>Latest values</h2><div class="scroll"><table class="list latest"><thead><tr><th>run</th>${shown.map((n) => html`<th class="n">${plain(n)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr><td class="nowrap"><i class="swatch" style=${{ background: row.colour }}></i>${plain(row.name)}</td>${shown.map((n) => html`<td class="n">${cell(row, n)}</td>`)}</tr>`)}</tbody></table></div>`;
}

// A table with a key such as a.b.0.c for each value. A list is one value, unless there are tables in it.
export function flat(data, prefix = "") {
  const table = (v) => v !== null && typeof v === "object" && (!Array.isArray(v) || v.some(table));
  if (!table(data)) return { [prefix]: JSON.stringify(data) };
  return Object.assign({}, ...Object.entries(data).map(([k, v]) => flat(v, prefix ? `${prefix}.${k}` : k)));
}

function Differences({ keys }) {
  const about = useAll(keys, "about");
  if (about.some((x) => !x.data)) return null;
  const recipes = about.map((x) => flat(x.data.about.recipe || {}));
  const names = [...new Set(recipes.flatMap(Object.keys))].filter((name) => new Set(recipes.map((r) => r[name])).size > 1).sort();
  return html`<section><h2>What differs in the recipes</h2>
    ${names.length === 0 ? html`<${Empty}>Nothing: the recipes are the same.<//>` : html`
    <div class="scroll"><table class="list"><thead><tr><th>key</th>${keys.map((key) => html`<th>${plain(key)}</th>`)}</tr></thead>
    <tbody>${names.map((name) => html`<tr><td><code>${plain(name)}</code></td>${recipes.map((r) => html`<td><code>${r[name] === undefined ? html`<span class="soft">not set</span>` : plain(r[name])}</code></td>`)}</tr>`)}</tbody></table></div>`}
  </section>`;
}
