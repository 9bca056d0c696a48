// A stream of states, events and checks of one ring. Live rings, recordings and simulations use the same stream.

const LETTERS = ["k", "d", "e", "f", "o", "c", "m"];
const KEYFRAME_EVERY = 400; // deltas between the keyframes that a live log makes for itself
const FINDING_S = 4;
export const BYTES_MAX = 64 << 20;

export class BadChordlog extends Error {}

export class Log {
  // `header` is the first line of a .chordlog. `keptS` bounds a live log; older lines are dropped.
  constructor(header, keptS = Infinity) {
    this.header = header;
    this.keptS = keptS;
    this.lines = [];
    this.keyframes = []; // indices into lines
    this.events = [];
    this.checks = [];
    this.faults = [];
    this.operations = [];
    this.marks = []; // changes of membership, for the timeline
    this.endsS = 0;
    this.outcome = null;
    this.live = { nodes: {}, vnodes: {} };
    this.cursor = null;
    this.sinceKeyframe = 0;
    this.samples = []; // for the timeline
    this.at = null; // the moment that the page shows; null follows the end
    this.isPlaying = false;
    this.speed = 1;
    this.colors = new Map(); // the index of the owner's hue, by address
  }

  get beginsS() {
    return this.lines.length ? this.lines[0].t : 0;
  }

  push(line) {
    this.endsS = Math.max(this.endsS, line.t);
    const letter = LETTERS.find((one) => one in line);
    if (!letter) {
      if ("end" in line) this.outcome = line.end;
      return;
    }
    if (letter === "d" && !this.keyframes.length) return;
    const index = this.lines.length;
    const before = this.live;
    if (letter === "k") {
      this.live = applied({ nodes: {}, vnodes: {} }, line.k);
      this.keyframes.push(index);
      this.sinceKeyframe = 0;
    } else if (letter === "d") {
      this.live = applied(this.live, line.d);
      this.sinceKeyframe += 1;
    } else if (letter === "e") this.events.push({ t: line.t, ...line.e });
    else if (letter === "c") this.checks.push({ t: line.t, ...line.c });
    else if (letter === "f") this.faults.push({ t: line.t, ...line.f });
    else if (letter === "o") this.operations.push({ t: line.t, ...line.o });
    if (letter === "k" || letter === "d") this.noteMembers(line.t, before, index === 0);
    this.lines.push(line);
    if (this.keptS !== Infinity) {
      if (this.sinceKeyframe >= KEYFRAME_EVERY) this.push({ t: line.t, k: this.live });
      this.drop();
    }
  }

  noteMembers(t, before, isFirst) {
    const after = this.live;
    for (const [point, vnode] of Object.entries(after.vnodes)) {
      if (!this.colors.has(vnode.node)) this.colors.set(vnode.node, this.colors.size);
      if (isFirst || this.isFinding(t)) continue;
      const old = before.vnodes[point];
      const name = after.nodes[vnode.node]?.name ?? vnode.node;
      if (!old) this.marks.push({ t, kind: "join", name });
    }
    for (const [address, node] of Object.entries(after.nodes)) {
      const old = before.nodes[address];
      if (!old || old.state === node.state) continue;
      if (isDown(node.state) && !isDown(old.state)) this.marks.push({ t, kind: "dead", name: node.name });
      else if (isDown(old.state) && !isDown(node.state)) this.marks.push({ t, kind: "back", name: node.name });
    }
    for (const address of Object.keys(before.nodes)) {
      if (!after.nodes[address]) this.marks.push({ t, kind: "left", name: before.nodes[address].name });
    }
  }

  // The aggregator of a living ring finds the nodes one by one when it begins: that is no change of the ring.
  isFinding(t) {
    return this.keptS !== Infinity && t - this.beginsS < FINDING_S;
  }

  drop() {
    const oldest = this.endsS - this.keptS;
    if (this.keyframes.length < 2 || this.lines[this.keyframes[1]].t > oldest) return;
    const cut = this.keyframes[1];
    this.lines.splice(0, cut);
    this.keyframes = this.keyframes.slice(1).map((index) => index - cut);
    this.cursor = null;
    for (const list of [this.events, this.checks, this.faults, this.operations, this.marks]) {
      const first = list.findIndex((one) => one.t >= oldest);
      list.splice(0, first < 0 ? list.length : first);
    }
  }

  // The state at a time. Playing forward goes on from the state that was returned before.
  stateAt(t) {
    if (t >= this.endsS) return this.live;
    let at = this.cursor;
    if (!at || at.t > t) {
      let index = 0;
      for (const one of this.keyframes) if (this.lines[one].t <= t) index = one;
      at = { t: -1, next: index, state: { nodes: {}, vnodes: {} } };
    }
    let state = at.state;
    let next = at.next;
    while (next < this.lines.length && this.lines[next].t <= t) {
      const line = this.lines[next];
      if (line.k) state = applied({ nodes: {}, vnodes: {} }, line.k);
      else if (line.d) state = applied(state, line.d);
      next += 1;
    }
    this.cursor = { t, next, state };
    return state;
  }
}

export const isDown = (state) => state === "dead" || state === "unreachable" || state === "stopped";

// The state after a change. Objects of the state are replaced and never changed.
export function applied(state, change) {
  const nodes = { ...state.nodes };
  const vnodes = { ...state.vnodes };
  for (const name of change.gone ?? []) {
    delete nodes[name];
    delete vnodes[name];
  }
  for (const [address, fields] of Object.entries(change.nodes ?? {})) nodes[address] = { ...nodes[address], ...fields };
  for (const [point, fields] of Object.entries(change.vnodes ?? {})) vnodes[point] = { ...vnodes[point], ...fields };
  return { nodes, vnodes };
}

// Read a .chordlog, compressed or not.
export async function readChordlog(buffer) {
  let content = new Uint8Array(buffer);
  if (content[0] === 0x1f && content[1] === 0x8b) {
    const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
    content = new Uint8Array(await new Response(stream).arrayBuffer());
  }
  if (content.length > BYTES_MAX) throw new BadChordlog("The recording is too long: at most 64 MiB are read.");
  return parseChordlog(new TextDecoder().decode(content));
}

export function parseChordlog(text) {
  const lines = text.split("\n");
  let header = null;
  try {
    header = JSON.parse(lines[0]);
  } catch {
    // reported below
  }
  if (!header || header.chordlog === undefined) throw new BadChordlog("This file is no recording: its first line has no version.");
  if (header.chordlog !== 1) throw new BadChordlog(`The recording has version ${header.chordlog}; this page reads version 1.`);
  const log = new Log(header);
  for (let i = 1; i < lines.length; i += 1) {
    if (!lines[i]) continue;
    let line;
    try {
      line = JSON.parse(lines[i]);
    } catch {
      if (i >= lines.length - 1) break; // a writer that is killed leaves an incomplete last line
      throw new BadChordlog(`Line ${i + 1} of the recording is no JSON object.`);
    }
    log.push(line);
  }
  return log;
}
