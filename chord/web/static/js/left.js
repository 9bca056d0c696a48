// The left panel: the verdict, the invariants, the waiting nodes, the copies, and the load.

import { api } from "./api.js";
import { bytes, count, counted, duration, harmonic, percent } from "./circle.js";
import { INVARIANTS, verdict } from "./invariants.js";
import { html, Facts, Icon, Meter, Spark } from "./parts.js";
import { ageMs, currentLog, currentView, currentViolations, hasContact, health, selectNode, shownS, store } from "./store.js";

const BADGES = { ok: "check", warn: "half", bad: "alert", lost: "alert", empty: "ring", unknown: "question" };
export const COPIES = ["no copies", "one copy", "two copies", "three copies", "four copies", "five copies"];
export const copiesText = (n) => COPIES[n] ?? `${n} copies`;

export function Verdict({ kind, title, sub }) {
  return html`<div class="verdict" role="status"><span class="badge ${kind}"><${Icon} name=${BADGES[kind]} size=${16} /></span>
    <div><h2>${title}</h2><p>${sub}</p></div></div>`;
}

// The verdict of the server on a living ring; otherwise that of this page on the state that it shows.
function judged(view) {
  const isLive = health() !== "played" && currentLog() === store.live && store.live?.at === null;
  const broken = currentViolations(view);
  const { missing } = view;
  const known = new Map(isLive && store.check ? store.check.invariants.map((one) => [one.name, one]) : []);
  const rows = INVARIANTS.map(([name, label]) => {
    const mine = broken.find((one) => one.invariant === name);
    const holds = known.has(name) ? known.get(name).holds : missing.length && !["NoDuplicates", "OrderedSuccessorList"].includes(name) ? null : !mine;
    const text = holds === false ? mine?.text ?? known.get(name)?.violations[0]?.text ?? label : label;
    return { name, label, holds, text };
  });
  const failed = rows.filter((row) => row.holds === false).map((row) => broken.find((one) => one.invariant === row.name) ?? { invariant: row.name });
  return { rows, head: verdict(view, failed, rows.some((row) => row.holds === null)), missing };
}

export function Left() {
  const view = currentView();
  if (health() === "lost") return html`<${Lost} view=${view} />`;
  if (!view.nodes.size) return html`<aside class="left" aria-label="State of the ring"><${Verdict} kind="empty" title="No ring yet" sub="No node has responded" /><${Start} /></aside>`;
  const { rows, head, missing } = judged(view);
  const waiting = view.waiting.slice(0, 5);
  return html`<aside class="left" aria-label="State of the ring" tabindex="0">
    <${Verdict} ...${head} sub=${subOf(head, view)} />
    <section><h2 class="minor">Invariants</h2><ul class="marks">
      ${rows.map((row) => html`<li key=${row.name} class=${row.holds === false ? "bad" : ""} title=${row.name}>
        <${Icon} name=${row.holds === null ? "question" : row.holds ? "check" : "x"} />
        <span><span class="sr">${row.holds === null ? "not determined: " : row.holds ? "holds: " : "violated: "}</span>${row.text}</span></li>`)}
    </ul></section>
    ${missing.length > 0 && html`<section><h2 class="minor">Unreachable · ${missing.length}</h2><ul class="marks">
      ${missing.slice(0, 5).map((node) => html`<li key=${node.address}><${Icon} name="hatch" /><span>${node.name} ${seenText(node)}</span></li>`)}</ul></section>`}
    ${view.cycles.length > 1 && html`<section><h2 class="minor">Cycles of successors</h2><ul class="marks">
      ${view.cycles.map((cycle, i) => html`<li key=${i}><span class="dot h${i ? 5 : 4}"></span><span>${cycle.map((vnode) => vnode.name).join(" ")}</span></li>`)}</ul></section>`}
    ${waiting.length > 0 && html`<section><h2 class="minor">Not yet correct <small>· ${view.waiting.length}</small></h2><ul class="marks">
      ${waiting.map((one) => html`<li key=${one.text} class="warn"><${Icon} name="half" /><span>${one.text}</span></li>`)}</ul></section>`}
    <${Copies} view=${view} />
    <${Load} view=${view} />
  </aside>`;
}

const seenText = (node) => {
  const seen = store.seenMs?.[node.address];
  return seen ? `not seen for ${duration((Date.now() - seen) / 1000)}` : "does not respond";
};

function subOf(head, view) {
  const log = currentLog();
  const kill = log?.marks.filter((mark) => mark.kind === "dead" && mark.t <= shownS(log)).pop();
  if (head.kind === "warn" && kill && view.down.length) return `${duration(shownS(log) - kill.t)} after ${kill.name} stopped responding`;
  return head.sub;
}

function Copies({ view }) {
  if (!view.keys || view.cycles.length > 1) return null;
  const isCopied = view.keys > 0 ? 1 - Math.min(1, view.underReplicated / view.keys) : 1;
  return html`<section><h2 class="minor">Copies</h2><${Meter} share=${isCopied} tone="own" />
    <${Facts} numbers rows=${[
      [`keys, ${copiesText(view.N)} each`, count(Math.max(0, view.keys - view.underReplicated))],
      ["with fewer live copies", count(view.underReplicated), view.underReplicated ? "warn" : ""],
      ["with concurrent values", count(view.siblings)],
    ]} /></section>`;
}

function Load({ view }) {
  const series = store.metrics;
  if (health() === "played" || series.length < 2) return html`<${Arcs} view=${view} />`;
  const last = series[series.length - 1];
  const recent = series.slice(-120);
  const sent = (one) => Object.entries(one).reduce((sum, [name, value]) => sum + (name.startsWith("rpc_bytes") ? value ?? 0 : 0), 0);
  return html`<section><div class="big"><span>Operations, all nodes</span><span><b>${count(last.operations)}</b> /s</span></div>
      <${Spark} values=${recent.map((one) => one.operations ?? 0)} label="Operations per second in the last two minutes" />
      <div class="trio">${[["operation_p50", "p50 ms"], ["operation_p99", "p99 ms"], ["lookup_hops", "hops"]].map(([name, text]) => html`<span key=${name}><b>${latest(recent, name)}</b>${text}</span>`)}</div></section>
    <section><div class="big"><span>Bytes sent, all nodes</span><span><b>${bytes(sent(last))}</b> /s</span></div>
      <${Spark} values=${recent.map(sent)} tone="mute" label="Bytes per second in the last two minutes" /></section>
    <${Hops} view=${view} /><${Arcs} view=${view} />`;
}

// The distribution of path lengths, and the length that the ring is expected to have.
function Hops({ view }) {
  const total = store.hops.reduce((sum, n) => sum + n, 0);
  if (!total) return null;
  const n = Math.max(2, view.living.length);
  const expected = Math.max(0, Math.log2(n) / 2 - Math.log2(Math.min(view.r, n - 1)) / 2 + 1);
  const bars = Array.from({ length: Math.max(4, store.hops.length) }, (_, i) => (store.hops[i] ?? 0) / total);
  const width = 100 / bars.length;
  const top = Math.max(...bars);
  return html`<section><h2 class="minor">Hops <small>· ${counted(total, "lookup")}, ${expected.toFixed(1)} expected</small></h2>
    <svg class="hist" viewBox="0 0 232 64" role="img" aria-label=${bars.map((share, i) => `${i} hops: ${percent(share)}`).join(", ")}>${bars.map((share, i) => html`<g key=${i}>
      <rect x=${2.32 * width * (i + 0.12)} width=${2.32 * width * 0.76} y=${48 - (34 * share) / top} height=${(34 * share) / top} rx="1" />
      ${share > 0 && html`<text x=${2.32 * width * (i + 0.5)} y=${44 - (34 * share) / top}>${percent(share, 0)}</text>`}<text x=${2.32 * width * (i + 0.5)} y="61">${i}</text></g>`)}
      <line class="expected" x1=${2.32 * width * (expected + 0.5)} x2=${2.32 * width * (expected + 0.5)} y1="8" y2="48" /></svg></section>`;
}

function latest(rows, name) {
  const row = rows.slice(-60).reverse().find((one) => one[name] !== null && one[name] !== undefined);
  return row ? +row[name].toPrecision(3) : "–";
}

function Arcs({ view }) {
  const n = view.members.length;
  if (n < 2) return null;
  const largest = Math.max(...view.members.map((vnode) => vnode.share)) * n;
  return html`<section><h2 class="minor">Arcs</h2><${Facts} numbers rows=${[
    ["largest over mean", `${largest.toFixed(1)}×`],
    [`expected of ${count(n)}`, `${harmonic(n).toFixed(1)}×`],
  ]} /></section>`;
}

function Lost({ view }) {
  const nodes = [...view.nodes.values()];
  const [title, text] = hasContact()
    ? ["No node responds", "The nodes have ended, or this machine cannot reach them."]
    : ["No contact with the dashboard", "The process that queries the ring does not respond. Nothing below is current."];
  return html`<aside class="left" aria-label="State of the ring" tabindex="0">
    <${Verdict} kind="lost" title=${title} sub="Last seen ${new Date(Date.now() - ageMs()).toLocaleTimeString()}" />
    ${nodes.length > 0 && hasContact() && html`<section><h2 class="minor">Tried</h2><ul class="marks">
      ${nodes.slice(0, 8).map((node) => html`<li key=${node.address} class="bad"><${Icon} name="x" /><span>${node.name} <span class="mono">${node.address}</span></span></li>`)}</ul>
      ${nodes.length > 8 && html`<p class="mute">and ${nodes.length - 8} more, in turn</p>`}</section>`}
    <section class="always"><h2 class="minor">Possible cause</h2><p>${text}</p></section>
    <section class="always"><h2 class="minor">Available without the ring</h2><p>The last 15 minutes, below.</p>
      ${hasContact() && html`<p><a class="button" href=${api.recordingUrl} download>Save the recording</a></p>`}</section>
  </aside>`;
}

export function Start() {
  return html`<section class="always"><h2 class="minor">Start a ring</h2><pre class="code">chord up -n 8</pre>
    <p class="mute">Then open this page again, or name a node of your ring: <code>chord dashboard --node HOST:PORT</code></p></section>`;
}

export function openNode(name) {
  const vnode = currentView().vnodes.find((one) => one.name === name || one.node === name);
  if (vnode) selectNode(vnode.id);
}
