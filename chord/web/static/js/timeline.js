// The event timeline: what changed, when, and the player above it.

import { count, counted, duration } from "./circle.js";
import { counts, feed } from "./feed.js";
import { html, Icon, Segments, useEffect, useRef, useState } from "./parts.js";
import { changed, currentLog, currentView, isBig, isFollowing, jump, play, seek, shownS, store } from "./store.js";
import { openNode } from "./left.js";

const LEFT = 104;
const ROW = 20;
const TOP = 4;

export function Player({ title = "" }) {
  const log = currentLog();
  if (!log?.lines.length) return null;
  const speed = log.speed ?? 1;
  const follows = isFollowing(log);
  return html`<div class="player">
    <button type="button" class="icon" aria-label="Previous event" onClick=${() => jump(-1)}><${Icon} name="first" /></button>
    <button type="button" class="icon" aria-label=${log.isPlaying ? "Pause" : "Play"} onClick=${() => play(!log.isPlaying)}><${Icon} name=${log.isPlaying ? "pause" : "play"} /></button>
    <button type="button" class="icon" aria-label="Next event" onClick=${() => jump(1)}><${Icon} name="next" /></button>
    <span class="clock">${follows ? "now" : (shownS(log) - log.beginsS).toFixed(2)}${log !== store.live && html` <span class="mute">/ ${duration(log.endsS - log.beginsS)}</span>`}</span>
    <${Segments} label="Speed" value=${speed} onChange=${(value) => { log.speed = value; changed(); }} options=${[[0.25, "¼×"], [1, "1×"], [2, "2×"], [4, "4×"], [8, "8×"]]} />
    ${log === store.live && !follows && store.source === "live" && html`<button type="button" class="button" onClick=${() => seek(Infinity)}>Now</button>`}
    <p>${title}</p>
  </div>`;
}

function useWidth() {
  const box = useRef(null);
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(300, Math.round(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

export function Timeline() {
  const [box, width] = useWidth();
  const log = currentLog();
  const samples = log?.samples ?? [];
  const isLive = log === store.live && store.source === "live";
  const end = log?.endsS ?? 0;
  const begin = isLive ? Math.max(log?.beginsS ?? 0, end - 300) : log?.beginsS ?? 0;
  const span = Math.max(1, end - begin);
  const left = LEFT;
  const x = (t) => left + ((width - left - 14) * Math.max(0, t - begin)) / span;
  const first = samples.findIndex((one, i) => (samples[i + 1]?.t ?? end) > begin); // the one before the window lasts into it
  const inside = first < 0 ? [] : samples.slice(first);
  const isSplit = log?.faults.some((fault) => fault.do === "partition") || samples.some((one) => one.rings > 1);
  const lanes = isSplit
    ? [["network", "faults"], ["violated", "violated", "red"], ["not yet correct", "waiting", "amber"], ["rings", "rings", "outline red"]]
    : [["members", "marks"], ["suspected", "suspected", "amber"], ["not yet correct", "waiting", "amber"], ["under-replicated", "under", "outline"], ["transfers", "moves"]];
  if (log?.operations.length) lanes.push(["requests", "operations"]);
  const bottom = TOP + ROW * lanes.length;
  const now = shownS(log);
  const scrub = (event) => {
    if (event.type === "pointerdown") event.currentTarget.setPointerCapture(event.pointerId);
    else if (!(event.buttons & 1)) return;
    const rect = event.currentTarget.getBoundingClientRect();
    seek(Math.max(begin, begin + (span * (event.clientX - rect.left - 6)) / (width - left - 14)));
  };
  const ticks = ticksOf(begin, end, width < 560 ? 4 : 9, isLive);
  return html`<div ref=${box}>
    <svg class="timeline" width=${width} height="140" viewBox="0 0 ${width} 140" role="img" aria-label=${`Timeline of ${duration(span)}: ${log?.marks.length ?? 0} changes of membership`}>
      ${ticks.map((t) => html`<line class="grid" x1=${x(t)} x2=${x(t)} y1="0" y2=${bottom} /><text class="axis" x=${x(t)} y=${bottom + 14} text-anchor=${x(t) > width - 40 ? "end" : x(t) < left + 10 ? "start" : "middle"}>${isLive ? tickText(t - end) : `${+(t - (log?.beginsS ?? 0)).toFixed(2)} s`}</text>`)}
      ${lanes.map(([label, kind, tone], i) => html`<g key=${kind}><text x="0" y=${TOP + ROW * i + 14}>${label}</text>
        <line class="floor" x1=${left} x2=${width - 14} y1=${TOP + ROW * (i + 1) - 1} y2=${TOP + ROW * (i + 1) - 1} />
        ${lane(kind, tone, log, inside, x, TOP + ROW * (i + 1) - 1, begin, end, width)}</g>`)}
      ${log?.lines.length > 0 && html`<rect class="surface" x=${left - 6} y="0" width=${width - left} height=${bottom} onPointerDown=${scrub} onPointerMove=${scrub} />
      <line class="now" x1=${x(now)} x2=${x(now)} y1="0" y2=${bottom} pointer-events="none" /><path class="thumb" pointer-events="none" d="M${x(now) - 5} 0h10v5l-5 5l-5-5z" />`}
    </svg>
    ${log?.lines.length > 0 && html`<input class="range sr" type="range" aria-label="Moment" min=${begin} max=${end} step=${span / 200} value=${now} onInput=${(e) => seek(Number(e.target.value))} />`}
  </div>`;
}

const tickText = (t) => (t > -0.5 ? "now" : `−${duration(-t).replace(".0", "")}`);

function ticksOf(begin, end, most, isFromEnd) {
  const span = Math.max(0.001, end - begin);
  const raw = span / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  if (isFromEnd) for (let t = end; t >= begin; t -= step) found.push(t);
  else for (let t = begin; t <= end + 1e-9; t += step) found.push(t);
  return found;
}

function lane(kind, tone, log, samples, x, floor, begin, end, width) {
  if (!log) return null;
  if (kind === "marks") return marks(log.marks.filter((mark) => mark.t >= begin).map((mark) => ({ t: mark.t, text: mark.name, ...LOOKS[mark.kind] })), x, floor, width);
  if (kind === "faults") return marks(log.faults.filter((fault) => fault.t >= begin).map((fault) => ({ t: fault.t, text: shortFault(fault), icon: fault.do === "heal" ? "link" : "cut", tone: fault.do === "heal" ? "path" : "bad" })), x, floor, width);
  if (kind === "operations") {
    const top = Math.max(0.001, ...log.operations.map((one) => one.t1 - one.t0));
    return log.operations.filter((one) => one.t >= begin).slice(-800).map((one) => html`<circle class=${one.st === "ok" ? "faintblue" : "amber"} cx=${x(one.t)} cy=${floor - 3 - 12 * Math.sqrt((one.t1 - one.t0) / top)} r="1.3" />`);
  }
  if (kind === "moves") return moves(samples, x, floor, end, width);
  if (!samples.length) return null;
  const top = Math.max(1, ...samples.map((one) => one[kind]));
  if (tone.startsWith("outline")) {
    const base = kind === "rings" ? 1 : 0;
    if (!samples.some((one) => one[kind] > base)) return null;
    let d = "";
    samples.forEach((one, i) => {
      const y = floor - 14 * ((one[kind] - base) / Math.max(1, top - base));
      d += `${i ? `H${x(one.t).toFixed(1)}V` : `M${x(one.t).toFixed(1)} ${floor}V`}${y.toFixed(1)}`;
    });
    return html`<path class=${tone} d=${`${d}H${x(end).toFixed(1)}V${floor}`} />`;
  }
  return samples.map((one, i) => {
    if (!one[kind]) return null;
    const to = samples[i + 1]?.t ?? end;
    const height = kind === "violated" ? 14 : 5 + 10 * (one[kind] / top);
    return html`<rect class=${tone} x=${x(one.t)} y=${floor - height} width=${Math.max(1.2, x(to) - x(one.t) + 0.4)} height=${height} />`;
  });
}

const LOOKS = {
  dead: { icon: "cross", tone: "bad" }, back: { icon: "up", tone: "own" }, join: { icon: "join", tone: "path" }, left: { icon: "half", tone: "mute" },
};

function shortFault(fault) {
  return { partition: "cut in two", heal: "healed" }[fault.do] ?? `${fault.do} ${(fault.groups ?? []).flat().join(" ")}`;
}

function marks(list, x, floor, width) {
  let free = -Infinity;
  return list.map((mark) => {
    const at = x(mark.t);
    const isRoomy = at - 8 > free;
    const room = 22 + 7 * mark.text.length;
    const fits = isRoomy && at + room < width;
    if (isRoomy) free = at + (fits ? room - 6 : 8);
    return html`<g class=${mark.tone} transform="translate(${at - 6} ${floor - 15})"><title>${mark.text}</title>${isRoomy && html`<${Icon} name=${mark.icon} size=${13} />`}
      ${!isRoomy && html`<circle cx="6" cy="6" r="1.5" fill="currentColor" />`}${fits && html`<text class="mark-label" x="16" y="11">${mark.text}</text>`}</g>`;
  });
}

function moves(samples, x, floor, end, width) {
  const runs = [];
  samples.forEach((one, i) => {
    if (!one.moves) return;
    const to = samples[i + 1]?.t ?? end;
    const last = runs[runs.length - 1];
    if (last && one.t - last.to < 0.6) {
      last.to = to;
      last.moved = Math.max(last.moved, one.moved);
    } else runs.push({ from: one.t, to, moved: one.moved, movers: one.movers });
  });
  let free = -Infinity;
  return runs.map((run) => {
    const at = x(run.to) + 6;
    const movers = [...new Set(run.movers)].slice(0, 3);
    const text = `${movers.join(", ")} ${movers.length === 1 ? "transfers" : "transfer"} ${counted(run.moved, "record")}`;
    const next = runs.find((other) => other.from > run.from);
    const ends = at + 6.2 * text.length;
    const fits = at > free && ends < (next ? x(next.from) - 4 : width);
    free = fits ? ends : at;
    return html`<g><rect class="blue" x=${x(run.from)} y=${floor - 12} width=${Math.max(6, x(run.to) - x(run.from))} height="7" rx="2" />
      ${fits && html`<text x=${at} y=${floor - 5}>${text}</text>`}</g>`;
  });
}

// -- the list of events -----------------------------------------------------------------------------

export function Events() {
  const log = currentLog();
  if (!log) return html`<section class="events" aria-label="Events"><h2 class="minor">Events</h2><p class="mute">none</p></section>`;
  const until = log.at;
  if (isBig(currentView(log))) return html`<${Counts} log=${log} />`;
  const { lines, shown, all } = feed(log, until);
  return html`<section class="events" aria-label="Events" tabindex="0"><h2 class="minor"><span>Events</span><small>${until === null ? count(all) : `${shown} of ${all}`}</small></h2>
    ${lines.length ? html`<ol>${lines.map((line, i) => html`<li key=${`${line.t}/${line.text}/${i}`}><time>${timeText(line.t, log)}</time><${Icon} name=${line.icon} tone=${line.tone} size=${13} />
      ${line.address ? html`<button type="button" onClick=${() => openNode(line.address)}>${line.text}</button>` : html`<span>${line.text}${line.isPolled && html` <small class="mute" title="Only a poll revealed it, so its time may be one poll late">± poll</small>`}</span>`}</li>`)}</ol>` : html`<p class="mute">none yet</p>`}
  </section>`;
}

// In a large ring, counts replace the list.
function Counts({ log }) {
  const rows = counts(log, log.at);
  return html`<section class="events" aria-label="Events" tabindex="0"><h2 class="minor"><span>Events</span><small>${count(rows.reduce((sum, row) => sum + row[3], 0))}</small></h2>
    ${rows.length ? html`<ul class="counts">${rows.map(([word, icon, tone, n]) => html`<li key=${word}><b>${count(n)}</b><${Icon} name=${icon} tone=${tone} size=${13} /><span>${word}</span></li>`)}</ul>` : html`<p class="mute">none yet</p>`}
  </section>`;
}

function timeText(t, log) {
  if (log !== store.live || store.source !== "live") return (t - log.beginsS).toFixed(2);
  return new Date(log.header.began_ms + 1000 * t).toLocaleTimeString("en-GB").slice(0, 8).replace(/^\d\d:/, "");
}
