// The picture in the middle of the Ring, Keys, Recordings and Learn pages: the ring with its layers, or the bins.

import { BigRing } from "./bigring.js";
import { count, counted, duration } from "./circle.js";
import { copiesText } from "./left.js";
import { drawLookup, stepsOf } from "./lookup.js";
import { html, useEffect, useLayoutEffect, useRef } from "./parts.js";
import { calm, HOP_MS, isNarrow, RingView } from "./ring.js";
import { ageMs, currentView, hasContact, health, isBig, pointAt, selectNode, set, store } from "./store.js";

// Draw a scene. `extra` overrides fields of the scene: the Learn and Keys pages add pointers and bars.
export function RingBox({ extra = {} }) {
  const box = useRef(null);
  const ring = useRef(null);
  const view = currentView();
  const big = isBig(view);
  const scene = big ? null : sceneOf(view, extra);
  useEffect(() => {
    const redraw = () => set({});
    addEventListener("resize", redraw);
    return () => removeEventListener("resize", redraw);
  }, []);
  useLayoutEffect(() => {
    if (ring.current && ring.current.isBig !== big) {
      ring.current.destroy?.();
      box.current.replaceChildren();
      ring.current = null;
    }
    const on = { node: (id) => (extra.onNode ?? selectNode)(id), point: (x) => (extra.onPoint ?? pointAt)(x) };
    if (!ring.current) {
      ring.current = big ? new BigRing(box.current, on) : new RingView(box.current, on);
      ring.current.isBig = big;
    }
    ring.current.on = on;
    if (big) {
      ring.current.draw(view);
      return;
    }
    const known = ring.current.drawn;
    const isNew = !known || known.view !== view || known.text !== scene.text;
    if (!isNew) return;
    const isPointersOnly = known && known.view === view && known.staticText === scene.staticText;
    ring.current.drawn = { view, text: scene.text, staticText: scene.staticText };
    ring.current.stop();
    if (!isPointersOnly) ring.current.draw(scene);
    ring.current.point(scene.pointers, scene.key);
    if (scene.isMoving) {
      const last = scene.last;
      const next = () => {
        if (store.isStepping && store.step < last) set({ step: store.step + 1 });
        else set({ isStepping: false, isSingle: false });
      };
      if (store.step > 0) ring.current.run(`${store.lookup.id}/${store.lookup.from?.id}/${store.step}`, next);
      else setTimeout(() => store.isStepping && store.step === 0 && next(), calm() ? HOP_MS : 350);
    }
  });
  return html`<div class="ringbox" ref=${box}></div><${Overlay} view=${view} />`;
}

function sceneOf(view, extra) {
  const state = health();
  const scene = {
    view, colorBy: store.colorBy, selected: store.selected, roles: null, subs: null, pointers: [], key: null,
    isLost: state === "lost", showShares: true, outer: null, inner: null,
    requests: store.requests, ...extra,
  };
  if (store.lookup && !extra.isFixed) {
    Object.assign(scene, drawLookup(store.lookup, store.step, view));
    scene.last = stepsOf(store.lookup).length - 1;
    scene.isMoving = (store.isStepping || store.isSingle) && state !== "slow";
    if (calm() && store.isStepping && store.step > 0) {
      scene.isMoving = false;
      setTimeout(() => store.isStepping && store.step < scene.last && set({ step: store.step + 1 }), HOP_MS);
    }
    scene.selected = null;
    scene.showShares = false;
    scene.hasRest = true;
  } else if (store.selected && view.byId.get(store.selected)?.isDown === false && !extra.isFixed) fingersOf(view, scene);
  if (!scene.pointers.length && !scene.key && !("middle" in extra) && !scene.isLost) scene.middle = middleOf(view);
  scene.staticText = JSON.stringify([
    scene.colorBy, scene.colorBy === "requests" && [...scene.requests], scene.selected, scene.roles && [...scene.roles], scene.subs && [...scene.subs], scene.isLost, scene.showShares, scene.outer,
    scene.inner, scene.hot, scene.middle, scene.key, isNarrow(),
  ]);
  scene.text = scene.staticText + JSON.stringify([scene.pointers, scene.isMoving && store.step]);
  return scene;
}

// The fingers of the selected vnode, and its successor list outside the ring.
function fingersOf(view, scene) {
  const vnode = view.byId.get(store.selected);
  const m = 1n << BigInt(view.bits);
  const near = new Set([vnode.id]);
  scene.showShares = false;
  scene.hasRest = true;
  for (const [first, last, id] of vnode.fingers ?? []) {
    const target = view.byId.get(id);
    if (!target || id === vnode.id) continue;
    near.add(id);
    scene.pointers.push({ type: "chord", from: vnode.x, to: target.x, fromId: vnode.id, toId: id, cls: "thin", label: first === last ? `${last}` : `${first}–${last}` });
    const start = (BigInt(vnode.id) + (1n << BigInt(last))) % m;
    scene.pointers.push({ type: "start", x: Number((start << 53n) / m) / 2 ** 53 });
  }
  const list = (vnode.successors ?? []).map((id) => view.byId.get(id)?.x).filter((x) => x !== undefined && x !== vnode.x);
  if (list.length) scene.pointers.push({ type: "list", from: vnode.x, points: list });
  scene.near = near;
}

function middleOf(view) {
  const n = view.living.length;
  if (!view.nodes.size) return null;
  if (view.cycles.length > 1) {
    return { big: `${view.cycles.length} rings`, lines: ["each ring believes that it is the only one", "a lookup in one never reaches the other"] };
  }
  if (view.missing.length) {
    return { big: `${view.missing.length} of ${count(view.nodes.size)}`, lines: ["nodes do not respond", "no other node declares them dead"] };
  }
  if (view.underReplicated) {
    return { big: count(view.underReplicated), lines: [
      `${view.underReplicated === 1 ? "key has" : "keys have"} fewer than ${copiesText(view.N)}`, safety(view),
    ] };
  }
  return { big: `${n} ${n === 1 ? "node" : "nodes"}`, lines: [`${counted(view.keys, "key")}, ${copiesText(view.N)} each`, "click a node and then a point, or type a key"] };
}

// No data is lost if fewer than W members of each replica set are unreachable.
function safety(view) {
  const isServers = store.live && view === currentView(store.live) && store.check && health() !== "played";
  const isSafe = isServers ? store.check.data_is_safe
    : view.down.length < view.W || view.incomplete.every((part) => part.unreachable.length < view.W);
  return isSafe ? `No data is lost: each write needs ${copiesText(view.W)}` : "Cannot determine whether data is lost";
}

function Overlay({ view }) {
  const state = health();
  if (state === "lost" && view.nodes.size) {
    const retryS = Math.max(0, Math.round((store.server.retryMs - Date.now()) / 1000));
    return html`<div class="overlay"><div><h2>${hasContact() ? "No node responds" : "No contact with the dashboard"}</h2><p class="mute">Last seen ${duration(ageMs() / 1000)} ago. ${retryS ? `Retrying in ${retryS} s.` : "Retrying."}</p></div></div>`;
  }
  if (!view.nodes.size) {
    return html`<div class="overlay"><div><h2>${state === "connecting" ? "Connecting" : "No ring yet"}</h2>
      <p class="mute">${store.page === "recordings" ? "Open a recording, or start one below." : html`Start one: <code>chord up -n 8</code>`}</p></div></div>`;
  }
  return null;
}
