// The sampled tokens of a turn, coloured by one of their numbers.
import { useState } from "preact/hooks";
import { TurnChoice } from "viewer/group.js";
import { Empty, Fault, Waiting, counted, diverging, html, num, plain, sequential, signed } from "viewer/parts.js";
import { adjust } from "viewer/route.js";
import { useAnswer } from "viewer/store.js";

const MEASURES = {
  advantage: { name: "advantage", of: (s, i) => s.advantages[i], signed: true, about: "Blue: reinforced. Red: made less likely." },
  logprob: { name: "surprise (−log-prob)", of: (s, i) => (s.logprobs[i] === null ? null : -s.logprobs[i]), about: "Dark: this token was unlikely under the policy (nats)." },
  reference: { name: "log-prob minus reference", of: (s, i) => (s.references[i] === null ? null : s.logprobs[i] - s.references[i]), signed: true, about: "Blue: more likely than under the reference policy. Red: less." },
  gap: { name: "gap (learner − engine)", of: (s, i) => s.gaps[i], signed: true, about: "The learner's log-prob minus the engine's, just before the step. Blue: more likely under the learner. In fp32 the gap is rounding; after stale rollouts it shows how far the policy has moved." },
  entropy: { name: "entropy", of: (s, i) => s.entropies[i], about: "Dark: many different tokens were likely here (nats)." },
  value: { name: "critic's value", of: (s, i) => s.values[i], signed: true, about: "The critic's value before the token." },
  version: { name: "version of the weights", of: (s, i) => s.versions[i], about: "Darker: newer weights sampled the token." },
};

export function Tokens({ run, query, data }) {
  const turns = data.turns.filter((t) => t.tokens > 0);
  const turn = turns.some((t) => t.id === query.turn) ? query.turn : (turns.find((t) => t.kept && t.advantage !== null) || turns.find((t) => t.kept) || turns[0])?.id;
  const { data: found, error } = useAnswer(turn ? `run/${run}/tokens` : null, { step: query.step, id: query.id, source: query.source, turn }, run);
  const [prompt, show] = useState(false);
  if (!turn) return html`<${Empty}>No tokens of this episode were recorded: bots and remote models have none.<//>`;
  const known = found ? Object.keys(MEASURES).filter((m) => found.samples.some((s) => s.ids.some((_, i) => MEASURES[m].of(s, i) !== null && MEASURES[m].of(s, i) !== undefined))) : [];
  const shown = known.includes(query.colour) ? query.colour : known[0] || "logprob";
  return html`<${TurnChoice} turns=${turns.filter((t) => t.kept || t.id === turn)} at=${turn} />
    <div class="tools"><label>colour <select value=${shown} onChange=${(e) => adjust({ colour: e.target.value })}>${known.map((m) => html`<option value=${m} selected=${m === shown}>${MEASURES[m].name}</option>`)}</select></label>
      <label class="soft"><input type="checkbox" checked=${prompt} onChange=${() => show(!prompt)} /> show the prompt</label>
      <span class="soft">${MEASURES[shown].about}</span></div>
    ${!found ? html`<${Waiting} error=${error} />` : found.samples.map((s, n) => html`<${SampleTokens} key=${s.id} sample=${s} n=${n} of=${found.samples.length} measure=${MEASURES[shown]} prompt=${prompt} />`)}`;
}

function SampleTokens({ sample, n, of, measure, prompt }) {
  const [over, hover] = useState(null);
  const values = sample.ids.map((_, i) => measure.of(sample, i));
  const some = values.filter((v) => v !== null && v !== undefined);
  const low = Math.min(...some), high = Math.max(...some), most = Math.max(1e-9, ...some.map(Math.abs));
  const paint = (v) => (v === null || v === undefined ? "transparent" : measure.signed ? diverging(v, most) : sequential(high > low ? (v - low) / (high - low) : 0.5));
  const total = sample.logprobs.reduce((a, b) => a + (b ?? 0), 0);
  return html`<article class="sample">
    <header class="soft">${of > 1 ? `call ${n + 1} of ${of}${sample.tool ? `, ${plain(sample.tool)}` : ""}; ` : ""}${counted(sample.ids.length, "token")} after a prompt of ${sample.prompt_length}; probability ${num(Math.exp(total))}, temperature ${num(sample.temperature)}${sample.restricted ? `, restricted to ${sample.restricted} replies` : ""}${some.length ? `; ${measure.name} ${low === high ? num(low) : `${num(low)} to ${num(high)}`}` : ""}</header>
    ${sample.missing && html`<${Fault} text=${sample.missing} />`}
    ${prompt && html`<div class="tokens prompt">${sample.prompt_length > sample.prompt.length && "… "}${sample.prompt.map((text) => html`<span>${visible(text)}</span>`)}</div>`}
    <div class="tokens" onMouseLeave=${() => hover(null)}>${sample.ids.map((id, i) => html`<span key=${i} class=${over === i ? "over" : ""} style=${{ background: paint(values[i]) }} tabindex="0" onMouseEnter=${() => hover(i)} onFocus=${() => hover(i)}>${visible(sample.texts[i])}</span>`)}</div>
    <${Strip} values=${values} paint=${paint} most=${most} low=${low} high=${high} measure=${measure} over=${over} />
    <${Detail} sample=${sample} i=${over} />
  </article>`;
}

// Line ends are shown and kept; an empty token (a part of a character) is shown as a dot.
const visible = (text) => plain(text).replace(/\n/g, "⏎\n") || "·";

function Strip({ values, paint, most, low, high, measure, over }) {
  if (values.length < 2) return null;
  const tall = 36, wide = 100 / values.length;
  return html`<svg class="strip" viewBox=${`0 0 100 ${tall}`} preserveAspectRatio="none" aria-hidden="true" style=${{ "--count": values.length }}>
    ${measure.signed && html`<line x1="0" x2="100" y1=${tall / 2} y2=${tall / 2} />`}
    ${values.map((v, i) => {
      if (v === null || v === undefined) return null;
      const share = measure.signed ? v / most : high > low ? (v - low) / (high - low) : 0.5;
      const size = Math.max(0.6, measure.signed ? (Math.abs(share) * tall) / 2 : share * tall);
      const y = measure.signed ? (share >= 0 ? tall / 2 - size : tall / 2) : tall - size;
      return html`<rect x=${i * wide} width=${wide * 0.86} y=${y} height=${size} style=${{ fill: paint(v) }} class=${over === i ? "pointed" : ""} />`;
    })}</svg>`;
}

function Detail({ sample, i }) {
  if (i === null) return html`<p class="detail soft">Point at a token to see its numbers.</p>`;
  const rows = [
    ["text", JSON.stringify(plain(sample.texts[i]))], ["id", sample.ids[i]], ["probability", num(Math.exp(sample.logprobs[i]))], ["log-prob", num(sample.logprobs[i])],
    ["version", sample.versions[i]], ["advantage", sample.advantages[i] === null || sample.advantages[i] === undefined ? null : signed(sample.advantages[i])],
    ["entropy", sample.entropies[i] === null ? null : num(sample.entropies[i])], ["gap", sample.gaps[i] === null ? null : signed(sample.gaps[i])],
    ["reference log-prob", sample.references[i] === null ? null : num(sample.references[i])], ["value", sample.values[i] === null ? null : num(sample.values[i])], ["target", sample.targets[i] === null ? null : num(sample.targets[i])],
  ].filter(([, v]) => v !== null && v !== undefined);
  return html`<p class="detail">${rows.map(([k, v]) => html`<span><small>${k}</small> ${v}</span>`)}</p>`;
}
