// The frame of the page: the header, the pages by their address, the keys.

import { api } from "./api.js";
import { Left } from "./left.js";
import { count } from "./circle.js";
import { bandBy, BINS } from "./bigring.js";
import { LensBottom, WorstSide } from "./bigpanels.js";
import { duration } from "./circle.js";
import { HotKeys, KeysCenter, KeysLeft, Metrics, Moments, Nodes, RecordingList, useHeat } from "./pages.js";
import { html, Icon, render, Segments, useEffect, useRef, useState } from "./parts.js";
import { Right } from "./right.js";
import { RingBox } from "./ringpage.js";
import {
  ageMs, clearSelection, connect, currentLog, currentView, goStep, health, isBig, isFollowing, play, set, store, subscribe,
} from "./store.js";
import { Events, Player, Timeline } from "./timeline.js";
import { stepsOf } from "./lookup.js";
import { ownerAt } from "./view.js";

const PAGES = [["ring", "Ring"], ["keys", "Keys"], ["nodes", "Nodes"], ["metrics", "Metrics"], ["recordings", "Recordings"], ["learn", "Learn"], ["gallery", "Gallery"], ["lab", "Lab"]];
const TABS = { ring: "ring", keys: "keys", nodes: "rows", metrics: "bars", recordings: "time", learn: "book", gallery: "gallery", lab: "lab" }; // their icons
const BANDS = ["nodes", "keys", "requests"].map((name) => [name, name]);
const COLORS = ["owner", "keys", "requests", "copies"].map((name) => [name, name]);

function pageOfAddress() {
  const name = location.hash.replace(/^#\/?/, "").split("?")[0];
  return PAGES.some(([id]) => id === name) ? name : "ring";
}

const FIRST_TABS = { keys: "key", nodes: "node" };

function go() {
  const page = pageOfAddress();
  set({ page, tab: FIRST_TABS[page] ?? "lookup", selected: null, lookup: null, isStepping: false });
  document.title = `${PAGES.find(([id]) => id === store.page)[1]} · chord`;
}

function Source() {
  const state = health();
  const log = currentLog();
  if (["learn", "gallery", "lab"].includes(store.page)) return null;
  if (state === "played") {
    if (!log) return null;
    const span = duration(log.endsS - log.beginsS);
    const text = { live: `Recording · ${span}`, simulation: `Simulated · ${log.header.seed === null ? span : `seed ${log.header.seed}`}`, model: `Model · ${count(Object.keys(log.live.nodes).length)} nodes` };
    return html`<span class="pill path">${text[log.header.source]}</span>`;
  }
  const age = duration(ageMs() / 1000);
  if (state === "lost") return html`<span class="pill bad"><${Icon} name="x" size=${11} />No response for ${age}</span>`;
  if (state === "connecting") return html`<span class="pill">Connecting</span>`;
  if (!isFollowing(log)) return html`<span class="pill path">Past</span>`;
  return html`<span class="seen ${state === "slow" ? "warn" : ""}">seen ${age} ago</span>
    <span class="pill ${state === "slow" ? "warn" : "own"}"><span class="dot"></span>${state === "slow" ? `Slow · ${age}` : "Live"}</span>`;
}

const SUBTITLES = { learn: "how Chord works", gallery: "algorithms", lab: "reports" };

function Header() {
  const view = currentView();
  const n = view.nodes.size;
  const sub = SUBTITLES[store.page] ?? (store.page === "recordings" && store.recordingName ? store.recordingName : n ? `${count(n)} ${n === 1 ? "node" : "nodes"}` : "");
  return html`<header class="top"><a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <div class="brand"><svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true"><circle cx="10" cy="10" r="7.5" fill="none" stroke="currentColor" stroke-width="1.8" /><path class="path" d="M9 2.6Q9.5 9 15 15.6" fill="none" stroke="currentColor" stroke-width="1.8" /><circle class="path" cx="9" cy="2.6" r="2.4" fill="currentColor" /><circle class="own" cx="15.4" cy="15.4" r="2.4" fill="currentColor" /></svg>
      chord <small>${sub}</small></div>
    <nav class="nav" aria-label="Pages">${PAGES.map(([id, text]) => html`<a key=${id} href="#/${id}" aria-current=${store.page === id ? "page" : null}>${text}</a>`)}</nav>
    <div class="right"><${Source} />
      <button type="button" class="icon" aria-label="Change between light and dark" onClick=${toggleTheme}><${Icon} name="theme" size=${16} /></button>
      <button type="button" class="icon help" aria-label="Help" onClick=${() => document.getElementById("help").showModal()}><${Icon} name="help" size=${16} /></button></div></header>`;
}

function toggleTheme() {
  const isDark = store.theme ? store.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  applyTheme(isDark ? "light" : "dark");
}

function applyTheme(theme) {
  store.theme = theme;
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  set({});
}

function Help() {
  return html`<dialog id="help" aria-labelledby="help-title"><h1 id="help-title">Read the picture</h1>
    <ul class="gap"><li>A coloured band is an <b>arc</b>. It grows darker towards its owner, clockwise.</li>
      <li>A disc is a ready node; a half disc, a suspected one; a ringed ✕, a dead one. A dashed circle joins, and two bars are paused.</li>
      <li>Hatched arcs have fewer copies than usual. An amber line inside the ring: another node covers this arc.</li>
      <li>A golden diamond is a key. Blue lines are hops; blue arcs outside are the remaining distance.</li></ul>
    <p class="gap"><kbd>/</kbd> find · <kbd>←</kbd> <kbd>→</kbd> hops or steps · <kbd>Space</kbd> play · <kbd>Esc</kbd> clear · <kbd>↑</kbd> <kbd>↓</kbd> nodes</p>
    <form method="dialog" class="gap more"><button class="button primary">Close</button></form></dialog>`;
}

function TabBar() {
  const bar = useRef(null);
  useEffect(() => bar.current.querySelector("[aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" }), [store.page]);
  return html`<nav class="tabbar" ref=${bar} aria-label="Pages of the narrow screen">${PAGES.map(([id, text]) => html`<a key=${id} href="#/${id}" aria-current=${store.page === id ? "page" : null}><${Icon} name=${TABS[id]} size=${20} />${text}</a>`)}</nav>`;
}

// The requests of each vnode in the last minute, as a share of the most: the sum over the parts that it owns. Only vnodes
// of nodes that count are in it.
function useRequests(isOn) {
  useEffect(() => {
    if (!isOn) return undefined;
    const load = () => api.heat(60).then(({ requests, counted_by: by }) => {
      const view = currentView();
      const found = new Map(view.vnodes.filter((vnode) => by.includes(vnode.node)).map(({ id }) => [id, 0]));
      requests.forEach((n, i) => {
        const owner = n && ownerAt(view, (i + 0.5) / requests.length);
        if (found.has(owner?.id)) found.set(owner.id, found.get(owner.id) + n);
      });
      const most = Math.max(1, ...found.values());
      set({ requests: new Map([...found].map(([id, n]) => [id, n / most])) });
    }, () => {});
    load();
    const timer = setInterval(load, 3000);
    return () => clearInterval(timer);
  }, [isOn]);
}

// The requests of the last minute in each bin of a large ring, which only the server knows. A bin without an asked node has null.
function useBinRequests(isOn) {
  useEffect(() => {
    if (!isOn) return undefined;
    const load = () => api.requests(BINS).then((binRequests) => set({ binRequests }), () => {});
    load();
    const timer = setInterval(load, 3000);
    return () => clearInterval(timer);
  }, [isOn]);
}

function RingTools() {
  const isLive = health() !== "played"; // a recording does not count requests
  const big = isBig(currentView());
  useRequests(isLive && !big && store.colorBy === "requests");
  useBinRequests(isLive && big && store.bandBy === "requests");
  if (store.lookup) return null;
  if (big) {
    return html`<div class="tools"><${Segments} label="Tint of the band" value=${bandBy()} onChange=${(bandBy) => set({ bandBy })} options=${BANDS.filter(([name]) => isLive || name !== "requests")} /></div>`;
  }
  return html`<div class="tools"><${Segments} label="Colour by" value=${store.colorBy} onChange=${(colorBy) => set({ colorBy })} options=${COLORS.filter(([name]) => isLive || name !== "requests")} /></div>`;
}

function RingPage() {
  const view = currentView();
  const big = isBig(view);
  return html`<${Left} /><main class="center ringpage" id="main" tabindex="-1"><h1 class="sr">Ring</h1><${RingTools} /><${RingBox} /></main>
    ${big ? html`<${WorstSide} view=${view} />` : html`<${Right} />`}
    ${big ? html`<${LensBottom} view=${view} />` : html`<section class="bottom" aria-label="Timeline"><${Player} /><${Timeline} /></section>`}<${Events} />`;
}

function KeysPage() {
  const heat = useHeat();
  return html`<${KeysLeft} ...${heat} /><main class="center ringpage" id="main" tabindex="-1"><h1 class="sr">Keys</h1><${KeysCenter} ...${heat} /></main><${Right} /><${HotKeys} ...${heat} /><${Events} />`;
}

function NodesPage() {
  return html`<${Left} /><main class="center page" id="main" tabindex="-1"><h1 class="sr">Nodes</h1><${Nodes} /></main><${Right} />
    <section class="bottom" aria-label="Timeline"><${Player} /><${Timeline} /></section><${Events} />`;
}

function RecordingsPage() {
  const view = currentView();
  const [tab, setTab] = useState("recording");
  return html`<${Left} /><main class="center ringpage" id="main" tabindex="-1"><h1 class="sr">Recordings</h1><${RingTools} /><${RingBox} /></main>
    ${store.recording && tab === "recording" && (store.selected || store.lookup) ? html`<${Right} />` : html`<aside class="side" aria-label="Recordings" tabindex="0"><div class="body">
      ${store.recording && html`<${Segments} label="Show" value=${tab} onChange=${setTab} options=${[["recording", "This recording"], ["open", "Open another"]]} />`}
      ${store.recording && tab === "recording" ? html`<${Moments} />` : html`<${RecordingList} />`}</div></aside>`}
    ${isBig(view) ? html`<${LensBottom} view=${view} />` : html`<section class="bottom" aria-label="Timeline"><${Player} title=${store.recordingName} /><${Timeline} /></section>`}<${Events} />`;
}

const loaded = {}; // the modules of pages that are loaded when they are opened

function later(load, name) {
  return () => {
    const [isLoaded, setLoaded] = useState(name in loaded);
    useEffect(() => { load().then((module) => { Object.assign(loaded, module); setLoaded(true); }); }, []);
    return isLoaded ? html`<${loaded[name]} />` : html`<main class="center page wide" id="main" tabindex="-1"><p class="mute">Loading</p></main>`;
  };
}

const plain = (Page) => () => html`<main class="center page wide" id="main" tabindex="-1"><${Page} /></main>`;
const VIEWS = {
  ring: RingPage, keys: KeysPage, nodes: NodesPage, metrics: plain(Metrics), recordings: RecordingsPage,
  learn: later(() => import("./learn.js"), "LearnPage"),
  gallery: later(() => import("./gallery.js"), "GalleryPage"), lab: later(() => import("./lab.js"), "LabPage"),
};

function App() {
  const [, turn] = useState(0);
  useEffect(() => subscribe(() => turn((n) => n + 1)), []);
  const Page = VIEWS[store.page];
  return html`<div class="app"><${Header} /><${Page} key=${store.page} /><${TabBar} /></div><${Help} />
    ${store.toast && html`<div class="toast" role="status">${store.toast}</div>`}`;
}

function onKey(event) {
  if (event.target.closest?.("input, select, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    set({ tab: "lookup", selected: null });
    const focus = () => document.getElementById("find")?.focus();
    focus();
    setTimeout(focus);
  } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const direction = event.key === "ArrowRight" ? 1 : -1;
    if (store.page === "learn") loaded.nextLesson?.(direction);
    else if (store.page === "gallery") loaded.moveGallery?.(direction);
    else goStep(direction);
  } else if (event.key === " " && !event.target.closest?.("button, a, [role=button]")) {
    event.preventDefault();
    if (store.page === "gallery") loaded.playGallery?.();
    else if (store.lookup) set({ isStepping: !store.isStepping, step: store.step >= stepsOf(store.lookup).length - 1 ? 0 : store.step });
    else play(!currentLog()?.isPlaying);
  } else if (event.key === "Escape") clearSelection();
}

const saved = localStorage.getItem("theme");
if (saved) document.documentElement.dataset.theme = store.theme = saved;
addEventListener("hashchange", go);
addEventListener("keydown", onKey);
go();
connect();
setInterval(() => { if (store.source === "live" || store.server.error) set({}); }, 1000);
render(html`<${App} />`, document.getElementById("root"));
