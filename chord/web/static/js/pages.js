// The pages beside the ring: Keys, Nodes, Metrics and Recordings.

import { api } from "./api.js";
import { bytes, count, harmonic, percent, position, shortId } from "./circle.js";
import { copiesText, Verdict } from "./left.js";
import { html, Facts, HBar, Meter, NodeDot, Segments, useEffect, useRef, useState } from "./parts.js";
import { RingBox } from "./ringpage.js";
import { STATES } from "./ring.js";
import { currentLog, currentView, fetchLog, health, isBig, openRecording, say, selectNode, set, store } from "./store.js";
import { BYTES_MAX, readChordlog } from "./log.js";

// -- nodes ------------------------------------------------------------------------------------------

const COLUMNS = [
  ["node", (v) => v.name, ""], ["state", (v) => STATES[v.mark], ""], ["at", (v) => v.x, "n"], ["id", (v) => v.x, ""],
  ["owns", (v) => v.share, "n"], ["", (v) => v.share, "bar"], ["own keys", (v) => v.keys, "n"], ["records", (v) => v.owner?.keys ?? 0, "n"],
  ["successor", (v, view) => view.byId.get(v.successors?.[0])?.name ?? "none", ""], ["size", (v) => v.owner?.value_bytes ?? 0, "n"],
];
const AT = 2; // columns
const OWNS = 4;
const natural = new Intl.Collator("en", { numeric: true });
const ROWS_MAX = 300;

export function Nodes() {
  const [chosen, setSort] = useState(null);
  const view = currentView();
  const [column, direction] = chosen ?? (isBig(view) ? [OWNS, -1] : [AT, 1]); // of many, the largest first
  const value = COLUMNS[column][1];
  const rows = [...view.vnodes].sort((a, b) => {
    const [x, y] = [value(a, view), value(b, view)];
    return direction * (typeof x === "string" ? natural.compare(x, y) : x - y);
  });
  const top = Math.max(1e-9, ...view.vnodes.map((v) => v.share));
  const headers = COLUMNS.map(([name, , cls], i) => (name
    ? html`<th scope="col" class=${cls} key=${name} aria-sort=${column === i ? (direction > 0 ? "ascending" : "descending") : "none"}>
        <button type="button" onClick=${() => setSort([i, column === i ? -direction : 1])}>${name}</button></th>`
    : html`<td key="bar"></td>`));
  return html`<p class="mute">Every vnode: the same data as the picture, to read, sort and copy.</p>
    <div class="scroll gap"><table class="nodes"><thead><tr>${headers}</tr></thead>
    <tbody>${rows.slice(0, ROWS_MAX).map((v) => html`<tr key=${v.id} class=${store.selected === v.id ? "on" : ""} onClick=${() => selectNode(v.id)}>
      <td><button type="button">${v.owner ? html`<${NodeDot} node=${v.owner} />` : ""}${v.name}</button></td><td class="mute">${STATES[v.mark]}</td><td class="n">${percent(v.x)}</td>
      <td class="mono mute">${shortId(v.id, view.bits)}</td><td class="n">${percent(v.share)}</td><td><svg class="hbar h${v.hue}" width="90" height="8" aria-hidden="true"><rect width=${(90 * v.share) / top} height="8" rx="1" /></svg></td>
      <td class="n">${count(v.keys)}</td><td class="n">${count(v.owner?.keys)}</td><td>${view.byId.get(v.successors?.[0])?.name ?? "none"}</td><td class="n mute">${bytes(v.owner?.value_bytes)}</td></tr>`)}</tbody></table></div>
    ${rows.length > ROWS_MAX && html`<p class="mute gap">The first ${ROWS_MAX} of ${count(rows.length)} vnodes. Sort to see others.</p>`}
    ${!rows.length && html`<p class="gap">No node has responded yet.</p>`}`;
}

// -- keys -------------------------------------------------------------------------------------------

const WINDOWS = [[10, "10 s"], [60, "1 min"]];

export function useHeat() {
  const [windowS, setWindow] = useState(60);
  const [heat, setHeat] = useState(null);
  const isLive = health() !== "played" && store.source === "live";
  useEffect(() => {
    if (!isLive) return undefined;
    let isOver = false;
    const load = () => api.heat(windowS).then((found) => !isOver && setHeat(found), () => {});
    load();
    const timer = setInterval(load, 5000);
    return () => { isOver = true; clearInterval(timer); };
  }, [windowS, isLive]);
  return { heat, windowS, setWindow };
}

export function KeysLeft({ heat }) {
  const view = currentView();
  const rows = [...view.members].sort((a, b) => b.keys - a.keys);
  const most = Math.max(1, rows[0]?.keys ?? 1);
  const mean = view.keys / Math.max(1, rows.length);
  const requests = heat?.requests ?? [];
  const skew = heat?.skew ?? {};
  const expected = harmonic(rows.length);
  return html`<aside class="left" aria-label="Keys of each arc" tabindex="0">
    <${Verdict} kind=${view.underReplicated ? "warn" : "ok"} title="${count(view.keys)} keys" sub=${requests.length ? `${count(requests.reduce((a, b) => a + b, 0))} requests${heat.counted_by ? `, counted by ${heat.counted_by.length} nodes` : ""}` : `${copiesText(view.N)} each`} />
    <section class="always"><h2 class="minor">Keys of each arc <small>· mean ${count(mean)}</small></h2><table class="arcs"><tbody>
      ${rows.slice(0, 20).map((v) => html`<tr key=${v.id}><th scope="row"><b>${v.name}</b></th><td><${HBar} share=${v.keys / most} mean=${mean / most} tone="h${v.hue}" /></td><td class="n">${count(v.keys)}</td></tr>`)}</tbody></table>
      ${rows.length > 20 && html`<p class="mute">and ${count(rows.length - 20)} arcs more</p>`}</section>
    <section class="always"><h2 class="minor">Skew</h2><${Facts} numbers rows=${[
      mean > 0 && ["largest over mean, keys", html`<b>${(most / mean).toFixed(1)}×</b>`],
      skew.requests !== undefined && skew.requests !== null && ["largest over mean, requests", html`<b>${Number(skew.requests).toFixed(1)}×</b>`],
      [`expected of ${rows.length} arcs`, html`<span title="H_n, the harmonic number">${expected.toFixed(1)}×</span>`],
    ]} /></section></aside>`;
}

export function KeysCenter({ heat, windowS, setWindow }) {
  const outer = heat?.keys?.length ? heat.keys : null;
  const inner = heat?.requests?.some(Boolean) ? heat.requests : null;
  return html`<div class="tools at-left"><span class="pill"><span class="dot mute"></span>${outer ? "keys, outside" : "keys for the length of the arc"}</span>${inner && html`<span class="pill"><span class="dot path"></span>requests, inside</span>`}</div>
    <div class="tools">${store.source === "live" && html`<${Segments} label="Window" value=${windowS} onChange=${setWindow} options=${WINDOWS} />`}</div>
    <${RingBox} extra=${{ outer, inner, hot: inner ? hotLabels(heat) : null, showShares: false, colorBy: outer ? "owner" : "keys", middle: null }} />`;
}

const hotLabels = (heat) => (heat.hot ?? []).slice(0, 5).map((one) => ({ x: position(one.id, currentView().bits), text: `${(one.key ?? one.key_b64).slice(0, 18)} ${percent(one.share)}` }));

export function HotKeys({ heat }) {
  const hot = heat?.hot ?? [];
  return html`<section class="bottom" aria-label="Hottest keys"><h2 class="minor gap">Hottest keys <small>· share of the requests</small></h2>
    ${hot.length ? html`<ol class="hotlist">${hot.slice(0, 10).map((one) => html`<li key=${one.key ?? one.key_b64}><div><b>${one.key ?? one.key_b64}</b><span>${percent(one.share)}</span></div>
      <${Meter} share=${one.share / hot[0].share} /><div class="mute"><span>on ${one.owner?.node ?? one.owner ?? "?"}</span></div></li>`)}</ol>`
      : html`<p class="mute">${store.source === "live" && health() !== "played" ? "No requests in this window." : "A recording does not count requests."}</p>`}</section>`;
}

// -- metrics ----------------------------------------------------------------------------------------

let uplot = null;
function loadPlot() {
  uplot ??= new Promise((resolve, reject) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "vendor/uplot.css" });
    const script = Object.assign(document.createElement("script"), { src: "vendor/uplot.js" });
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(link, script);
  });
  return uplot;
}


export function Metrics() {
  const [data, setData] = useState(null);
  const [error, setError] = useState(null);
  const isPlayed = health() === "played";
  useEffect(() => {
    if (isPlayed) return undefined;
    let isOver = false;
    const load = () => api.metrics().then((found) => !isOver && setData(found), (failure) => !isOver && setError(failure));
    load();
    const timer = setInterval(load, 5000);
    return () => { isOver = true; clearInterval(timer); };
  }, [isPlayed]);
  if (isPlayed) return html`<${PlayedMetrics} />`;
  if (!data) return html`<h1>Metrics</h1><p class="mute gap">${error ? error.message : "The first values arrive within seconds."}</p>`;
  const groups = data.series.filter((one) => one.values.some((value) => value !== null));
  return html`<h1>Metrics</h1><p class="mute">One value per second, for 15 minutes, summed over the nodes that respond.</p>
    <div class="charts gap">${groups.map((one) => html`<${Chart} key=${one.name + one.label} one=${one} at=${data.times_ms} />`)}</div>
    ${!groups.length && html`<p class="gap">No values yet.</p>`}`;
}

// The metrics of a recording: its own lines, its requests, and what its states show.
function PlayedMetrics() {
  const log = currentLog();
  if (!log?.lines.length) return html`<h1>Metrics</h1><p class="mute gap">The recording is empty.</p>`;
  const all = [...ownSeries(log), ...requestSeries(log), ...stateSeries(log)];
  return html`<h1>Metrics</h1><p class="mute">The whole recording: ${log.operations.length ? "its requests, and " : ""}what its states show. Times are seconds since its beginning.</p>
    <div class="charts gap">${all.map((one) => html`<${Chart} key=${one.name + one.label} one=${one} at=${one.at} isPlayed=${true} />`)}</div>`;
}

function ownSeries(log) {
  const rows = log.lines.filter((line) => line.m?.values);
  return [...new Set(rows.flatMap((line) => Object.keys(line.m.values)))].map((key) => {
    const [, name, label] = /^(\w+)(?:\{(\w+)\})?$/.exec(key) ?? [key, key, ""];
    const unit = /_p\d\d$/.test(name) ? "ms" : name === "rpc_bytes" ? "B/s" : name === "lookup_hops" ? "hops" : "1/s";
    return { name, label: label ?? "", unit, at: rows.map((line) => 1000 * (line.t - log.beginsS)), values: rows.map((line) => line.m.values[key] ?? null) };
  });
}

function requestSeries(log) {
  if (!log.operations.length) return [];
  const width = Math.max(1, (log.endsS - log.beginsS) / 60);
  const parts = Array.from({ length: Math.max(1, Math.floor((log.endsS - log.beginsS) / width)) }, () => []); // the last part may be incomplete
  for (const one of log.operations) parts[Math.floor((one.t - log.beginsS) / width)]?.push(1000 * (one.t1 - one.t0));
  const at = parts.map((_, i) => 1000 * width * (i + 0.5));
  const quantile = (list, share) => (list.length ? [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(share * list.length))] : null);
  return [
    { name: "requests", label: "", unit: "1/s", at, values: parts.map((list) => list.length / width) },
    { name: "time_of_a_request", label: "median", unit: "ms", at, values: parts.map((list) => quantile(list, 0.5)) },
    { name: "time_of_a_request", label: "longest", unit: "ms", at, values: parts.map((list) => quantile(list, 1)) },
  ];
}

function stateSeries(log) {
  const at = log.samples.map((one) => 1000 * (one.t - log.beginsS));
  return [["living", "nodes"], ["suspected", "suspected nodes"], ["waiting", "pointers not yet correct"], ["under", "under-replicated keys"], ["moves", "transfers"]]
    .map(([kind, name]) => ({ name, label: "", unit: "", isStepped: true, at, values: log.samples.map((one) => one[kind]) }));
}

function Chart({ one, at, isPlayed = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const format = one.unit === "B/s" ? bytes : plainNumber;
  useEffect(() => {
    let isOver = false;
    loadPlot().then((Plot) => {
      if (isOver) return;
      const data = [at.map((t) => t / 1000), one.values];
      if (plot.current) {
        plot.current.setData(data);
        return;
      }
      const [line, text] = [box.current.previousSibling, box.current].map((element) => getComputedStyle(element).color);
      const axis = { stroke: text, grid: { stroke: "#8883", width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui" };
      plot.current = new Plot({
        width: box.current.clientWidth, height: 168, legend: { show: false }, cursor: { y: false }, scales: { x: { time: !isPlayed } },
        axes: [{ ...axis, size: 28, space: 84, values: (_, ticks) => ticks.map((t) => (isPlayed ? `${+t.toFixed(1)} s` : new Date(1000 * t).toLocaleTimeString("en-GB"))) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(format) }],
        series: [{}, { stroke: line, width: 1.4, ...(one.isStepped ? { paths: Plot.paths.stepped({ align: 1 }) } : {}), points: { show: one.values.filter((v) => v !== null).length < 30, size: 4, fill: line } }],
      }, data, box.current);
    });
    return () => { isOver = true; };
  }, [at[at.length - 1]]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => plot.current?.setSize({ width: Math.round(entry.contentRect.width), height: 168 }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, []);
  const title = one.name.replaceAll("_", " ").replace("rpc", "RPC") + (one.label ? `, ${one.label}` : "");
  const last = one.values[one.values.length - 1];
  return html`<section class="chart" aria-label=${title}><div class="big"><h2>${title}</h2><span><b>${format(last)}</b> ${one.unit === "B/s" ? "/s" : one.unit === "1/s" ? "per s" : one.unit}</span></div>
    <span class="path" aria-hidden="true"></span><div class="plot mute" ref=${box}></div></section>`;
}

const plainNumber = (v) => (v === null || v === undefined ? "–" : v >= 1000 ? count(v) : String(+v.toPrecision(3)));

// -- recordings -------------------------------------------------------------------------------------

const SAMPLES = [["recordings/split.chordlog.gz", "A ring splits and heals", "12 simulated nodes, partitioned for 26 s"],
  ["recordings/lesson-join.chordlog", "A node joins", "7 simulated nodes on a circle of 256 points"],
  ["recordings/lesson-death.chordlog", "A node dies", "7 simulated nodes on a circle of 256 points"]];

export async function openFile(file) {
  try {
    if (file.size > BYTES_MAX) throw new Error("The recording is too long: at most 64 MiB are read.");
    openRecording(await readChordlog(await file.arrayBuffer()), file.name);
  } catch (error) {
    say(error.message);
  }
}

export async function openSample(url, name) {
  try {
    openRecording(await fetchLog(url), name);
  } catch (error) {
    say(`The recording cannot be opened: ${error.message}`);
  }
}

export function RecordingList() {
  const [isOver, setOver] = useState(false);
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    const [file] = event.dataTransfer.files;
    if (file) openFile(file);
  };
  return html`<section><h2 class="minor">Open a recording</h2>
    <div class="drop ${isOver ? "over" : ""}" onDragOver=${(e) => { e.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)} onDrop=${drop}>
      <p>Drop a <code>.chordlog</code> file here, or</p><p class="gap"><label class="button" for="file">Choose a file</label>
      <input class="sr" id="file" type="file" accept=".chordlog,.gz" onChange=${(e) => e.target.files[0] && openFile(e.target.files[0])} /></p></div></section>
    <section><h2 class="minor">Examples</h2><ul>${SAMPLES.map(([url, name, text]) => html`<li key=${url}><button type="button" class="card link gap" onClick=${() => openSample(url, name)}><b>${name}</b><p>${text}</p></button></li>`)}</ul></section>
    ${store.source === "live" && html`<section><h2 class="minor">This ring</h2><p><a class="button" href=${api.recordingUrl} download="ring.chordlog">Save the last 15 minutes</a></p></section>`}
    <section><h2 class="minor">Make one</h2><pre class="code">chord sim replay 3 --chordlog run.chordlog.gz</pre></section>`;
}

// The moments of a recording at which its state changes its kind.
export function Moments() {
  const log = currentLog();
  if (!log) return null;
  const view = currentView();
  const turns = log.samples?.filter((one) => one.isTurn).slice(0, 14) ?? [];
  const faults = log.faults.map((fault) => ({ t: fault.t, text: { partition: "the network is cut", heal: "the network is whole again" }[fault.do] ?? `${fault.do} ${(fault.groups ?? []).flat().join(" ")}` }));
  const rows = [...faults, ...turns.map((one) => ({ t: one.t, text: turnText(one) }))].sort((a, b) => a.t - b.t)
    .filter((row, i, all) => row.text !== all[i - 1]?.text);
  return html`<section><h2>${store.recordingName || "Recording"}</h2><${Facts} rows=${[
    ["source", { live: "a living ring", simulation: `simulated${log.header.seed === null ? "" : `, seed ${log.header.seed}`}`, model: "a model" }[log.header.source]],
    ["made by", html`<code>${log.header.command}</code>`],
    ["nodes", count(view.nodes.size)], ["constants", html`r = ${log.header.r}, N = ${log.header.N}, W = ${log.header.W}, 2<sup>${log.header.bits}</sup> points`],
    ["outcome", log.outcome ?? "the writer did not finish"],
  ]} /></section>
  ${rows.length > 0 && html`<section><h2 class="minor">Moments</h2><table><tbody>${rows.map((row, i) => html`<tr key=${i}><td class="wrap"><button type="button" class="chip" onClick=${() => { log.at = row.t; set({}); }}>${row.text}</button></td><td class="n mono">${(row.t - log.beginsS).toFixed(2)} s</td></tr>`)}</tbody></table></section>`}`;
}

function turnText(one) {
  if (one.rings > 1) return `${one.rings} rings`;
  if (one.violated) return one.violated === 1 ? "one invariant violated" : `${one.violated} invariants violated`;
  if (one.waiting) return "pointers not yet correct";
  if (one.suspected) return "a node is suspected";
  if (one.under) return "keys under-replicated";
  return "whole";
}
