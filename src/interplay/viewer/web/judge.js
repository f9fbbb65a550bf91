// Judges: what they said, whether the order changed it, and pairs that a person compares without seeing any score.
import { useState } from "preact/hooks";
import { Chart } from "viewer/charts.js";
import { Empty, Fault, Long, Messages, Waiting, counted, html, num, plain } from "viewer/parts.js";
import { adjust, link, useKeys } from "viewer/route.js";
import { Pager } from "viewer/run.js";
import { exported, send, useAnswer } from "viewer/store.js";

export function Judge({ run, about, query }) {
  const { data: metrics } = useAnswer(`run/${run}/metrics`, {}, run);
  const names = metrics ? Object.keys(metrics.columns).filter((k) => k.startsWith("judge/")) : [];
  const judges = [...new Set(names.map((k) => k.split("/")[1]))];
  return html`<section>
    ${about.can.judges && html`${judges.length > 0 && html`<h2>Judges of this run</h2>`}<div class="charts">${judges.flatMap((judge) => scales(names.filter((k) => k.split("/")[1] === judge), metrics).map(([small, kept]) => html`<${Chart} title=${small ? judge : `${judge}: counts`} steps=${metrics.steps}
      series=${kept.map((k) => ({ name: k.split("/").slice(2).join("/"), values: metrics.columns[k] }))}
      note=${explained(kept)} />`))}</div>
      <${Gold} run=${run} gold=${query.gold || ""} />`}
    ${!exported && html`<${Labelling} run=${run} />`}
    ${about.can.judges && html`<h2>What judges said</h2><${Verdicts} run=${run} page=${Number(query.page || 0)} />`}</section>`;
}

// What the metrics of a judge mean. Those that are not here are the marks of a rubric, by their own names.
const MEANING = {
  coverage: "share of the questions that gave a verdict (its answers could be parsed, and sampled ones agreed in both orders)", flips: "share of the verdicts that changed with the order",
  labels: "comparisons that it was given so far", loss: "its loss in training", accuracy: "share of held-out comparisons that it is right about",
  longer: "the same for always choosing the longer reply", calibration: "how far its certainty is from how often it is right",
  gold: "mean gold reward", proxy: "mean reward by the judge", rang: "1 if the judge's reward rises while gold falls", rolled_back: "1 if an earlier version took its place",
  audit: "how often it preferred a reply that was changed for the worse",
};
function explained(names) {
  const kinds = [...new Set(names.map((k) => k.split("/")[2]))].filter((k) => k in MEANING);
  return kinds.map((k) => `${k}: ${MEANING[k]}`).join("; ") + (kinds.length ? "." : "");
}

// Shares and rewards in one chart, counts in another: [are small, names], without empty ones.
const COUNT = /\/(labels|audit\/faults)$/;
function scales(names, metrics) {
  const small = (k) => !COUNT.test(k) && metrics.columns[k].every((v) => v === null || Math.abs(v) <= 10);
  return [[true, names.filter(small)], [false, names.filter((k) => !small(k))]].filter(([, kept]) => kept.length);
}

function Verdicts({ run, page }) {
  const { data, error } = useAnswer(`run/${run}/verdicts`, { page: page || undefined }, run);
  if (!data) return html`<${Waiting} error=${error} />`;
  const first = page * data.page_size, most = Math.min(data.episodes, first + data.page_size);
  return html`${data.rows.length === 0 ? html`<${Empty}>${data.episodes > data.page_size ? "No verdicts are recorded for these episodes." : "No verdicts are recorded. Gold programs, functions and reward models give numbers, not words."}<//>` : html`
    <p>${data.judges.map((j) => html`<span class="chip">${plain(j.name)}: ${counted(j.asked, "question")}${j.both > 0 && `, ${j.both} in both orders, ${j.flipped} changed with the order`}</span>`)}
      <span class="soft">${data.episodes > data.page_size ? `Episodes ${first + 1} to ${most} of ${data.episodes.toLocaleString("en")}, the newest first.` : "The newest first."}</span></p>
    ${data.rows.map((row) => html`<${Verdict} row=${row} run=${run} linked />`)}`}
    ${!exported && html`<${Pager} page=${page} total=${data.episodes} size=${data.page_size} />`}`;
}

// A question to a judge about an episode, and the answers to it.
export const Verdict = ({ row, run, linked = false }) => html`<article class="turn judge"><header><b>${plain(row.judge)}</b> <span class="soft">${plain(row.policy)}${linked && html`, <a href=${link(["run", run, "episode"], { step: row.step, id: row.episode })}>${plain(row.episode)}</a>`}, question ${row.question + 1}</span>${row.flipped && html`<span class="chip warn">changed with the order</span>`}</header>
  <details><summary>what it was asked</summary><${Messages} messages=${row.messages} run=${run} /></details>
  <div class="beside">${row.answers.map((a) => html`<div class="said"><small class="soft">${said(a)}</small><${Long} text=${a.text} /></div>`)}</div></article>`;

// What is known of an answer: the order in which a judge of pairs was asked, and how it was parsed.
const said = (a) => [
  a.swapped === null ? "" : a.swapped ? "in the other order" : "as shown",
  a.first !== null ? `${num(a.first)} for the first` : a.parsed ? "" : "could not be parsed",
].filter(Boolean).join(", ");

// Two episodes of one task that a judge orders in one way, and a gold reward in the other.
function Gold({ run, gold }) {
  const { data, error } = useAnswer(`run/${run}/disagreements`, { gold }, run);
  if (!data) return html`<${Waiting} error=${error} />`;
  if (!data.components.length) return html`<h2>Disagreement with gold</h2><${Empty}>No other reward is recorded that a judge could be compared with.<//>`;
  return html`<h2>Disagreement with gold</h2>
    <div class="tools"><label>gold <select value=${gold} disabled=${Boolean(exported)} onChange=${(e) => adjust({ gold: e.target.value })}><option value="">as in the recipe</option>${data.components.map((c) => html`<option value=${c} selected=${c === gold}>${plain(c)}</option>`)}</select></label>
      <span class="soft">Every two episodes of one task and role, among the latest ${data.episodes}.</span></div>
    <p>${data.judges.map((j) => html`<span class="chip">${plain(j.name)}: ${j.gold === null ? "the recipe names no gold for it (judges.NAME.audit.gold); choose one above" : j.pairs ? `orders ${j.same} of ${j.pairs} pairs as ${plain(j.gold)} does, ${j.pairs - j.same - j.tied} the other way; ${j.tied} ties` : `no two episodes are scored by it and by ${plain(j.gold)}`}</span>`)}</p>
    ${data.rows.map((row) => html`<article class="turn judge"><header><b>${plain(row.judge)}</b> <span class="soft">against ${plain(row.gold)}, ${plain(row.replies[0].role)}</span></header>
      <div class="beside">${row.replies.map((r, i) => html`<div class="said"><small class="soft"><a href=${link(["run", run, "episode"], { step: r.step, id: r.episode })}>${plain(r.episode)}</a> · judge ${num(r.judge)}${r.judge > row.replies[1 - i].judge ? " (preferred)" : ""} · gold ${num(r.gold)}${r.gold > row.replies[1 - i].gold ? " (preferred)" : ""}</small><${Long} text=${r.text} lines=${6} /></div>`)}</div></article>`)}`;
}

function Labelling({ run }) {
  const [n, next] = useState(() => Math.floor(Math.random() * 1e9));
  const [count, counted] = useState(null);
  const [failed, fail] = useState(null);
  const { data, error } = useAnswer(`run/${run}/pair`, { n });
  const pair = data?.pair;
  const say = (label) => pair && send(`run/${run}/label`, { ...pair, label }).then((r) => { counted(r.labelled); fail(null); next(n + 1); }, (e) => fail(e.message));
  useKeys({ a: () => say(1), b: () => say(2), "=": () => say(0), n: () => next(n + 1) });
  return html`<h2>Which reply is better?</h2>
    <p class="soft">Two replies to the same prompt, in random order, without their scores. ${count ?? data?.labelled ?? 0} labelled; they are in labels.jsonl in the run folder.</p>
    ${failed && html`<${Fault} text=${failed} />`}
    ${!data ? html`<${Waiting} error=${error} />` : !pair ? html`<${Empty}>${data.labelled ? "No pair was found that you have not compared yet." : "No two different replies to one prompt are recorded in this run."}<//>` : html`
    <article class="labelling"><${Messages} messages=${pair.input.map(([role, content]) => ({ role, content, calls: [], media: [] }))} run=${run} />
      <div class="beside">${[["A", pair.output_1, 1], ["B", pair.output_2, 2]].map(([name, text, label]) => html`<div><div class="said"><${Long} text=${text || "(nothing)"} lines=${20} /></div><button class="button" onClick=${() => say(label)}>${name} is better <kbd>${name.toLowerCase()}</kbd></button></div>`)}</div>
      <p><button class="button plain" onClick=${() => say(0)}>No difference <kbd>=</kbd></button> <button class="link" onClick=${() => next(n + 1)}>skip <kbd>n</kbd></button></p></article>`}`;
}
