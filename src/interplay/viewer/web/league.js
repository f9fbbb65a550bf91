// A league: who beats whom, how often each is met, and ratings over time.
import { useState } from "preact/hooks";
import { Chart, lastOf } from "viewer/charts.js";
import { Empty, Waiting, html, num, plain } from "viewer/parts.js";
import { useAnswer } from "viewer/store.js";

const born = (name) => { const at = name.split("@")[1]; return at === undefined ? -2 : at === "start" ? -1 : at === "now" ? 1e9 : Number(at); };

export function League({ run }) {
  const { data, error } = useAnswer(`run/${run}/metrics`, {}, run);
  const { data: ladder } = useAnswer(`run/${run}/ladder`, {}, run);
  const [chosen, choose] = useState(null);
  if (!data) return html`<${Waiting} error=${error} />`;
  const of = (prefix) => Object.keys(data.columns).filter((k) => k.startsWith(prefix));
  const scores = of("league/score/").map((key) => { const [, , learner, ...rest] = key.split("/"); return { key, learner, opponent: rest.join("/") }; });
  if (!scores.length) return html`<${Empty}>No games of the league were recorded yet.<//>`;
  const at = chosen === null ? data.steps.length - 1 : chosen;
  const learners = [...new Set(scores.map((s) => s.learner))];
  const opponents = [...new Set(scores.map((s) => s.opponent))].sort((a, b) => born(a) - born(b) || (a < b ? -1 : 1));
  const value = (kind, learner, opponent) => data.columns[`league/${kind}/${learner}/${opponent}`]?.[at];
  const panel = [...of("league/rating/"), ...of("league/panel/")];
  return html`<section>
    <h2>Who beats whom</h2>
    <div class="tools"><label class="soft">at step <input type="range" min="0" max=${data.steps.length - 1} value=${at} onInput=${(e) => choose(Number(e.target.value))} /> <b>${data.steps[at]}</b></label>
      <span class="soft">The learner's score against each opponent: a win is 1, a draw ½. Recent games count most. Below it, the chance that it is drawn.</span></div>
    <div class="scroll"><table class="matrix"><thead><tr><th></th>${opponents.map((o) => html`<th>${plain(o)}</th>`)}</tr></thead>
      <tbody>${learners.map((learner) => html`<tr><th>${plain(learner)}</th>${opponents.map((opponent) => {
        const score = value("score", learner, opponent), chance = value("chance", learner, opponent);
        const known = score !== null && score !== undefined;
        return html`<td style=${{ background: known ? `color-mix(in srgb, ${score >= 0.5 ? "var(--good)" : "var(--bad)"} ${Math.round(120 * Math.abs(score - 0.5))}%, transparent)` : "" }}>
          ${known ? html`<b>${score.toFixed(2)}</b>` : html`<span class="soft">–</span>`}${chance !== null && chance !== undefined && html`<small>${(100 * chance).toFixed(0)}%</small>`}</td>`;
      })}</tr>`)}</tbody></table></div>
    <div class="charts wide">${learners.map((learner) => html`<${Chart} title=${`score of ${learner} against each opponent`} steps=${data.steps} height=${240}
      series=${opponents.filter((o) => data.columns[`league/score/${learner}/${o}`]).map((o) => ({ name: o, values: data.columns[`league/score/${learner}/${o}`] }))} />`)}
      ${ladder && ladder.steps.length > 0 && html`<${Chart} title="ratings" steps=${ladder.steps} height=${240} series=${Object.entries(ladder.ratings).map(([name, values]) => ({ name, values }))}
        note="From all games between a learner and earlier versions, at the steps at which snapshots were saved (Elo: 400 points are odds of ten to one). Where strategies beat each other in a circle, no rating can show it." />`}
      ${panel.length > 0 && html`<${Chart} title="scores against the panel" steps=${data.steps} height=${240} series=${panel.map((key) => ({ name: key.split("/").slice(2).join(" against "), values: data.columns[key] }))} />`}
      ${of("league/size").length > 0 && html`<${Chart} title="snapshots and lives" steps=${data.steps} height=${240} series=${[...of("league/size"), ...of("league/life/")].map((key) => ({ name: key.slice(7), values: data.columns[key] }))} />`}
    </div>
    <p class="soft">${opponents.length} opponents; the league has ${num(lastOf(data.columns["league/size"] || []))} snapshots.</p>
  </section>`;
}
