// A person plays a seat against the trained policies of the run.
import { useEffect, useState } from "preact/hooks";
import { Empty, Fault, Messages, Rewards, Role, html, plain, summed } from "viewer/parts.js";
import { ask, send } from "viewer/store.js";

export function Play({ run, about }) {
  const [game, set] = useState(null);
  const [failed, fail] = useState(null);
  const [busy, wait] = useState(false);
  const [seat, sit] = useState(about.roles[0] || "");
  const [seed, draw] = useState(0);
  const [against, oppose] = useState("");
  const doing = (work) => { wait(true); fail(null); return work.then(set, (e) => fail(e.message)).finally(() => wait(false)); };
  useEffect(() => {
    if (!game || game.over || game.waiting) return;
    const timer = setTimeout(() => ask(`play/${game.id}`).then(set, (e) => fail(e.message)), 400);
    return () => clearTimeout(timer);
  }, [game]);
  return html`<section>
    <div class="tools"><label>seat <select value=${seat} onChange=${(e) => sit(e.target.value)}>${about.roles.map((r) => html`<option value=${r}>${plain(r)}</option>`)}</select></label>
      <label>against <input placeholder="as in the recipe" value=${against} onInput=${(e) => oppose(e.target.value)} title="a policy, or bot:NAME" /></label>
      <label>task <input class="small" type="number" min="0" value=${seed} onInput=${(e) => draw(Number(e.target.value))} /></label>
      <button class="button" disabled=${busy} onClick=${() => doing(send("play", { run, seat, seed, against }))}>${game ? "New game" : "Begin"}</button></div>
    ${failed && html`<${Fault} text=${failed} />`}
    ${!game && !failed && (busy ? html`<${Empty}>Loading the newest checkpoint…<//>` : html`<${Empty}>The newest checkpoint takes the other seats.<//>`)}
    ${game && html`<${Table} game=${game} run=${run} busy=${busy} move=${(text) => doing(send(`play/${game.id}`, { text }))} />`}</section>`;
}

function Table({ game, run, busy, move }) {
  const [text, type] = useState("");
  const roles = Object.keys(game.seats);
  const done = (said) => { type(""); move(said); };
  return html`<div class="table">
    <p>${roles.map((role) => html`<span class="seat"><${Role} name=${role} roles=${roles} /> ${plain(game.seats[role])}</span>`)}</p>
    ${game.log.map((row) => row.kind === "said" ? html`<div class="spoken"><${Role} name=${row.role} roles=${roles} /> <pre>${plain(row.text)}</pre></div>`
      : row.kind === "seen" ? html`<${Messages} messages=${row.messages} run=${run} />` : html`<p><${Rewards} rows=${row.rewards} named /></p>`)}
    ${game.waiting && html`<div class="moves">${game.waiting.legal.length > 0 && game.waiting.legal.length <= 60
      ? game.waiting.legal.map((action) => html`<button class="button plain" disabled=${busy} onClick=${() => done(action)}>${plain(action)}</button>`)
      : html`<form onSubmit=${(e) => { e.preventDefault(); done(text); }}><textarea rows="3" value=${text} placeholder="Your reply" onInput=${(e) => type(e.target.value)}></textarea><button class="button" disabled=${busy}>Send</button></form>`}</div>`}
    ${!game.waiting && !game.over && html`<p class="soft">The others are thinking…</p>`}
    ${game.over && html`<h3>The end</h3><pre class="state">${plain(game.state)}</pre><p><${Rewards} rows=${summed(game.rewards)} named /></p>`}
    ${game.error && html`<${Fault} text=${game.error} />`}</div>`;
}
