// Where an advantage comes from: rewards → return → baseline → advantage.
import { Fault, Waiting, html, num, plain, signed } from "viewer/parts.js";
import { adjust } from "viewer/route.js";
import { useAnswer } from "viewer/store.js";

const FORMULAS = {
  centred: "A = return − mean of the group",
  scaled: "A = (return − mean of the group) / standard deviation of the group",
  leave_one_out: "A = return − mean of the other returns",
  rule: "A = a rule of the algorithm, applied to the returns of the group",
};

export function Explanation({ run, query, to }) {
  const { data, error } = useAnswer(`run/${run}/explain`, { step: query.step, id: query.id, source: query.source, turn: query.explain }, run);
  return html`<aside class="explain" aria-label="Where this number comes from">
    <header><h3>Where does this number come from?</h3><button class="link" onClick=${() => adjust({ explain: "" })} title="Escape">✕</button></header>
    <p class="soft">${plain(query.explain)}</p>
    ${!data ? html`<${Waiting} error=${error} />` : html`<${Steps} data=${data} to=${to} />`}
  </aside>`;
}

// Candidates of a tree that all say the same are not played on.
export const Unplayed = ({ data }) => html`<p>All ${data.members.length} candidates say the same, so there is nothing to compare: they were not played on, no return was measured, and every advantage is 0.</p>`;

function Steps({ data, to }) {
  if (data.unplayed) return html`<${Unplayed} data=${data} />`;
  const compared = data.kind === "replies" || data.kind === "episodes";
  return html`<ol class="steps">
    <li><h4>Rewards</h4><${RewardSum} data=${data} /></li>
    <li><h4>Return <b>${num(data.return)}</b></h4><p>${RETURNS[data.kind](data)}</p></li>
    ${compared && html`<li><h4>Baseline <b>${num(data.baseline)}</b></h4><${Baseline} data=${data} to=${to} /></li>`}
    ${data.kind === "value" && html`<li><h4>Critic <b>${num(data.value)}</b></h4><p>The critic's value of the prompt before this reply, trained towards ${num(data.target)}. The return was ${data.return >= data.value ? "higher" : "lower"} by ${num(Math.abs(data.return - data.value))}.</p></li>`}
    <li><h4>Advantage <b>${data.advantage === null ? "none" : signed(data.advantage)}</b></h4><${Outcome} data=${data} /></li>
  </ol>
  <details><summary>About ${plain(data.algorithm || "the algorithm")}</summary><pre class="doc">${plain(data.about)}</pre></details>`;
}

const RETURNS = {
  replies: () => "What this candidate earned on its own fork of the game: the rewards of its step and the mean of what followed there.",
  episodes: (data) => `The sum of the role's rewards in this episode${data.gamma < 1 ? `, discounted by ${num(data.gamma)} for each of its turns` : ""}. All turns of the role share it.`,
  value: (data) => `The sum of the role's rewards from this turn on${data.gamma < 1 ? `, discounted by ${num(data.gamma)} for each turn` : ""}.`,
  other: (data) => `The sum of the role's rewards from this turn on${data.gamma < 1 ? `, discounted by ${num(data.gamma)} for each turn` : ""}.`,
};

function RewardSum({ data }) {
  const rows = data.rewards || [];
  const factor = (r) => r.weight * (r.discount ?? 1);
  if (!rows.length) return html`<p>No rewards, so the sum is 0.</p>`;
  return html`<table class="sum"><tbody>${rows.map((r) => html`<tr>
    <td>${plain(r.name)} <span class="soft">${r.level}${r.decision !== undefined ? `, turn ${r.decision + 1}` : ""}</span></td>
    <td class="n">${r.value === null ? "not scored" : signed(r.value)}</td><td class="n soft">${r.value !== null && `× ${num(factor(r))}`}</td>
    <td class="n">${r.value !== null && signed(r.value * factor(r))}</td></tr>`)}</tbody></table>`;
}

// A warning if the baseline cannot be the one that was used.
export const Partial = ({ data }) => data.expected !== null && data.members.length < data.expected && html`<${Fault} text=${`Only ${data.members.length} of ${data.expected} episodes of this group were recorded (records.episodes_per_step), so the baseline here is not the one that was used.`} />`;

function Baseline({ data, to }) {
  const low = Math.min(...data.returns), high = Math.max(...data.returns), span = high - low || 1;
  const x = (v) => 6 + 88 * ((v - low) / span);
  return html`<p>${data.members.length} ${data.kind === "replies" ? "replies to the same prompt" : "episodes of the same task, in this role"}; mean ${num(data.mean)}, standard deviation ${num(data.deviation)}.</p>
    <${Partial} data=${data} />
    <svg class="dots" viewBox="0 0 100 16" preserveAspectRatio="none" role="img" aria-label="returns of the group">
      <line x1="4" x2="96" y1="8" y2="8" /><line class="mean" x1=${x(data.mean)} x2=${x(data.mean)} y1="1" y2="15" /></svg>
    <div class="over">${data.members.map((m) => html`<i class=${m.turn === data.turn ? "own" : ""} style=${{ left: `${x(m.return)}%` }} title=${`${plain(m.text.slice(0, 60))}: ${num(m.return)}`}></i>`)}</div>
    <p class="soft"><code>${FORMULAS[data.formula]}</code> <a href=${to({ view: "group", turn: data.turn, explain: data.turn })}>see the group</a></p>`;
}

function Outcome({ data }) {
  if (data.advantage === null) return html`<p>This turn was not trained on: it has no advantage.</p>`;
  const close = data.recomputed !== undefined && data.recomputed !== null && Math.abs(data.recomputed - data.advantage) <= 1e-6 * Math.max(1, Math.abs(data.advantage));
  return html`${data.per_token && html`<p>Each token has its own advantage; this is the largest. The page of tokens shows all of them.</p>`}
    ${data.recomputed === undefined || data.recomputed === null ? html`<p>As recorded in training.</p>`
      : close ? html`<p class="ok">✓ The formula with these numbers gives the recorded advantage.</p>`
        : html`<p>The formula with these numbers gives ${signed(data.recomputed)}. The recorded advantage differs: the group here is not complete, or the algorithm does more than this formula.</p>`}`;
}
