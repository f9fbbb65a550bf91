// One run: its curves, its episodes, its recipe.
import { useEffect, useState } from "preact/hooks";
import { Chart, arranged } from "viewer/charts.js";
import { Empty, Fault, Role, Search, Smooth, Tabs, Waiting, ago, counted, html, num, plain, signed } from "viewer/parts.js";
import { adjust, link } from "viewer/route.js";
import { Progress, State, flat } from "viewer/runs.js";
import { exported, useAnswer } from "viewer/store.js";

export function RunHead({ run, about, at, small }) {
  const can = about.can, count = about.episodes;
  return html`${!small && html`<header class="page"><div>
      <h1>${plain(run)} <${State} of=${about} /></h1>
      <p class="soft">${plain(about.env)}, ${plain(about.algorithm)}, ${plain(about.bases.join(", "))}, seed ${about.seed}; written ${ago(about.updated)}</p>
    </div><${Progress} done=${about.step} of=${about.steps} /></header>`}
    <${Tabs} at=${at} tabs=${[
      { key: "curves", name: "Curves", to: link(["run", run]) },
      { key: "episodes", name: "Episodes", to: link(["run", run, "episodes"]), count: count.train },
      can.league && { key: "league", name: "League", to: link(["run", run, "league"]) },
      (can.evaluation || count.eval > 0) && { key: "evaluation", name: "Evaluation", to: link(["run", run, "evaluation"]) },
      (can.judges || !exported) && { key: "judge", name: "Judge", to: link(["run", run, "judge"]) },
      can.checkpoint && !exported && { key: "play", name: "Play", to: link(["run", run, "play"]) },
      { key: "recipe", name: "Recipe", to: link(["run", run, "recipe"]) },
    ]} />`;
}

export function Curves({ run, about, query }) {
  const { data, error } = useAnswer(`run/${run}/metrics`, {}, run);
  const [smoothing, smooth] = useState(0);
  if (!data) return html`<${Waiting} error=${error} />`;
  if (!data.steps.length) return html`<${Empty}>No step has ended yet.<//>`;
  const policies = Object.keys(about.about.recipe?.policies || {});
  const seated = [...new Set([...policies, ...Object.keys(data.columns).filter((k) => k.endsWith("/loss")).map((k) => k.slice(0, -5))])];
  const wanted = (query.find || "").toLowerCase();
  const charts = arranged(Object.keys(data.columns), seated)
    .filter((c) => !wanted || c.lines.some((l) => l.key.toLowerCase().includes(wanted)));
  const groups = [...new Set(charts.map((c) => c.group))];
  return html`<section>
    <div class="tools"><${Search} label="Find a metric" value=${query.find} onInput=${(text) => adjust({ find: text })} />
      <${Smooth} value=${smoothing} onInput=${smooth} />
      <span class="soft">Drag in a chart to zoom, click twice to zoom out.</span></div>
    ${groups.map((group) => html`<h2 key=${group}>${group}</h2><div class="charts">${charts.filter((c) => c.group === group).map((c) => html`
      <${Chart} key=${c.title} title=${c.title} steps=${data.steps} smoothing=${smoothing}
        series=${c.lines.map((l) => ({ name: l.name, values: data.columns[l.key] }))} />`)}</div>`)}
  </section>`;
}

// -- episodes ---------------------------------------------------------------------------------------------------------

const FILTERS = ["step", "role", "policy", "status", "min", "max", "text", "task", "sort", "page", "source"];

export function Episodes({ run, about, query, source = "train", order = "new" }) {
  const chosen = FILTERS.filter((k) => query[k]);
  const asked = { sort: order, ...Object.fromEntries(chosen.map((k) => [k, query[k]])) };
  if (source !== "train") asked.source = source;
  const { data, error, searching } = useSearch(run, asked);
  const set = (changes) => adjust({ page: "", ...changes });
  if (!data) return html`<${Waiting} error=${error} />`;
  const policies = [...new Set(data.rows.flatMap((r) => [...r.policies, ...Object.values(r.seats)]))];
  return html`<section>
    ${exported ? html`<p class="soft">This page was exported with ${data.rows.length} of ${data.of.toLocaleString("en")} episodes.</p>` : html`
    <div class="tools filters">
      <${Search} label="Text in the record" value=${query.text} onInput=${(text) => set({ text })} />
      ${source === "train" && html`<label>step <input class="small" type="number" min="0" value=${query.step || ""} onChange=${(e) => set({ step: e.target.value })} /></label>`}
      <${Choice} name="role" value=${query.role} among=${about.roles} onChange=${(role) => set({ role })} />
      <${Choice} name="policy" value=${query.policy} among=${policies} onChange=${(policy) => set({ policy })} />
      <${Choice} name="with" value=${query.status} among=${["illegal", "length", "truncated", "error"]} onChange=${(status) => set({ status })} />
      <label>reward <input class="small" type="number" step="any" placeholder="from" value=${query.min || ""} onChange=${(e) => set({ min: e.target.value })} />
        <input class="small" type="number" step="any" placeholder="to" value=${query.max || ""} onChange=${(e) => set({ max: e.target.value })} /></label>
      <${Choice} name="order" value=${query.sort} among=${["new", "old", "best", "worst", "long"].filter((o) => o !== order)} first=${order} onChange=${(sort) => set({ sort })} />
      ${query.task && html`<button class="chip" onClick=${() => set({ task: "" })}>task ${plain(query.task)} ✕</button>`}
      ${chosen.length > 0 && html`<button class="link" onClick=${() => adjust(Object.fromEntries(FILTERS.map((k) => [k, ""])))}>clear</button>`}
    </div>`}
    <p class="soft">${counted(data.total, "episode")}${searching ? `, searched ${data.searched.toLocaleString("en")} of ${data.of.toLocaleString("en")} …` : ""}${data.damaged ? `; ${data.damaged} damaged lines are skipped` : ""}</p>
    <${EpisodeTable} rows=${data.rows} run=${run} roles=${about.roles} source=${source} />
    ${!exported && html`<${Pager} page=${Number(query.page || 0)} total=${data.total} size=${data.page_size} />`}
  </section>`;
}

// A search goes on in the next request where the last one stopped.
function useSearch(run, asked) {
  const [round, again] = useState(0);
  const key = JSON.stringify(asked);
  const query = exported ? {} : { ...asked, round: round || undefined };
  if (exported && asked.source) query.source = asked.source;
  const { data, error } = useAnswer(`run/${run}/episodes`, query, run);
  const [kept, keep] = useState(null);
  useEffect(() => again(0), [key]);
  useEffect(() => {
    if (!data) return;
    keep({ key, data });
    if (data.searched < data.of && !exported) again((n) => n + 1);
  }, [data]);
  const shown = data || (kept && kept.key === key ? kept.data : null);
  return { data: shown, error, searching: shown && shown.searched < shown.of };
}

const Choice = ({ name, value, among, onChange, first = "any" }) => html`<label>${name}
  <select value=${value || ""} onChange=${(e) => onChange(e.target.value)}>
    <option value="">${first}</option>${[...new Set([...(value ? [value] : []), ...among])].map((one) => html`<option value=${one} selected=${one === value}>${plain(one)}</option>`)}</select></label>`;

export const Pager = ({ page, total, size }) => {
  const pages = Math.ceil(total / size);
  return pages > 1 && html`<p class="pager"><button disabled=${page === 0} onClick=${() => adjust({ page: page - 1 || "" })}>←</button>
    page ${page + 1} of ${pages}<button disabled=${page + 1 >= pages} onClick=${() => adjust({ page: page + 1 })}>→</button></p>`;
};

export function EpisodeTable({ rows, run, roles, source = "train" }) {
  if (!rows.length) return html`<${Empty}>No such episodes.<//>`;
  const named = rows[0] && roles.every((r) => r in rows[0].seats) ? roles : Object.keys(rows[0].seats);
  return html`<div class="scroll"><table class="list episodes"><thead><tr>
      ${source === "train" && html`<th class="n">step</th>`}<th>episode</th>${named.map((role) => html`<th><${Role} name=${role} roles=${named} /></th>`)}
      <th class="n">turns</th><th class="n">tokens</th><th>end</th><th></th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.number}>
      ${source === "train" && html`<td class="n">${row.step}</td>`}
      <td><a class="strong" href=${link(["run", run, "episode"], { step: row.step, id: row.id, source: source === "train" ? "" : source })}>${plain(row.id)}</a></td>
      ${named.map((role) => html`<td class="nowrap"><span class="soft">${plain(row.seats[role] ?? "")}</span> <b class=${row.reward[role] > 0 ? "up" : row.reward[role] < 0 ? "down" : ""}>${row.reward[role] === undefined ? "" : signed(row.reward[role])}</b></td>`)}
      <td class="n">${row.turns}</td><td class="n">${num(row.tokens)}</td>
      <td class="soft end">${plain(row.ended.split("\n").at(-1))}</td>
      <td class="nowrap">${row.candidates > 1 && html`<span class="chip">${row.candidates} candidates</span>`}${row.tools > 0 && html`<span class="chip">${counted(row.tools, "call")}</span>`}
        ${row.statuses.filter((s) => s !== "ok").map((s) => html`<span class="chip warn">${s}</span>`)}
        ${row.truncated && html`<span class="chip warn">cut</span>`}${row.error && html`<span class="chip bad" title=${plain(row.error)}>error</span>`}</td>
    </tr>`)}</tbody></table></div>`;
}

// -- recipe -----------------------------------------------------------------------------------------------------------

const UNSET = ["null", "[]", "{}", '""'];

export function RecipePage({ about }) {
  const [wanted, find] = useState("");
  const [all, every] = useState(false);
  const recipe = flat(about.about.recipe || {});
  const rows = Object.entries(recipe).filter(([k, v]) => (all || !UNSET.includes(v)) && `${k} ${v}`.toLowerCase().includes(wanted.toLowerCase()));
  const { recipe: _, versions, ...rest } = about.about;
  const line = (session) => ({ ...session, command: (session.command || []).join(" ") });
  const made = rest.sessions?.length ? { ...rest, sessions: rest.sessions.map(line) } : { ...rest, versions }; // each session has its own versions
  return html`<section>
    ${!about.about.recipe && html`<${Fault} text="run.json is missing or damaged." />`}
    <div class="columns"><div><div class="tools"><h2>Recipe</h2><${Search} label="Find a key" onInput=${find} />
      <label class="soft"><input type="checkbox" checked=${all} onChange=${() => every(!all)} /> keys that are not set</label></div>
      <table class="list pairs"><tbody>${rows.map(([k, v]) => html`<tr><td><code>${plain(k)}</code></td><td><code>${plain(v)}</code></td></tr>`)}</tbody></table></div>
    <div><div class="tools"><h2>Made with</h2></div><table class="list pairs"><tbody>${Object.entries(flat(made)).map(([k, v]) => html`<tr><td><code>${plain(k)}</code></td><td><code>${plain(v)}</code></td></tr>`)}</tbody></table></div></div>
  </section>`;
}
