// Evaluations: tables with intervals, and the best and worst games.
import { useState } from "preact/hooks";
import { Empty, Interval, Waiting, counted, html, num, percent, plain, signed } from "viewer/parts.js";
import { Episodes } from "viewer/run.js";
import { useAnswer } from "viewer/store.js";

export function Evaluation({ run, about, query }) {
  const { data, error } = useAnswer(`run/${run}/evaluation`, {}, run);
  if (!data) return html`<${Waiting} error=${error} />`;
  const stages = Object.entries(data.report?.results || {}).filter(([, results]) => results.length > 0); // a recipe may have no opponents
  const exploitability = Object.entries(data.report?.exploitability || {});
  return html`<section>
    ${!stages.length && !exploitability.length && !data.eval && html`<${Empty}>No evaluation yet. Measure the run with: interplay eval RUN<//>`}
    ${stages.length > 0 && html`<h2>${stages.length > 1 ? "Before and after" : `${stages[0][0][0].toUpperCase()}${stages[0][0].slice(1)} training`}</h2><${Stages} stages=${stages} />`}
    ${exploitability.length > 0 && html`<p>Exploitability: ${exploitability.map(([stage, r]) => html`<span class="chip">${stage} ${num(r["eval/exploitability"])}</span>`)}</p>`}
    ${data.eval && html`<${Suite} found=${data.eval} />`}
    ${data.episodes > 0 && html`<h2>Games</h2><p class="soft">Best and worst are by the mean reward of the roles that policies played, or by that of the chosen role.</p><${Episodes} run=${run} about=${about} query=${query} source="eval" order="worst" />`}
  </section>`;
}

function Stages({ stages }) {
  const names = stages.map(([stage]) => stage);
  const rows = new Map();
  for (const [stage, results] of stages) for (const r of results) {
    const key = `${r.opponent}\u0000${r.role}\u0000${r.policy}`;
    if (!rows.has(key)) rows.set(key, { ...r, at: {} });
    rows.get(key).at[stage] = r;
  }
  const drawn = [...rows.values()].some((row) => Object.values(row.at).some((r) => r.draws > 0));
  return html`<div class="scroll"><table class="list stages"><thead><tr><th>policy</th><th>against</th><th>seat</th>${names.map((n) => html`<th colspan="2" class="first">${names.length > 1 ? `${n}: wins` : "wins"}</th><th class="n">reward</th>${drawn && html`<th class="n">draws</th>`}<th class="n">illegal</th>`)}<th class="n">games</th></tr></thead>
    <tbody>${[...rows.values()].map((row) => html`<tr><td>${plain(row.policy)}</td><td>${plain(row.opponent)}</td><td>${plain(row.role)}</td>
      ${names.map((n) => html`<${Stage} found=${row.at[n]} drawn=${drawn} />`)}
      <td class="n">${row.games}</td></tr>`)}</tbody></table></div>
    <p class="soft">Wins (of a team: successes) as a share of the games, with the 95% interval on a bar from 0 to 100%. Illegal: the share of moves that were not allowed.</p>`;
}

const Stage = ({ found: r, drawn }) => r ? html`<td class="n first"><b>${percent(r.win_rate)}</b></td><td><${Interval} value=${r.win_rate} low=${r.win_low} high=${r.win_high} /></td>
  <td class="n">${signed(r.reward)}</td>${drawn && html`<td class="n">${percent(r.draws / r.games)}</td>`}<td class="n">${percent(r.illegal_rate)}</td>`
  : html`<td class="first" colspan=${drawn ? 5 : 4}></td>`;

function Suite({ found }) {
  const [open, show] = useState(null);
  return html`<h2>interplay eval</h2>
    <p class="soft">${plain(found.env)}, ${found.split} tasks, ${found.games} for each seed (${found.seeds.join(", ")}), ${counted(found.samples, "game")} each, temperature ${num(found.temperature)}${found.legal ? ", only legal replies" : ""}.</p>
    ${found.results.length > 0 && html`<div class="scroll"><table class="list"><thead><tr><th>policy</th><th>against</th><th>seat</th><th colspan="2">success</th><th class="n">score</th><th class="n">illegal</th><th class="n">tokens</th><th class="n">games</th><th></th></tr></thead>
    <tbody>${found.results.map((r, i) => html`<tr><td>${plain(r.policy)}</td><td>${plain(r.opponent)}</td><td>${plain(r.role)}</td>
      <td class="n"><b>${percent(r.win_rate)}</b></td><td><${Interval} value=${r.win_rate} low=${r.win_low} high=${r.win_high} /></td>
      <td class="n">${num(r.reward)}</td><td class="n">${percent(r.illegal_rate)}</td><td class="n">${num(r.tokens_per_episode)}</td><td class="n">${r.games}</td>
      <td><button class="link" onClick=${() => show(open === i ? null : i)}>tasks</button></td></tr>
      ${open === i && html`<tr><td colspan="10"><${Tasks} tasks=${r.tasks} /></td></tr>`}`)}</tbody></table></div>`}
    ${found.results.some((r) => Object.keys(r.pass_at_k || {}).length > 1) && html`<h3>pass@k</h3><table class="list"><tbody>${found.results.map((r) => html`<tr><td>${plain(r.policy)} against ${plain(r.opponent)}, ${plain(r.role)}</td>${Object.entries(r.pass_at_k).map(([k, e]) => html`<td class="n">k = ${k}: <b>${percent(e.value)}</b> <small class="soft">${percent(e.low)} to ${percent(e.high)}</small></td>`)}</tr>`)}</tbody></table>`}
    ${found.budget && html`<${Budget} found=${found.budget} />`}
    ${Object.entries(CHANGES).map(([kind, title]) => found[kind]?.length > 0 && html`<h3>${title}</h3><div class="scroll"><table class="list"><thead><tr><th>change</th><th>against</th><th class="n">success</th><th class="n">drop (95%)</th><th class="n">games</th></tr></thead>
      <tbody>${found[kind].map((c) => html`<tr><td>${plain(c.what)}</td><td>${plain(c.opponent)}</td><td class="n"><b>${percent(c.won.value)}</b></td><td class="n"><${Points} found=${c.won_drop} /></td><td class="n">${c.games}</td></tr>`)}</tbody></table></div>`)}`;
}

const CHANGES = { without: "Each agent replaced", mute: "Each channel muted", swap: "Policies in each other's roles" };

// A difference of two shares in percentage points, with its interval.
const points = (v) => signed(Math.round(1000 * v) / 10);
const Points = ({ found }) => found ? html`<b>${points(found.value)}</b> <small class="soft">${points(found.low)} to ${points(found.high)}</small>` : "–";

function Budget({ found }) {
  return html`<h3>One agent with the tokens of the team</h3>
    <p class="soft">${plain(found.policy)} as ${plain(found.role)}; ${counted(found.tasks.length, "task")}. Budget, used and episodes are means per task.</p>
    <div class="scroll"><table class="list budget"><thead><tr><th>who</th><th class="n">success</th><th class="n">budget</th><th class="n">used</th><th class="n">episodes</th><th class="n">team ahead (95%)</th></tr></thead>
    <tbody>${found.ways.map((w) => html`<tr><td>${plain(w.name)}</td><td class="n"><b>${percent(w.won.value)}</b></td><td class="n">${num(w.budget)}</td><td class="n">${num(w.used)}</td><td class="n">${num(w.episodes)}</td><td class="n"><${Points} found=${w.gap} /></td></tr>`)}</tbody></table></div>`;
}

const Tasks = ({ tasks }) => html`<div class="scroll tall"><table class="list"><thead><tr><th>task</th><th class="n">won</th><th class="n">score</th><th class="n">tokens</th><th class="n">turns</th></tr></thead><tbody>${[...tasks].sort((a, b) => a.score - b.score).slice(0, 500).map((t) => html`<tr><td>${plain(t.task)}</td><td class="n">${t.won} of ${t.games}</td><td class="n">${num(t.score)}</td><td class="n">${num(t.tokens)}</td><td class="n">${num(t.turns)}</td></tr>`)}</tbody></table></div>`;
