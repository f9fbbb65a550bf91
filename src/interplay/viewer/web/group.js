// The replies that share a baseline: candidates of one decision, or episodes of one task.
import { Partial, Unplayed } from "viewer/explain.js";
import { Advantage, Empty, Waiting, diverging, html, num, plain } from "viewer/parts.js";
import { adjust, link } from "viewer/route.js";
import { useAnswer } from "viewer/store.js";

export function Group({ run, query, data, roles, to, most }) {
  const trained = data.turns.filter((t) => t.advantage !== null);
  const turn = query.turn && data.turns.some((t) => t.id === query.turn) ? query.turn : (trained.find((t) => t.kept) || trained[0])?.id;
  const { data: found, error } = useAnswer(turn ? `run/${run}/explain` : null, { step: query.step, id: query.id, source: query.source, turn }, run);
  if (!turn) return html`<${Empty}>No turn of this episode has an advantage.<//>`;
  return html`<${TurnChoice} turns=${data.turns.filter((t) => t.kept && t.advantage !== null || t.id === turn)} at=${turn} />
    ${!found ? html`<${Waiting} error=${error} />` : !found.members.length
      ? html`<${Empty}>${plain(found.algorithm || "This algorithm")} compares with ${found.kind === "value" ? "a critic" : "its own baseline"}, not with a group.<//>`
      : html`<${Members} found=${found} run=${run} query=${query} to=${to} most=${most} />`}`;
}

export const TurnChoice = ({ turns, at }) => html`<div class="tools turns">${turns.map((t) => html`
  <button class=${"chip " + (t.id === at ? "here" : "")} onClick=${() => adjust({ turn: t.id, sample: "" })}>${t.decision + 1} ${plain(t.role)}: ${plain(t.text.slice(0, 14))}</button>`)}</div>`;

function Members({ found, run, query, to, most }) {
  const low = Math.min(...found.returns, 0), high = Math.max(...found.returns, 0), span = high - low || 1;
  const sorted = [...found.members].sort((a, b) => b.return - a.return);
  return html`${found.unplayed ? html`<${Unplayed} data=${found} />` : html`<p class="soft">${found.members.length} ${found.kind === "replies" ? "replies to the same prompt" : "episodes of the same task"}, best first; mean ${num(found.mean)}, standard deviation ${num(found.deviation)}.</p>`}
    <${Partial} data=${found} />
    <div class="scroll"><table class="list group"><thead><tr><th class="n">return</th><th></th><th>advantage</th><th>reply</th><th class="n">tokens</th><th></th></tr></thead>
    <tbody>${sorted.map((m) => html`<tr class=${m.turn === found.turn ? "own" : ""}>
      <td class="n">${found.unplayed ? "–" : num(m.return)}</td>
      <td><span class="barline"><i style=${{ left: `${(100 * (Math.min(m.return, 0) - low)) / span}%`, width: `${(100 * Math.abs(m.return)) / span}%`, background: diverging(m.return, Math.max(Math.abs(low), Math.abs(high))) }}></i><i class="mean" style=${{ left: `${(100 * (found.mean - low)) / span}%` }}></i></span></td>
      <td><${Advantage} value=${m.advantage} most=${most} onClick=${() => (m.episode === query.id ? adjust({ explain: m.turn }) : (location.hash = link(["run", run, "episode"], { step: m.step, id: m.episode, source: query.source, view: "group", turn: m.turn, explain: m.turn }).slice(1)))} /></td>
      <td class="reply"><a href=${m.episode === query.id ? to({ view: "tokens", turn: m.turn }) : link(["run", run, "episode"], { step: m.step, id: m.episode, source: query.source })}>${plain(m.text.slice(0, 300)) || "(nothing)"}</a></td>
      <td class="n">${m.tokens}</td>
      <td>${found.kind === "replies" && m.kept && html`<span class="chip">kept</span>`}${m.status !== "ok" && html`<span class="chip warn">${m.status}</span>`}${found.kind === "episodes" && html`<span class="soft">${plain(m.episode)}</span>`}</td>
    </tr>`)}</tbody></table></div>`;
}
