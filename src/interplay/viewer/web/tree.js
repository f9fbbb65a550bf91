// The candidates of each decision, from left to right; the kept line runs through them.
import { Advantage, Empty, Long, Rewards, counted, diverging, hue, html, num, plain, signed } from "viewer/parts.js";
import { adjust } from "viewer/route.js";

const WIDE = 148, TALL = 40, GAP = 46, TOP = 34;

export function Tree({ query, data, roles, to, most }) {
  const colour = query.colour === "return" ? "return" : "advantage";
  const decisions = [...new Set(data.turns.map((t) => t.decision))].sort((a, b) => a - b);
  const columns = decisions.map((d) => data.turns.filter((t) => t.decision === d)
    .sort((a, b) => roles.indexOf(a.role) - roles.indexOf(b.role) || a.candidate - b.candidate));
  if (!columns.length) return html`<${Empty}>No turns.<//>`;
  const rows = Math.max(...columns.map((c) => c.length));
  const width = columns.length * (WIDE + GAP), height = TOP + rows * TALL + 10;
  const worths = data.turns.map((t) => t.outlook).filter((v) => v !== null);
  const widest = Math.max(1e-9, ...worths.map(Math.abs));
  const place = (i, j) => [i * (WIDE + GAP), TOP + j * TALL + ((rows - columns[i].length) * TALL) / 2];
  const fill = (t) => (colour === "advantage" ? diverging(t.advantage, most) : diverging(t.outlook, widest));
  const at = data.turns.find((t) => t.id === query.turn) || data.turns.find((t) => t.kept);
  return html`<div class="tools"><label>colour <select value=${colour} onChange=${(e) => adjust({ colour: e.target.value })}><option value="advantage">advantage</option><option value="return">return</option></select></label>
      <span class="soft">A bold frame is the line that was played. Red is below zero, blue above.</span></div>
    <div class="tree"><div class="scroll"><svg width=${width} height=${height}>
      ${columns.map((column, i) => i > 0 && columns[i - 1].map((from, k) => from.kept && column.map((to_, j) => {
        const [x, y] = place(i - 1, k), [a, b] = place(i, j);
        return html`<path class=${to_.kept ? "edge kept" : "edge"} d=${`M${x + WIDE},${y + 14} C${x + WIDE + GAP / 2},${y + 14} ${a - GAP / 2},${b + 14} ${a},${b + 14}`} />`;
      })))}
      ${columns.map((column, i) => html`<text class="decision" x=${place(i, 0)[0]} y="14">${decisions[i] + 1}. ${plain([...new Set(column.map((t) => t.role))].join(", "))}</text>`)}
      ${columns.map((column, i) => column.map((t, j) => {
        const [x, y] = place(i, j);
        return html`<g key=${t.id} class=${`node ${t.kept ? "kept" : ""} ${at && t.id === at.id ? "here" : ""}`} transform=${`translate(${x},${y})`} onClick=${() => adjust({ turn: t.id })} tabindex="0" role="button" aria-label=${`candidate ${t.candidate}: ${t.text}`}
          onKeyDown=${(e) => e.key === "Enter" && adjust({ turn: t.id })}>
          <title>${plain(t.text.slice(0, 300))}</title>
          <rect class="back" width=${WIDE} height="28" rx="6" /><rect width=${WIDE} height="28" rx="6" style=${{ fill: fill(t) }} />
          <rect width="4" height="28" rx="2" style=${{ fill: hue(roles.indexOf(t.role)) }} />
          <text x="12" y="18">${short(t.text, 11)}</text><text class="n" x=${WIDE - 8} y="18">${t.outlook === null ? "" : num(t.outlook)}</text></g>`;
      }))}
    </svg></div>
    ${at && html`<${Candidate} turn=${at} data=${data} to=${to} most=${most} />`}</div>`;
}

const short = (text, most) => { const line = plain(text).trim().replace(/\s+/g, " "); return line.length > most ? line.slice(0, most - 1) + "…" : line || "(nothing)"; };

// The playouts of a candidate: those whose id has its decision, its role (only if several roles act at once), its number and then
// the number of the playout, as in "EPISODE.2.0.1.0/3X0".
function playoutsOf(turn, data) {
  const acting = [...new Set(data.turns.filter((t) => t.decision === turn.decision).map((t) => t.role))];
  const own = [turn.decision, ...(acting.length > 1 ? [acting.indexOf(turn.role)] : []), turn.candidate].map(String);
  const plays = new Map();
  for (const t of data.playouts) {
    const path = t.id.startsWith(data.id + ".") ? t.id.slice(data.id.length + 1).split("/")[0] : "";
    const numbers = path.split(".");
    if (numbers.length === own.length + 1 && own.every((n, i) => n === numbers[i])) plays.set(path, [...(plays.get(path) || []), t]);
  }
  return plays;
}

function Candidate({ turn, data, to, most }) {
  const plays = playoutsOf(turn, data);
  const same = (t) => t.decision === turn.decision && t.role === turn.role && t.candidate < turn.candidate && t.text.trim() === turn.text.trim();
  const equal = plays.size === 0 && data.turns.find((t) => same(t) && playoutsOf(t, data).size > 0);
  return html`<aside class="candidate"><h3>Decision ${turn.decision + 1}, ${plain(turn.role)}, candidate ${turn.candidate + 1}${turn.kept && html` <span class="chip">kept</span>`}</h3>
    <div class="said"><${Long} text=${turn.text || "(nothing)"} /></div>
    <p>${turn.outlook !== null && html`return <b>${num(turn.outlook)}</b> `}<${Advantage} value=${turn.advantage} most=${most} onClick=${() => adjust({ explain: turn.id })} /> <${Rewards} rows=${turn.rewards} /></p>
    <p><a href=${to({ view: "tokens", turn: turn.id })}>tokens</a> · <a href=${to({ view: "group", turn: turn.id })}>group</a></p>
    <details open><summary>before the decision</summary><pre class="state">${plain(turn.state)}</pre></details>
    ${plays.size > 0 ? html`<h4>${counted(plays.size, "playout")}</h4><ul class="playouts">${[...plays.values()].map((play) => html`<li>${play.map((t) => html`<span class="soft">${plain(t.role)}</span> ${short(t.text, 16)} `)}
      ${play.flatMap((t) => t.rewards).filter((r) => r[2] !== null).map((r) => html`<span class=${"reward " + (r[2] > 0 ? "up" : "down")}>${plain(r[0])} ${plain(r[1] || "team")} ${signed(r[2])}</span>`)}</li>`)}</ul>`
      : data.playouts.length === 0 && turn.outlook !== null && html`<p class="soft">Playouts are recorded with records.playouts = true.</p>`}
    ${equal && html`<p class="soft">The same reply as candidate ${equal.candidate + 1}, whose playouts count for both.</p>`}
    ${data.playouts_left_out > 0 && html`<p class="soft">${data.playouts_left_out} turns of playouts are not shown.</p>`}
  </aside>`;
}
