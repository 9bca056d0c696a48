// What the page knows: the streams, the moment that it shows, the selection, and the state of the connection.

import { api } from "./api.js";
import { violations } from "./invariants.js";
import { Log, parseChordlog, readChordlog } from "./log.js";
import { lookupInState, stepsOf } from "./lookup.js";
import { derive, EMPTY } from "./view.js";

const KEPT_S = 900;
const POLL_MS = 1000;
const SLOW_MS = 3 * POLL_MS; // the data of a page is old after three polls
const LOST_MS = 8000;
const SAMPLES_MAX = 300;
const BIG_VNODES = 256;

const BLANK = { bits: 160, r: 1, N: 1, W: 1, source: "live" };

export const store = {
  page: "ring", tab: "lookup", theme: "", colorBy: "owner", bandBy: "nodes", binRequests: null,
  live: null, recording: null, lesson: null, recordingName: "",
  source: null, // of the server: live, recording, simulation, model; null before its first message
  server: { isOpen: false, lastMs: 0, ageMs: null, error: null, retryMs: 0, mayWrite: false, isDemo: false },
  check: null, seenMs: {}, late: {},
  selected: null, from: null, mode: "iterative", route: "classic",
  lookup: null, lookupError: null, step: 0, isStepping: false, compared: null,
  query: "", key: "", toast: "", metrics: [], hops: [], operations: [], requests: new Map(),
};

const listeners = new Set();
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let isQueued = false;
export function changed() {
  if (isQueued) return;
  isQueued = true;
  queueMicrotask(() => {
    isQueued = false;
    for (const listener of listeners) listener();
  });
}

export function set(changes) {
  Object.assign(store, changes);
  changed();
}

// -- the stream that the page shows -----------------------------------------------------------------

export function currentLog() {
  if (store.page === "recordings") return store.recording;
  if (store.page === "learn") return store.lesson;
  return store.live;
}

const cache = new WeakMap();
const noLog = new Log(BLANK);

// The state at the moment that the page shows, derived once for each change.
export function currentView(log = currentLog() ?? noLog) {
  const t = log.at ?? Infinity;
  const state = log.lines.length ? log.stateAt(t) : EMPTY;
  const known = cache.get(log);
  if (known?.state === state) return known.view;
  const view = derive(state, log);
  cache.set(log, { state, view });
  return view;
}

export const isBig = (view) => view.vnodes.length > BIG_VNODES;

// The time that the page shows, in seconds of the stream.
export const shownS = (log) => log?.at ?? log?.endsS ?? 0;
export const isFollowing = (log) => log === store.live && log?.at === null;

// -- the verdict ------------------------------------------------------------------------------------

const brokenCache = new WeakMap();
export function currentViolations(view) {
  if (!brokenCache.has(view)) brokenCache.set(view, violations(view));
  return brokenCache.get(view);
}

export function health() {
  if (store.page === "recordings" || store.page === "learn" || (store.source && store.source !== "live")) return "played";
  if (!store.live || !store.source) return store.server.error ? "lost" : "connecting";
  const oldMs = ageMs();
  const isAllDown = store.live.lines.length > 0 && Object.values(store.live.live.nodes).length > 0
    && Object.values(store.live.live.nodes).every((node) => ["dead", "unreachable", "stopped"].includes(node.state));
  if (isAllDown || !hasContact()) return "lost";
  return !store.server.isOpen || oldMs > SLOW_MS ? "slow" : "live";
}

// Whether the server's process responds: its stream has a message every second.
export const hasContact = () => Date.now() - store.server.lastMs < LOST_MS;

// The age of the oldest data: at the last message, and the time since then.
export function ageMs() {
  const { lastMs, ageMs: age } = store.server;
  return lastMs ? Date.now() - lastMs + (age ?? 0) : 0;
}

// -- the server ---------------------------------------------------------------------------------------

let events = null;
let hello = null; // the latest one
let baseMs = 0;
let retry = 0;

export function connect() {
  events?.close();
  events = new EventSource(api.eventsUrl);
  const on = (name, handle) => events.addEventListener(name, (message) => {
    store.server.lastMs = Date.now();
    store.server.isOpen = true;
    store.server.error = null;
    retry = 0;
    handle(JSON.parse(message.data));
    changed();
  });
  on("hello", onHello);
  on("state", onState);
  on("delta", (delta) => push(delta.at_ms, { d: delta }));
  on("event", (event) => push(event.at_ms, { e: event }));
  on("fault", ({ at_ms: atMs, ...fault }) => push(atMs, { f: fault }));
  on("lookup", (lookup) => store.operations.push(lookup) > 200 && store.operations.shift());
  on("metrics", onMetrics);
  on("check", (check) => set({ check }));
  on("reset", () => { // the state that follows begins a new log
    store.live = null;
    if (hello.ring.bits) newLive(hello);
  });
  events.onerror = () => {
    store.server.isOpen = false;
    store.server.error ??= "The dashboard's server does not respond.";
    if (events.readyState === EventSource.CLOSED) {
      retry = Math.min(8000, 2 * retry || 1000);
      store.server.retryMs = Date.now() + retry;
      setTimeout(connect, retry);
    }
    changed();
  };
}

function onHello(message) {
  hello = message;
  const { ring, source, write, demo } = message;
  const wasWithoutRing = store.source === "live" && !store.live;
  Object.assign(store, { source });
  Object.assign(store.server, { mayWrite: write, isDemo: demo });
  if (!ring.bits) return;
  if (wasWithoutRing && source === "live") {
    newLive(message);
    connect(); // the stream began before the ring was known, so it has no whole state
  } else if (!store.live || store.live.header.bits !== ring.bits) newLive(message);
}

function newLive({ ring, source, at_ms: atMs }) {
  baseMs = atMs;
  store.live = new Log({ ...BLANK, ...ring, source, began_ms: atMs, clock: "wall" }, KEPT_S);
}

async function onState(state) {
  store.seenMs = state.seen_ms;
  if (store.source !== "live") {
    await playFromServer();
    return;
  }
  if (!store.live) return;
  push(state.at_ms, { k: { nodes: state.nodes, vnodes: state.vnodes } });
  loadHistory(state.at_ms);
}

function onMetrics(metrics) {
  store.server.ageMs = metrics.age_ms;
  store.late = metrics.late;
  store.hops = metrics.hops;
  store.metrics.push({ at_ms: metrics.at_ms, ...metrics.values });
  if (store.metrics.length > KEPT_S) store.metrics.shift();
}

function push(atMs, line) {
  const log = store.live;
  if (!log) return;
  log.push({ t: (atMs - baseMs) / 1000, ...line });
  if (line.k || line.d) sample(log);
}

// Prepend what the server remembers of the last 15 minutes.
async function loadHistory(nowMs) {
  let history;
  try {
    history = await api.history(nowMs - 1000 * KEPT_S, nowMs);
  } catch {
    return;
  }
  const log = new Log(store.live.header, KEPT_S);
  log.at = store.live.at;
  for (const line of history.lines ?? []) {
    const { at_ms: atMs, ...content } = line;
    log.push({ t: (atMs - baseMs) / 1000, ...content });
  }
  const after = log.endsS;
  for (const line of store.live.lines) if (line.t > after) log.push(line);
  if (!log.keyframes.length) return;
  sampleAll(log);
  store.live = log;
  changed();
}

async function playFromServer() {
  const response = await fetch(api.recordingUrl);
  if (!response.ok) return;
  const log = await readChordlog(await response.arrayBuffer());
  openRecording(log, "");
  store.live = log;
  changed();
}

// -- recordings ---------------------------------------------------------------------------------------

export async function fetchLog(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`HTTP ${response.status}`);
  return url.endsWith(".gz") ? readChordlog(await response.arrayBuffer()) : parseChordlog(await response.text());
}

export function openRecording(log, name) {
  log.at = log.beginsS;
  sampleAll(log);
  set({ recording: log, recordingName: name, selected: null, lookup: null });
}

export function seek(t, log = currentLog()) {
  if (!log) return;
  const isEnd = log === store.live && store.source === "live" && t >= log.endsS - 0.01;
  log.at = isEnd ? null : Math.max(log.beginsS, Math.min(log.endsS, t));
  changed();
}

let lastFrame = 0;
export function play(isOn, log = currentLog()) {
  if (!log) return;
  if (isOn && log.at === null) log.at = log.endsS;
  if (isOn && log.at >= log.endsS && log !== store.live) log.at = log.beginsS;
  log.isPlaying = isOn;
  lastFrame = performance.now();
  if (isOn) requestAnimationFrame((now) => turn(now, log));
  changed();
}

function turn(now, log) {
  if (!log.isPlaying) return;
  const at = log.at + ((now - lastFrame) / 1000) * (log.speed ?? 1);
  lastFrame = now;
  if (at >= log.endsS) {
    log.isPlaying = false;
    seek(log.endsS, log);
    return;
  }
  log.at = at;
  changed();
  requestAnimationFrame((next) => turn(next, log));
}

// Jump to the next or the previous event.
export function jump(direction, log = currentLog()) {
  const times = [...new Set([log.beginsS, ...log.marks, ...log.faults, ...log.samples.filter((s) => s.isTurn), log.endsS].map((one) => one.t ?? one))]
    .sort((a, b) => a - b);
  const t = shownS(log);
  const next = direction > 0 ? times.find((one) => one > t + 1e-6) : times.reverse().find((one) => one < t - 1e-6);
  if (next !== undefined) seek(next, log);
}

// -- samples for the timeline -------------------------------------------------------------------------

function sample(log, view = currentSample(log), t = log.endsS) {
  const before = log.samples[log.samples.length - 1];
  const one = {
    t,
    living: view.living.length,
    suspected: [...view.nodes.values()].filter((node) => node.mark === "suspect").length,
    waiting: view.waiting.length,
    under: view.underReplicated,
    rings: view.cycles.length,
    violated: violations(view).length,
    moves: view.transfers.length,
    moved: view.transfers.reduce((sum, move) => sum + (move.total ?? move.done ?? 0), 0),
    movers: view.transfers.map((move) => move.node.name),
  };
  one.isTurn = Boolean(before) && ["suspected", "waiting", "under", "rings", "violated"].some((name) => !before[name] !== !one[name] || (name === "rings" && before.rings !== one.rings));
  log.samples.push(one);
  if (log.samples.length > 12 * SAMPLES_MAX) log.samples.shift();
}

function currentSample(log) {
  return derive(log.live, log);
}

export function sampleAll(log) {
  log.samples = [];
  const step = (log.endsS - log.beginsS) / SAMPLES_MAX;
  const most = Object.keys(log.live.vnodes).length > BIG_VNODES ? step * 10 : step;
  let next = -Infinity;
  let pending = null;
  for (const line of log.lines) {
    if (!line.k && !line.d) continue;
    if (pending !== null && line.t > pending && line.t >= next) {
      sample(log, derive(log.stateAt(pending), log), pending);
      next = pending + most;
    }
    pending = line.t;
  }
  if (pending !== null) sample(log, derive(log.stateAt(pending), log), pending);
}

// -- selection and lookups ------------------------------------------------------------------------------

export function selectNode(id) {
  if (store.page === "learn") return;
  set({ selected: id, tab: "node", lookup: null, from: currentView().byId.get(id)?.node ?? null });
}

export const clearSelection = () => set({ selected: null, lookup: null, step: 0, isStepping: false });

function canAsk() {
  return store.page !== "recordings" && store.source === "live";
}

// Look a key or a point up: by the ring itself if it lives, otherwise by the recorded pointers.
export async function lookUp({ key = null, point = null, from = store.from }) {
  const view = currentView();
  const start = [...view.nodes.values()].find((node) => node.address === from || node.name === from) ?? view.living[0];
  set({ lookupError: null, compared: null, tab: "lookup" });
  try {
    let found;
    if (canAsk()) {
      const body = { ...(key !== null ? { key } : { id: point }), ...(start ? { from: start.address } : {}), mode: store.mode, route: store.route };
      found = store.route === "successor" ? await api.lookup({ ...body, mode: "successor", route: "classic" }) : await api.lookup(body);
      api.compare({ ...(key !== null ? { key } : { id: point }), ...(start ? { from: start.address } : {}) })
        .then((compared) => set({ compared }), () => {});
    } else {
      if (!start?.points.length) throw new Error("No node of this moment can begin a lookup.");
      found = lookupInState(view, start.points[0].id, point ?? (await hash(key, view.bits)));
      found.key = key;
    }
    showLookup(found);
  } catch (error) {
    set({ lookupError: { message: error.message, hint: error.hint }, lookup: null });
  }
}

async function hash(key, bits) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-1", new TextEncoder().encode(key)));
  let value = 0n;
  for (const byte of digest) value = (value << 8n) | BigInt(byte);
  return String(value >> BigInt(160 - bits));
}

export function showLookup(lookup) {
  set({ lookup, step: 0, selected: null, isStepping: true, from: lookup.from?.address ?? store.from });
}

export function goStep(direction) {
  if (!store.lookup) return;
  const last = stepsOf(store.lookup).length - 1;
  set({ step: Math.max(0, Math.min(last, store.step + direction)), isStepping: false, isSingle: direction > 0 });
}

export function pointAt(x) {
  const view = currentView();
  const id = (BigInt(Math.floor(x * 2 ** 53)) << BigInt(view.bits)) >> 53n;
  lookUp({ point: String(id) });
}

export function find(text) {
  const view = currentView();
  const node = [...view.nodes.values()].find((one) => one.name === text || one.address === text);
  if (node?.points.length) selectNode(node.points[0].id);
  else if (/^(0x[0-9a-f]+|\d+)$/i.test(text) && (text.startsWith("0x") || view.bits <= 20)) lookUp({ point: String(BigInt(text)) });
  else if (text) lookUp({ key: text });
}

export function say(text) {
  set({ toast: text });
  setTimeout(() => store.toast === text && set({ toast: "" }), 4000);
}
