// The page Learn: ten chapters on a circle of 256 points. Every picture is a moment of a recording of real nodes.

import { clockwise, position } from "./circle.js";
import { CHAPTERS } from "./lessons.js";
import { drawLookup, lookupInState, stepsOf } from "./lookup.js";
import { html, Icon, useEffect, useState } from "./parts.js";
import { RingBox } from "./ringpage.js";
import { currentView, fetchLog, sampleAll, say, set, store } from "./store.js";
import { ownerAt } from "./view.js";

const SUBJECT = 190;
const FROM = "80";
const logs = {};
let lookups = null;
const flat = CHAPTERS.flatMap((chapter, c) => chapter.steps.map((step, s) => ({ ...step, c, s })));

export const lessonAt = () => flat[store.lessonStep ?? 0];

export async function openLesson(index) {
  const step = flat[Math.max(0, Math.min(flat.length - 1, index))];
  try {
    if (!logs[step.log]) {
      const log = await fetchLog(`recordings/lesson-${step.log}.chordlog`);
      sampleAll(log);
      logs[step.log] = log;
    }
    lookups ??= await (await fetch("recordings/lesson-lookups.json")).json();
  } catch (error) {
    say(`The lesson cannot be loaded: ${error.message}`);
    return;
  }
  const log = logs[step.log];
  log.at = step.t;
  const at = flat.indexOf(step);
  const done = Math.max(store.lessonDone ?? -1, at === flat.length - 1 ? at : at - 1); // no step follows the last one
  set({ lesson: log, lessonStep: at, lessonDone: done, selected: null, lookup: null, ownKey: null });
}

export const nextLesson = (direction) => openLesson((store.lessonStep ?? 0) + direction);

// The lookup that a step shows: the recorded trace, or that of the reader's own key over the recorded fingers.
function lookupOf(step, view) {
  const key = store.ownKey ?? SUBJECT;
  if (key === SUBJECT && !step.fromState) return { ...lookups[FROM], key: null };
  return lookupInState(view, FROM, String(key));
}

function sceneOf(step, view) {
  const extra = { isFixed: true, showShares: false, selected: null, middle: null, pointers: [], onNode: () => {} };
  const m = 2 ** view.bits;
  const vnode = view.byId.get(step.at ?? "");
  if (step.key !== undefined) extra.key = { x: step.key / m, label: String(step.key) };
  if (step.lookup !== undefined) {
    const lookup = lookupOf(step, view);
    const last = stepsOf(lookup).length - 1;
    const drawn = drawLookup(lookup, store.ownKey ? last : Math.min(step.lookup, last), view);
    Object.assign(extra, drawn, { hasRest: true });
    for (const [id, text] of drawn.subs) if (/to go/.test(text)) drawn.subs.set(id, `${Math.round(clockwise(view.byId.get(id).x, drawn.key.x) * m)} to go`);
    if (step.show === "passed") extra.pointers = [...notTaken(view), ...extra.pointers];
  } else if (step.show === "owner" || step.show === "copies") {
    const owner = ownerAt(view, step.key / m);
    extra.roles = new Map([[owner.id, "owner"]]);
    extra.subs = new Map([[owner.id, "owns it"]]);
    if (step.show === "copies") {
      const order = view.members;
      for (let i = 1; i < view.N; i += 1) {
        const copy = order[(order.indexOf(owner) + i) % order.length];
        extra.roles.set(copy.id, "copy");
        extra.subs.set(copy.id, `copy ${i}`);
      }
    }
  } else if (step.show === "successors") {
    for (const one of view.members) {
      const next = view.byId.get(one.successors[0]);
      extra.pointers.push({ type: "chord", from: one.x, to: next.x, fromId: one.id, toId: next.id, cls: "thin" });
    }
  } else if (step.show === "fingers") {
    extra.selected = vnode.id;
    extra.near = new Set([vnode.id]);
    for (const [first, last, id] of vnode.fingers ?? []) {
      const to = view.byId.get(id);
      if (!to) continue;
      extra.near.add(id);
      extra.pointers.push({ type: "chord", from: vnode.x, to: to.x, fromId: vnode.id, toId: id, cls: "thin", label: first === last ? String(last) : `${first}–${last}` });
      const start = (Number(vnode.id) + 2 ** last) % m;
      extra.pointers.push({ type: "start", x: start / m, label: String(start) });
    }
  } else if (step.show === "list") {
    extra.selected = vnode.id;
    extra.hasRest = true;
    extra.pointers.push({ type: "list", from: vnode.x, points: vnode.successors.map((id) => position(id, view.bits)) });
    const next = view.byId.get(vnode.successors[0]);
    extra.pointers.push({ type: "chord", from: vnode.x, to: next.x, fromId: vnode.id, toId: next.id, label: "successor" });
  } else if (step.show === "waiting") {
    extra.selected = vnode.id;
    for (const [id, label, cls] of [[vnode.successors[0], "successor", ""], [vnode.predecessor, "predecessor", "own"]]) {
      const to = view.byId.get(id);
      if (to) extra.pointers.push({ type: "chord", from: vnode.x, to: to.x, fromId: vnode.id, toId: to.id, label, cls });
    }
  } else if (step.show === "at") extra.selected = vnode?.id ?? null;
  else if (step.show === "bare") extra.middle = { big: "0 to 255", lines: ["256 points, clockwise"] };
  else if (!step.show && step.log === "ring") extra.middle = { big: "7 nodes", lines: ["each has a point"] };
  return extra;
}

// The fingers of 80 that the lookup does not take: past the key, or shorter.
function notTaken(view) {
  const m = 2 ** view.bits;
  const node = view.byId.get(FROM);
  const chord = (id, label, cls) => ({ type: "chord", from: node.x, to: view.byId.get(id).x, fromId: FROM, toId: id, cls: `not ${cls}`, label });
  return [
    chord("230", "7: past the key", "bad"), chord("120", "0–5: shorter", ""),
    { type: "start", x: 208 / m, label: "208", cls: "bad" }, { type: "start", x: 144 / m, label: "144" },
  ];
}

function LearnLeft() {
  const step = lessonAt();
  return html`<nav class="left" aria-label="Chapters"><section class="always"><h2 class="minor">How Chord works</h2><ol class="chapters">
    ${CHAPTERS.map((chapter, c) => {
      const first = flat.findIndex((one) => one.c === c);
      const last = first + chapter.steps.length - 1;
      const isDone = (store.lessonDone ?? -1) >= last;
      return html`<li key=${c}><button type="button" aria-current=${step.c === c ? "step" : null} onClick=${() => openLesson(first)}>
        <span class="num">${isDone && (step.c !== c || last === flat.length - 1) ? html`<span class="done"><${Icon} name="check" /></span>` : c + 1}</span><span>${chapter.title}</span>
        ${step.c === c && html`<span class="sub">${chapter.sub}</span>`}</button></li>`;
    })}</ol></section>
    <div class="note">Every picture shows a recorded moment of real Chord nodes.</div></nav>`;
}

function LearnCenter() {
  useEffect(() => { openLesson(store.lessonStep ?? 0); }, []);
  const view = currentView();
  if (!store.lesson || !view.vnodes.length) return html`<p class="mute">Loading the lesson</p>`;
  const step = lessonAt();
  const extra = sceneOf(step, view);
  if (step.free) extra.onPoint = (x) => set({ ownKey: Math.floor(x * 2 ** view.bits) });
  return html`<${RingBox} extra=${extra} />`;
}

function LearnRight() {
  const view = currentView();
  const step = lessonAt();
  const chapter = CHAPTERS[step.c];
  const isLoaded = Boolean(store.lesson && view.vnodes.length);
  return html`<aside class="side" aria-label="Lesson" tabindex="0"><div class="body"><section class="lesson">
    <p class="minor">Chapter ${step.c + 1} · step ${step.s + 1} of ${chapter.steps.length}</p><h1>${step.title}</h1>${step.text}</section>
    ${isLoaded && step.table && html`<${FingerTable} view=${view} at=${step.table} key190=${step.lookup !== undefined ? store.ownKey ?? SUBJECT : null} chosen=${step.lookup > 0} />`}
    ${isLoaded && step.lookup !== undefined && html`<${Remaining} view=${view} step=${step} />`}
    ${isLoaded && step.show === "waiting" && view.waiting.length > 0 && html`<section><h2 class="minor">Not yet correct</h2><ul class="marks">${view.waiting.map((one) => html`<li class="warn" key=${one.text}><${Icon} name="half" /><span>${one.text}</span></li>`)}</ul></section>`}
    ${isLoaded && step.log !== "ring" && html`<p class="mute">${((step.t - 1) * 1000).toFixed(1).replace(".0", "")} ms after ${step.log === "join" ? "100 started" : "160 failed"}, on the clock of the simulation</p>`}
  </div></aside>`;
}

function FingerTable({ view, at, key190, chosen }) {
  const vnode = view.byId.get(at);
  const m = 2 ** view.bits;
  const targetOf = (i) => (vnode.fingers ?? []).find(([first, last]) => first <= i && i <= last)?.[2];
  const lookup = key190 === null ? null : lookupInState(view, at, String(key190));
  const taken = lookup?.hops[1]?.via.kind === "finger" ? lookup.hops[1].via.index : null;
  const rest = key190 === null ? 0 : (key190 - Number(at) + m) % m;
  return html`<section><h2 class="minor">Fingers of ${at}</h2><table><thead><tr><th scope="col">i</th><th scope="col" class="n">distance 2<sup>i</sup></th><th scope="col" class="n">begins at</th><th scope="col" class="n">first node there</th><th scope="col"><span class="sr">remark</span></th></tr></thead>
    <tbody>${Array.from({ length: view.bits }, (_, n) => view.bits - 1 - n).map((i) => {
      const target = targetOf(i);
      const isPast = key190 !== null && target !== undefined && (Number(target) - Number(at) + m) % m >= rest;
      const isTaken = chosen && taken === i;
      return html`<tr key=${i} class=${isTaken ? "on" : ""}><td class="mono">${i}</td><td class="n ${isTaken ? "path" : ""}">${2 ** i}</td><td class="n ${isTaken ? "path" : ""}">${(Number(at) + 2 ** i) % m}</td>
        <td class="n ${isTaken ? "path" : ""}">${target === undefined ? "not yet known" : html`<b>${view.byId.get(target)?.name ?? target}</b>`}</td><td class=${isTaken ? "path" : "mute"}>${isTaken ? "→ next hop" : isPast ? "past the key" : ""}</td></tr>`;
    })}</tbody></table></section>`;
}

function Remaining({ view, step }) {
  const lookup = lookupOf(step, view);
  const m = 2 ** view.bits;
  const steps = stepsOf(lookup).filter((one) => one.kind !== "owner");
  const shown = store.ownKey ? steps : steps.slice(0, step.lookup + 1);
  const first = clockwise(view.byId.get(steps[0].id).x, Number(lookup.id) / m) || 1;
  return html`<section><h2 class="minor">Remaining distance after each hop</h2><table><tbody>${shown.map((one) => {
    const rest = clockwise(view.byId.get(one.id).x, Number(lookup.id) / m);
    return html`<tr key=${one.id}><th scope="row"><b>${one.node}</b></th><td><svg class="hbar path" viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true"><rect width=${100 * rest / first} height="9" rx="1" /></svg></td><td class="n">${Math.round(rest * m)} points</td></tr>`;
  })}</tbody></table>${lookup.owner && (store.ownKey || step.lookup >= steps.length) && html`<p class="gap"><b class="own">${lookup.owner.node}</b> owns ${lookup.id}.</p>`}</section>`;
}

function LearnBottom() {
  const step = lessonAt();
  const index = store.lessonStep ?? 0;
  const [isShown, setShown] = useState(false);
  const [typed, setTyped] = useState(null);
  useEffect(() => { setShown(false); setTyped(null); }, [index]);
  const submit = (event) => {
    event.preventDefault();
    const value = Number(new FormData(event.target).get("own"));
    if (Number.isInteger(value) && value >= 0 && value < 256) set({ ownKey: value });
  };
  return html`<section class="bottom" aria-label="Steps">
    <div class="row gap"><button type="button" class="button" disabled=${index === 0} onClick=${() => nextLesson(-1)}>Back</button>
      <button type="button" class="button primary" disabled=${index === flat.length - 1} onClick=${() => nextLesson(1)}><${Icon} name="play" size=${11} />${nextText(index)}</button>
      <span class="mute">or press <kbd>→</kbd></span><span class="grow"></span>
      ${step.lookup !== undefined && html`<form class="row nowrap" onSubmit=${submit}><label class="mute" for="own">or try your own key</label><div class="field"><input id="own" name="own" inputmode="numeric" size="5" value=${typed ?? store.ownKey ?? SUBJECT} onInput=${(e) => setTyped(e.target.value)} /></div></form>`}</div>
    <div class="progress" role="img" aria-label="Step ${index + 1} of ${flat.length}">${CHAPTERS.map((chapter, c) => {
      const within = step.c === c ? (step.s + 1) / chapter.steps.length : step.c > c ? 1 : 0;
      const isOver = step.c > c || index === flat.length - 1;
      return html`<svg key=${c} viewBox="0 0 100 5" preserveAspectRatio="none"><rect width="100" height="5" /><rect class=${isOver ? "done" : "now"} width=${100 * within} height="5" /></svg>`;
    })}</div>
    ${step.think && html`<div class="note gold think"><b>Think first.</b> ${step.think[0]} ${isShown ? html`<span class="mute" role="status">${step.think[1]}</span>` : html`<button type="button" class="chip" onClick=${() => setShown(true)}>Show the answer</button>`}</div>`}
  </section>`;
}

function nextText(index) {
  const [now, next] = [flat[index], flat[index + 1]];
  if (!next) return "The end";
  return next.c === now.c ? "Next" : "Next chapter";
}

const shell = (commands) => commands.map((one) => `$ ${one.replaceAll("\n", "\n  ")}`).join("\n");

function LearnTerminal() {
  const step = lessonAt();
  return html`<section class="events" aria-label="The same in your terminal" tabindex="0"><h2 class="minor">The same in your terminal</h2>
    <pre>${shell(step.terminal.split("\n"))}</pre>
    <p class="mute gap">Before it, once for this chapter:</p><pre class="mute">${shell(CHAPTERS[step.c].setup)}</pre>
    <p class="mute gap">There, the nodes are called n0 to n6: n4 is the node at 160.</p></section>`;
}

export function LearnPage() {
  return html`<${LearnLeft} /><main class="center ringpage" id="main" tabindex="-1"><${LearnCenter} /></main><${LearnRight} /><${LearnBottom} /><${LearnTerminal} />`;
}
