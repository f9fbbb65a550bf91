// The frame around every page, and which page an address shows.
import { render } from "preact";
import { useState } from "preact/hooks";
import { Episode } from "viewer/episode.js";
import { Evaluation } from "viewer/evaluation.js";
import { Judge } from "viewer/judge.js";
import { League } from "viewer/league.js";
import { Empty, Fault, Waiting, html, plain } from "viewer/parts.js";
import { Play } from "viewer/play.js";
import { go, link, useKeys, useRoute } from "viewer/route.js";
import { Curves, Episodes, RecipePage, RunHead } from "viewer/run.js";
import { Compare, Runs } from "viewer/runs.js";
import { connected, exported, listen, useAnswer, useStamp } from "viewer/store.js";
import { TaskPage } from "viewer/task.js";

const PAGES = { curves: Curves, episodes: Episodes, episode: Episode, task: TaskPage, league: League, evaluation: Evaluation, judge: Judge, play: Play, recipe: RecipePage };

function RunPage({ run, page, query }) {
  const { data, error, late } = useAnswer(`run/${run}/about`, {}, run);
  if (!data) return html`<main><${Waiting} error=${error} /></main>`;
  const Page = PAGES[page];
  return html`<main>${late && html`<${Fault} text=${late} />`}<${RunHead} run=${run} about=${data} at=${page === "episode" || page === "task" ? "episodes" : page} small=${page === "episode"} />
    ${Page ? html`<${Page} key=${page} run=${run} about=${data} query=${query} />` : html`<${Empty}>There is no such page.<//>`}</main>`;
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  try { localStorage.setItem("theme", name); } catch { /* a page from a file may not store anything */ }
}
function firstTheme() {
  try { const kept = localStorage.getItem("theme"); if (kept) return kept; } catch { /* as above */ }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

const KEYS = [["j, k", "next, previous episode"], ["1 to 4", "play, tree, tokens, group"], ["/", "search"], ["c", "compare the chosen runs"], ["a, b, =, n", "label a pair: A, B, no difference, skip"], ["g", "list of runs"], ["t", "light or dark"], ["Escape", "close"], ["?", "these keys"]];

function App() {
  const { parts, query } = useRoute();
  const [look, set] = useState(document.documentElement.dataset.theme);
  const [help, show] = useState(false);
  useStamp("*");
  const turn = () => { const next = look === "dark" ? "light" : "dark"; theme(next); set(next); };
  useKeys({
    t: turn, "?": () => show(!help), g: () => go([], {}), "/": () => document.querySelector("input[type=search]")?.focus(),
    Escape: () => { show(false); document.activeElement?.blur(); },
  });
  const [kind, run, page = "curves"] = parts;
  document.title = [run, page === "curves" ? "" : page, "Interplay"].filter(Boolean).join(" · ");
  return html`<header class="top"><a class="logo" href="#/">Interplay</a>
      ${kind === "compare" && html`<span class="crumbs"><a href="#/">runs</a> / compare</span>`}
      ${kind === "run" && html`<span class="crumbs"><a href="#/">runs</a> / <a href=${link(["run", run])}>${plain(run)}</a>${page !== "curves" && html` / ${plain(page)}`}</span>`}
      <span class="push"></span>
      <span class=${"state " + (exported ? "file" : connected ? "on" : "off")}>${exported ? "exported page" : connected ? "live" : "not connected"}</span>
      <button class="link" onClick=${turn} title="light or dark (t)">${look === "dark" ? "☀" : "☾"}</button>
      <button class="link" onClick=${() => show(!help)} title="keys (?)">?</button></header>
    ${help && html`<div class="help" role="dialog" aria-label="keys"><table>${KEYS.map(([k, what]) => html`<tr><td><kbd>${k}</kbd></td><td>${what}</td></tr>`)}</table></div>`}
    ${kind === undefined ? html`<${Runs} query=${query} />` : kind === "compare" ? html`<${Compare} key=${query.runs} query=${query} />`
      : kind === "run" && run ? html`<${RunPage} key=${run} run=${run} page=${page} query=${query} />` : html`<main><${Empty}>There is no such page.<//></main>`}`;
}

document.documentElement.dataset.theme = firstTheme();
listen();
const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
