// One episode: a column for each role, with what it saw and said; the tree, the tokens and the group beside it.
import { useState } from "preact/hooks";
import { Explanation } from "viewer/explain.js";
import { Group } from "viewer/group.js";
import { Verdict } from "viewer/judge.js";
import { Advantage, Fault, Long, Messages, Rewards, Role, Tabs, Waiting, counted, html, num, plain, signed, summed } from "viewer/parts.js";
import { adjust, go, link, useKeys } from "viewer/route.js";
import { useAnswer } from "viewer/store.js";
import { Tokens } from "viewer/tokens.js";
import { Tree } from "viewer/tree.js";

export function Episode({ run, query }) {
  const at = { step: query.step, id: query.id, source: query.source };
  const { data, error } = useAnswer(`run/${run}/episode`, at, run);
  const view = query.view || "talk";
  const near = (place) => place && go(["run", run, "episode"], { ...place, source: query.source, view: query.view, colour: query.colour });
  const show = (name) => adjust({ view: name, explain: "" });
  useKeys({
    j: () => near(data?.next), k: () => near(data?.previous), Escape: () => adjust({ explain: "" }),
    1: () => show(""), 2: () => show("tree"), 3: () => show("tokens"), 4: () => show("group"),
  });
  if (!data) return html`<${Waiting} error=${error} />`;
  const roles = Object.keys(data.seats);
  const to = (changes) => link(["run", run, "episode"], { ...query, explain: "", ...changes });
  // The largest advantage of the episode has the full colour, unless all of them are rounding errors.
  const most = Math.max(1e-4, ...data.turns.map((t) => Math.abs(t.advantage ?? 0)));
  const shared = { run, query, data, roles, to, most };
  const candidates = data.turns.some((t) => t.outlook !== null || t.candidate > 0);
  return html`<section class="episode">
    <header class="line"><div>
      <h2>${plain(data.id)} <small class="soft">${data.source === "train" ? `step ${data.step}` : "evaluation"}, ${num(data.seconds)} s</small></h2>
      <p>${roles.map((role) => html`<span class="seat"><${Role} name=${role} roles=${roles} /> ${plain(data.seats[role])} <b class=${data.reward[role] > 0 ? "up" : data.reward[role] < 0 ? "down" : ""}>${signed(data.reward[role])}</b></span>`)}
        <${Rewards} rows=${summed(data.rewards.filter((r) => r.role === null))} />
        ${data.truncated && html`<span class="chip warn">cut off by a limit</span>`}</p></div>
      <div class="tools"><button disabled=${!data.previous} onClick=${() => near(data.previous)} title="previous episode (k)">←</button>
        <span class="soft">${(data.number + 1).toLocaleString("en")} / ${data.of.toLocaleString("en")}</span>
        <button disabled=${!data.next} onClick=${() => near(data.next)} title="next episode (j)">→</button>
        ${data.same_task > 1 && html`<a class="button" href=${link(["run", run, "task"], { id: data.task.id, source: query.source })}>${data.same_task} episodes of this task</a>`}</div>
    </header>
    ${data.error && html`<${Fault} text=${data.error} />`}
    <${Tabs} at=${view} tabs=${[
      { key: "talk", name: "Play", to: to({ view: "" }) },
      candidates && { key: "tree", name: "Tree", to: to({ view: "tree" }) },
      { key: "tokens", name: "Tokens", to: to({ view: "tokens" }) },
      { key: "group", name: "Group", to: to({ view: "group" }) },
    ]} />
    <div class=${query.explain ? "split" : ""}><div>
      ${view === "talk" && html`<${Talk} ...${shared} />`}
      ${view === "tree" && html`<${Tree} ...${shared} />`}
      ${view === "tokens" && html`<${Tokens} ...${shared} />`}
      ${view === "group" && html`<${Group} ...${shared} />`}
    </div>${query.explain && html`<${Explanation} ...${shared} />`}</div>
  </section>`;
}

function Talk({ run, query, data, roles, to, most }) {
  const [whole, show] = useState(false);
  const line = data.turns.filter((t) => t.kept);
  const decisions = [...new Set(line.map((t) => t.decision))];
  const columns = `repeat(${roles.length}, minmax(17rem, 1fr))${whole ? " minmax(14rem, .8fr)" : ""}`;
  return html`<div class="tools"><label class="soft"><input type="checkbox" checked=${whole} onChange=${() => show(!whole)} /> show the whole state</label>
      ${roles.length > 1 && html`<span class="soft">Grey: what another role said and this role was not shown.</span>`}</div>
    <div class="talk" style=${{ gridTemplateColumns: columns }}>
      ${roles.map((role) => html`<div class="head"><${Role} name=${role} roles=${roles} /> <span class="soft">${plain(data.seats[role])}</span></div>`)}
      ${whole && html`<div class="head soft">the whole state; a role may see only a part of it</div>`}
      ${decisions.map((decision) => {
        const acting = line.filter((t) => t.decision === decision);
        return html`${roles.map((role) => {
          const own = acting.find((t) => t.role === role);
          return html`<div class="cell" key=${`${decision}${role}`}>${own
            ? html`<${TurnCard} turn=${own} run=${run} data=${data} to=${to} most=${most} />`
            : acting.map((t) => html`<${Elsewhere} turn=${t} seen=${(data.seen[t.id] || []).includes(role)} roles=${roles} />`)}</div>`;
        })}${whole && html`<div class="cell"><pre class="state">${plain(acting[0].state)}</pre></div>`}`;
      })}
    </div>
    ${data.judged.length + data.compared_earlier.length > 0 && html`<h3>Judges</h3>${data.judged.map((row) => html`<${Verdict} row=${row} run=${run} />`)}
      ${data.compared_earlier.length > 0 && html`<p class="soft">A comparison of two episodes is shown with the earlier one. Those with this one are in ${data.compared_earlier.map((id, i) => html`${i > 0 && ", "}<a href=${to({ id })}>${plain(id)}</a>`)}.</p>`}`}
    <h3>End</h3><${Long} text=${data.final_state} className="state" lines=${14} />
    <p><${Rewards} rows=${summed(data.rewards)} named /></p>
    <details><summary>Task</summary><pre>${plain(JSON.stringify(data.task, null, 1))}</pre></details>`;
}

const Elsewhere = ({ turn, seen, roles }) => html`<p class=${"elsewhere " + (seen ? "seen" : "unseen")}
  title=${seen ? "quoted in this role's next prompt" : "not quoted in this role's next prompt"}><${Role} name=${turn.role} roles=${roles} /> ${plain(turn.text.slice(0, 160))}</p>`;

export function TurnCard({ turn, run, data, to, most }) {
  const many = data.turns.filter((t) => t.decision === turn.decision && t.role === turn.role).length;
  return html`<article class="turn" id=${turn.id}>
    <header><span class="soft">${turn.decision + 1}. ${plain(turn.policy)}${turn.version !== null ? ` v${turn.version}` : ""}${turn.phase ? `, ${plain(turn.phase)}` : ""}</span>
      ${turn.status !== "ok" && html`<span class="chip warn">${turn.status}</span>`}${turn.illegal && turn.status === "ok" && html`<span class="chip warn">illegal</span>`}
      <span class="push"></span><${Advantage} value=${turn.advantage} most=${most} onClick=${() => adjust({ explain: turn.id })} /></header>
    <${Messages} messages=${turn.messages} run=${run} />
    ${turn.calls.map((call, i) => html`<div class="message assistant"><small>calls ${plain(call.tool)}</small><${Long} text=${call.text} /></div>
      <${Messages} messages=${turn.answers[i]} run=${run} />`)}
    <div class="said"><${Long} text=${turn.text || "(nothing)"} lines=${14} /></div>
    <footer><${Rewards} rows=${turn.rewards} />
      ${turn.value !== null && html`<span class="soft">value ${num(turn.value)}</span>`}
      <span class="push"></span>
      ${many > 1 && html`<a href=${to({ view: "tree", turn: turn.id })}>${many} candidates</a>`}
      ${turn.tokens > 0 && html`<a href=${to({ view: "tokens", turn: turn.id })}>${counted(turn.tokens, "token")}</a>`}</footer>
  </article>`;
}
