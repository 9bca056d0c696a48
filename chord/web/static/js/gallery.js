// The page Gallery: a space-time diagram of one run of an algorithm, step by step.

import { api } from "./api.js";
import { html, Icon, Segments, useEffect, useRef, useState } from "./parts.js";
import { set, store } from "./store.js";

const ROW = 28;
const TOP = 46;
const LEFT = 46;
const NUMBERS = 28; // where the numbers of the rows end
const STEP_MS = 700;
const CHAR = 6.9;
const OPEN_PART = 0.7; // of the way to its receiver: the line of a message in transit

// The state of the page: the algorithm, what to show of it, the answer, and the number of shown rows.
const now = { entries: [], name: "mutex-lamport", mode: "run", nodes: null, seed: 0, variant: null, steps: [], run: null, shown: 0, isPlaying: false, error: null };

const entryOf = () => now.entries.find((entry) => entry.name === now.name);
const variantsOf = (entry) => ({ ...entry?.bugs, ...entry?.printed });

function change(fields) {
  Object.assign(now, fields);
  set({});
}

async function load() {
  const asked = { variant: now.mode === "bug" ? now.variant : null, steps: now.mode === "steps" ? now.steps.join(",") : null, nodes: now.mode === "bug" ? null : now.nodes, seed: now.mode === "run" ? now.seed : null };
  const text = JSON.stringify([now.name, asked]);
  now.asked = text;
  change({ error: null, isPlaying: false });
  try {
    if (!now.entries.length) now.entries = (await api.gallery()).entries;
    const run = await api.galleryRun(now.name, asked);
    if (now.asked === text) change({ run, shown: now.mode === "run" ? Math.min(1, run.rows.length) : run.rows.length });
  } catch (error) {
    if (now.asked === text) change({ error, run: null });
  }
}

function choose(fields) {
  Object.assign(now, fields);
  if ("name" in fields) Object.assign(now, { mode: "run", nodes: null, variant: null, steps: [], run: null });
  if (now.mode === "bug" && !(now.variant in variantsOf(entryOf()))) now.variant = Object.keys(variantsOf(entryOf()))[0];
  load();
}

export function moveGallery(direction) {
  if (now.run) change({ shown: Math.max(0, Math.min(now.run.rows.length, now.shown + direction)), isPlaying: false });
}

export function playGallery() {
  if (!now.run) return;
  if (!now.isPlaying && now.shown >= now.run.rows.length) now.shown = 0;
  change({ isPlaying: !now.isPlaying });
}

export function GalleryPage() {
  useEffect(() => { load(); return () => { now.isPlaying = false; }; }, []);
  useEffect(() => {
    if (!now.isPlaying) return undefined;
    const timer = setTimeout(() => change({ shown: now.shown + 1, isPlaying: now.shown + 1 < now.run.rows.length }), STEP_MS);
    return () => clearTimeout(timer);
  });
  const { run, error } = now;
  return html`<${List} /><main class="center page" id="main" tabindex="0"><h1 class="sr">Gallery</h1>
      ${error ? html`<p class="bad">${error.message}</p>` : run ? html`<${Diagram} run=${run} shown=${now.shown} />` : html`<p class="mute">Loading</p>`}</main>
    <${Side} /><${Bottom} />`;
}

function List() {
  const families = Map.groupBy ? Map.groupBy(now.entries, (entry) => entry.name.split("-")[0]) : new Map([["algorithms", now.entries]]);
  return html`<nav class="left list" aria-label="Algorithms">${[...families].map(([family, entries]) => html`<section key=${family}><h2 class="minor">${family}</h2><ul class="menu">
    ${entries.map((entry) => html`<li key=${entry.name}><button type="button" aria-current=${entry.name === now.name ? "true" : null} onClick=${() => choose({ name: entry.name })}>${entry.title}</button></li>`)}</ul></section>`)}</nav>`;
}

// A label stands on the far side of its lane, so that its own message does not cross it.
const isFromRight = (row) => row.from && row.from.lane > row.lane;

function Diagram({ run, shown }) {
  const box = useRef(null);
  const lane = Math.max(120, 34 + CHAR * Math.max(0, ...run.rows.map((row) => row.text.length)));
  const wide = (rows) => CHAR * Math.max(0, ...rows.map((row) => row.text.length));
  const last = run.names.length - 1;
  const left = Math.max(LEFT, NUMBERS + wide(run.rows.filter((row) => row.lane === 0 && isFromRight(row))));
  const x = (i) => left + lane * i + 20;
  const y = (row) => TOP + ROW * row + 10;
  const notesAt = x(last) + 28 + wide(run.rows.filter((row) => row.lane === last));
  const width = notesAt + CHAR * Math.max(12, ...run.rows.map((row) => row.notes.join("; ").length));
  const height = y(run.rows.length) + 20;
  useEffect(() => {
    box.current?.querySelector(".current .step, .current .fault")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [shown, run]);
  const rows = run.rows.slice(0, shown);
  return html`<svg ref=${box} class="spacetime" width=${width} height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${`${run.title}: ${shown} of ${run.rows.length} steps`}>
    <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" /></marker></defs>
    ${run.names.map((name, i) => html`<g key=${name}><line class="lane" x1=${x(i)} x2=${x(i)} y1=${TOP - 14} y2=${height} /><text class="name" x=${x(i)} y=${TOP - 22} text-anchor="middle">${name}</text></g>`)}
    ${run.bands.filter((band) => band.from_row < shown).map((band) => html`<line class="band" x1=${x(band.lane)} x2=${x(band.lane)} y1=${y(band.from_row)} y2=${y(Math.min(band.to_row, shown - 1))}><title>${band.field}</title></line>`)}
    ${rows.map((row, i) => row.from && html`<line key="m${i}" class="message ${row.what === "lost" ? "lost" : ""} ${i === shown - 1 ? "now" : ""}" marker-end="url(#tip)" x1=${x(row.from.lane)} y1=${y(row.from.row)} x2=${x(row.lane)} y2=${y(i)} />`)}
    ${shown === run.rows.length && run.open.map((line, i) => html`<line key="o${i}" class="message open" x1=${x(line.lane)} y1=${y(line.row)} x2=${x(line.lane) + OPEN_PART * (x(line.to) - x(line.lane))} y2=${y(shown) - ROW / 4} />`)}
    ${rows.map((row, i) => html`<${Step} key=${i} row=${row} i=${i} x=${x} y=${y} notesAt=${notesAt} isCurrent=${i === shown - 1} />`)}
  </svg>${shown === run.rows.length && run.hidden > 0 && html`<p class="mute">and ${run.hidden} more steps</p>`}
    ${shown === run.rows.length && run.pending.length > 0 && html`<p class="mute">in transit: ${run.pending.slice(0, 12).join(", ")}</p>`}`;
}

function Step({ row, i, x, y, notesAt, isCurrent }) {
  const [at, level] = [x(row.lane), y(i)];
  const isLost = row.what === "lost" || row.what === "crash";
  const isLeft = isFromRight(row);
  return html`<g class=${isCurrent ? "current" : ""}><text class="number" x=${NUMBERS} y=${level + 4} text-anchor="end">${i + 1}</text>
    ${isLost ? html`<path class="fault" d="M${at - 5} ${level - 5}l10 10m0 -10l-10 10" />` : html`<circle class="step" cx=${at} cy=${level} r=${row.from ? 2.5 : 4} />`}
    <text x=${isLeft ? at - 12 : at + 12} y=${level - 5} text-anchor=${isLeft ? "end" : "start"}>${row.text}</text>
    ${row.notes.length > 0 && html`<text class="note" x=${notesAt} y=${level + 4}>${row.notes.join("; ")}</text>`}</g>`;
}

function Side() {
  const entry = entryOf();
  const { run } = now;
  const variants = Object.entries(variantsOf(entry));
  const modes = [["run", "A run"], ...(variants.length ? [["bug", "A bug"]] : []), ["steps", "Choose steps"]];
  const [low, high] = entry?.sizes ?? [2, 3];
  const sizes = Array.from({ length: high - low + 1 }, (_, i) => low + i);
  return html`<aside class="side" aria-label="Algorithm" tabindex="0"><div class="body"><section><h2>${entry?.title ?? now.name}</h2>
      <p class="mute">${entry?.ticket ? `ticket ${entry.ticket}` : "course notes"}${entry?.channels === "fifo" ? "; messages between two processes keep their order" : ""}</p>
      <div class="field gap narrow-only"><label for="algorithm">algorithm</label><select id="algorithm" value=${now.name} onChange=${(e) => choose({ name: e.target.value })}>${now.entries.map((one) => html`<option value=${one.name}>${one.title}</option>`)}</select></div>
      <p class="gap"><${Segments} label="Show" value=${now.mode} onChange=${(mode) => choose({ mode, steps: [] })} options=${modes} /></p>
      ${now.mode === "bug" ? html`<div class="field gap"><label for="variant">variant</label><select id="variant" value=${now.variant} onChange=${(e) => choose({ variant: e.target.value })}>${variants.map(([name]) => html`<option value=${name}>${name}</option>`)}</select></div>`
        : html`<div class="row gap nowrap"><div class="field"><label for="nodes">processes</label><select id="nodes" value=${run?.names.length ?? ""} onChange=${(e) => choose({ nodes: Number(e.target.value), steps: [] })}>${sizes.map((n) => html`<option value=${n}>${n}</option>`)}</select></div>
          ${now.mode === "run" && html`<div class="field"><label for="seed">seed</label><input id="seed" type="number" min="0" max="1000000" value=${now.seed} onChange=${(e) => choose({ seed: Math.max(0, Math.floor(Number(e.target.value) || 0)) })} /></div>`}</div>`}</section>
    ${run && now.mode === "steps" && html`<section><h2 class="minor">Next step</h2><ul class="choices">${run.choices.slice(0, 60).map((text, i) => html`<li key=${i}><button type="button" class="chip" onClick=${() => choose({ steps: [...now.steps, i] })}>${text}</button></li>`)}</ul>
      <p class="gap"><button type="button" class="button" disabled=${!now.steps.length} onClick=${() => choose({ steps: now.steps.slice(0, -1) })}>Undo</button></p></section>`}
    ${run && html`<section><h2 class="minor">Result</h2><p class=${run.holds ? "" : "bad"}>${run.result}</p></section>
    <section><h2 class="minor">Laws</h2><ul class="marks">${run.laws.map((law) => html`<li key=${law.name} class=${law.holds ? "" : "bad"}><${Icon} name=${law.holds ? "check" : "x"} /><span><b>${law.name}</b>: ${law.why || law.text}</span></li>`)}</ul></section>
    ${Object.keys(run.messages).length > 0 && html`<section><h2 class="minor">Messages</h2><table><tbody>${Object.entries(run.messages).map(([kind, n]) => html`<tr key=${kind}><th scope="row">${kind}</th><td class="n">${n}</td></tr>`)}</tbody></table></section>`}`}
    <section><h2 class="minor">The same in your terminal</h2><pre class="code">${command()}</pre></section></div></aside>`;
}

function command() {
  const entry = entryOf();
  if (now.mode === "bug") return `chord gallery prove ${now.name} ${now.variant in (entry?.bugs ?? {}) ? "--bug" : "--as"} ${now.variant}`;
  const nodes = now.run ? ` --nodes ${now.run.names.length}` : "";
  return now.mode === "steps" ? `chord gallery step ${now.name}${nodes}` : `chord gallery run ${now.name}${nodes} --seed ${now.seed}`;
}

function Bottom() {
  const { run, shown } = now;
  const total = run?.rows.length ?? 0;
  const row = run?.rows[shown - 1];
  return html`<section class="bottom" aria-label="Steps"><div class="player">
      <button type="button" class="icon" aria-label="Previous step" onClick=${() => moveGallery(-1)}><${Icon} name="first" /></button>
      <button type="button" class="icon" aria-label=${now.isPlaying ? "Pause" : "Play"} onClick=${playGallery}><${Icon} name=${now.isPlaying ? "pause" : "play"} /></button>
      <button type="button" class="icon" aria-label="Next step" onClick=${() => moveGallery(1)}><${Icon} name="next" /></button>
      <span class="clock">${shown} <span class="mute">/ ${total}</span></span></div>
    <input class="steps" type="range" aria-label="Step" min="0" max=${total} value=${shown} onInput=${(e) => change({ shown: Number(e.target.value), isPlaying: false })} />
    <p class="mute"><kbd>←</kbd> <kbd>→</kbd> step, <kbd>Space</kbd> plays. Time runs downwards.</p></section>
    <section class="events" aria-label="This step" tabindex="0"><h2 class="minor">This step</h2>${row ? html`<p><b>${run.names[row.lane]}</b> ${row.from ? `${row.what} from ${run.names[row.from.lane]}` : row.what}: <code>${row.text}</code></p>
      ${row.notes.map((note) => html`<p class="mute" key=${note}>${note}</p>`)}<p class="mute">${now.mode === "run" ? `at ${row.at.toFixed(3)} s of virtual time` : `step ${shown}`}</p>` : html`<p class="mute">none yet</p>`}</section>`;
}
