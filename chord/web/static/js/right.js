// The right panel of the Ring page: the tabs Lookup, Node and Key.

import { api } from "./api.js";
import { bytes, clockwise, count, ms, percent, position, shortId } from "./circle.js";
import { powerText, stepsOf, viaText } from "./lookup.js";
import { html, Facts, Icon, Meter, NodeDot, Segments, useEffect, useState } from "./parts.js";
import { STATES } from "./ring.js";
import { currentLog, currentView, find, goStep, hasContact, health, lookUp, say, selectNode, set, store } from "./store.js";
import { derive, exactSuccessors, names } from "./view.js";

export function Right() {
  const tabs = [["lookup", "Lookup"], ["node", "Node"], ["key", "Key"]];
  const move = (event) => {
    const i = tabs.findIndex(([id]) => id === store.tab);
    const next = { ArrowRight: i + 1, ArrowLeft: i + tabs.length - 1 }[event.key];
    if (next === undefined) return;
    event.stopPropagation();
    set({ tab: tabs[next % tabs.length][0] });
    event.currentTarget.querySelectorAll("button")[next % tabs.length].focus();
  };
  return html`<aside class="side" aria-label="Details">
    <div class="tabs" role="tablist" aria-label="Details" onKeyDown=${move}>
      ${tabs.map(([id, text]) => html`<button type="button" role="tab" key=${id} id="tab-${id}" aria-controls="tabpanel" tabindex=${store.tab === id ? 0 : -1}
        aria-selected=${String(store.tab === id)} onClick=${() => set({ tab: id })}>${text}</button>`)}</div>
    <div class="body" role="tabpanel" id="tabpanel" aria-labelledby="tab-${store.tab}" tabindex="0">
      ${store.tab === "lookup" ? html`<${Lookup} />` : store.tab === "node" ? html`<${NodeTab} />` : html`<${KeyTab} />`}</div>
  </aside>`;
}

// -- lookup -----------------------------------------------------------------------------------------

function Lookup() {
  const view = currentView();
  const isLive = health() !== "played";
  const nodes = [...view.living].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const submit = (event) => {
    event.preventDefault();
    const query = new FormData(event.target).get("key").trim();
    set({ query });
    find(query);
  };
  return html`<section>
    <form class="row nowrap" onSubmit=${submit}>
      <div class="field grow"><${Icon} name="search" /><input name="key" id="find" aria-label="Key, node or point to find" placeholder="key, node, address or 0x id" value=${store.query} onInput=${(e) => { store.query = e.target.value; }} autocomplete="off" spellcheck="false" /></div>
      <div class="field"><label for="from">from</label><select id="from" value=${store.from ?? nodes[0]?.address ?? ""} onChange=${(e) => set({ from: e.target.value })}>
        ${nodes.map((node) => html`<option key=${node.address} value=${node.address}>${node.name}</option>`)}</select></div>
      <button class="sr" type="submit">Find</button>
    </form>
    ${isLive && html`<div class="row tight gap">
      <${Segments} label="Mode" value=${store.mode} onChange=${(mode) => set({ mode })} options=${[["iterative", "iterative"], ["recursive", "recursive"]]} />
      <${Segments} label="Route" value=${store.route} onChange=${(route) => set({ route })} options=${[["classic", "classic"], ["fast", "fast"], ["successor", "successor"]]} />
    </div>`}
    ${!isLive && html`<p class="mute gap onscreen">A lookup here follows the recorded pointers of this moment.</p>`}
  </section>
  ${store.lookupError && html`<div class="note bad" role="alert"><b>${store.lookupError.message}</b>${store.lookupError.hint && html`<br />${store.lookupError.hint}`}</div>`}
  ${store.lookup ? html`<${Hops} view=${view} lookup=${store.lookup} />` : html`<div class="mute onscreen">
    <p>Type a key, or click a node and then a point of the circle.</p>
    <p class="gap"><kbd>←</kbd> <kbd>→</kbd> step through the hops, <kbd>Space</kbd> plays, <kbd>/</kbd> finds.</p></div>`}`;
}

export function Hops({ view, lookup }) {
  const steps = stepsOf(lookup);
  const x = position(lookup.id, view.bits);
  const dead = lookup.hops.filter((hop) => hop.outcome !== "ok");
  const at = (one) => view.byId.get(one.id)?.x ?? position(one.id, view.bits);
  return html`<section>
    <h2 class="minor"><b class="key">${lookup.key ?? "point"}</b> <span class="mono">${shortId(lookup.id, view.bits)}</span> <small>· ${percent(x)}</small></h2>
    <ol class="hops">${steps.map((one, i) => {
      const isOwner = one.kind === "owner" || (one.id === lookup.owner?.id && i === steps.length - 1);
      const rest = clockwise(at(one), x);
      return html`<li key=${i} class=${i > store.step ? "later" : ""}>
        <span class="mark ${isOwner ? "owner" : i === 0 ? "start" : i === store.step ? "now" : ""}">${isOwner ? html`<${Icon} name="check" />` : i || ""}</span>
        <div><div class="head"><button type="button" onClick=${() => set({ step: i, isStepping: false })}><b>${one.node}</b> <span class="mute">at ${view.bits <= 20 ? one.id : percent(at(one))}</span></button>
          <span class="mute">${isOwner ? "owner" : one.rtt_ms !== null ? ms(one.rtt_ms) : ""}</span></div>
          <p>${viaText(one, steps[i - 1], view)}</p>
          ${!isOwner && html`<div class="left-over"><${Meter} share=${rest} /><span>${restText(rest, view)}</span></div>`}</div></li>`;
    })}</ol>
    ${dead.length > 0 && html`<p class="bad">${dead.length} ${dead.length === 1 ? "hop" : "hops"} without an answer: ${names(dead.map((hop) => hop.node))}</p>`}
    ${!lookup.owner && html`<p class="bad">The recorded pointers do not lead to the owner.</p>`}
    <div class="row"><button type="button" class="button" onClick=${() => goStep(-1)} disabled=${store.step === 0}>Back</button>
      <button type="button" class="button" onClick=${() => goStep(1)} disabled=${store.step >= steps.length - 1}>Next hop</button></div>
  </section>
  ${lookup.replicas.length > 0 && html`<section><h2 class="minor">Copies are on</h2><div class="cards">
    ${lookup.replicas.map((one, i) => html`<button type="button" class="card link" key=${one.id} onClick=${() => selectNode(one.id)}>
      <b><span class="dot own"></span> ${one.node}</b><p>${i === 0 ? "owner" : `successor ${i}`}${(lookup.unreachable ?? []).includes(one.address) ? ", unreachable" : ""}</p></button>`)}</div></section>`}
  <${Compared} />`;
}

const restText = (rest, view) => (view.bits <= 20 ? `${Math.round(rest * 2 ** view.bits)} points to go` : `${percent(rest)} to go`);

function Compared() {
  const lookups = store.compared?.lookups ?? [];
  if (!lookups.length) return null;
  return html`<section><h2 class="minor">The same key by other routes</h2><table>
    <thead><tr><th scope="col">route</th><th scope="col" class="n">hops</th><th scope="col" class="n">time</th></tr></thead>
    <tbody>${lookups.map((one) => html`<tr key=${one.mode + one.route}><td>${one.mode === "successor" ? "successor" : one.route}</td>
      <td class="n">${one.error ? one.error.message : one.path_length}</td><td class="n">${one.error ? "" : ms(one.duration_ms)}</td></tr>`)}</tbody></table></section>`;
}

// -- node -------------------------------------------------------------------------------------------

function useDetail(name, isLive) {
  const [detail, setDetail] = useState(null);
  useEffect(() => {
    setDetail(null);
    if (!isLive || !name) return undefined;
    let isOver = false;
    const load = () => api.node(name).then((found) => !isOver && setDetail(found), () => {});
    load();
    const timer = setInterval(load, 2000);
    return () => { isOver = true; clearInterval(timer); };
  }, [name, isLive]);
  return detail;
}

function NodeTab() {
  const view = currentView();
  const vnode = view.byId.get(store.selected);
  const node = vnode?.owner;
  const detail = useDetail(node?.address, health() === "live");
  if (!vnode || !node) return html`<p class="mute">Click a node of the ring, or select it with <kbd>Tab</kbd> and <kbd>Enter</kbd>.</p>`;
  const isDown = vnode.isDown;
  const doubts = node.suspectedBy;
  const by = (state) => names(doubts.filter((one) => one.state === state).map((one) => one.by), 6);
  const index = view.members.indexOf(vnode);
  const exact = index < 0 ? [] : exactSuccessors(view.members, index, view.r);
  const isExact = exact.join() === (vnode.successors ?? []).join();
  const pill = { dead: "bad", ready: "", unreachable: "" }[node.mark] ?? "warn";
  return html`<section>
    <div class="row"><${NodeDot} node=${node} /><h2 class="grow">${node.name}${node.points.length > 1 ? html` <small class="mute">vnode ${shortId(vnode.id, view.bits)}</small>` : ""}</h2>
      <span class="pill ${pill}">${STATES[node.mark]}</span></div>
    <${Facts} rows=${[
      ["address", html`<span class="mono">${node.address}</span>`],
      ["id", html`<span class="mono">${shortId(vnode.id, view.bits)}</span>`],
      [isDown ? "owned" : "owns", html`<b>${percent(vnode.share)}</b> of the circle${vnode.owned[0] ? `, epoch ${vnode.owned[0].epoch}` : ""}`],
      ["keys", html`<b>${count(vnode.keys)}</b> its own · <b>${count(node.keys)}</b> with copies · ${bytes(node.value_bytes)}`],
      ["predecessor", view.byId.get(vnode.predecessor)?.name ?? "none"],
      by("dead") && ["declared dead by", by("dead"), "bad"],
      by("suspect") && ["suspected by", by("suspect"), "warn"],
      by("paused") && ["paused, says", by("paused"), "warn"],
      detail?.uptime_ms && ["uptime", `${Math.round(detail.uptime_ms / 1000)} s`],
      node.hints > 0 && ["hints", count(node.hints)],
      node.damaged > 0 && ["damaged", count(node.damaged), "bad"],
      ...(node.troubles ?? []).map((why) => ["trouble", why, "bad"]),
    ]} /></section>
    ${isDown && html`<${StandIns} view=${view} vnode=${vnode} />`}
    ${!isDown && html`<section><h2 class="minor">Successor list <small>· ${(vnode.successors ?? []).length} of ${exact.length}, ${isExact ? "exact" : "not yet correct"}</small></h2>
      <div class="chips">${(vnode.successors ?? []).map((id, i) => html`<button type="button" key=${id} class="chip ${i === 0 ? "first" : ""} ${view.byId.get(id)?.isDown ? "bad" : ""}" onClick=${() => selectNode(id)}>${view.byId.get(id)?.name ?? shortId(id, view.bits)}</button>`)}</div></section>
    <${Fingers} view=${view} vnode=${vnode} />
    <${RoundTrips} peers=${detail?.peers} view=${view} />
    <section><h2 class="minor">Verdict of the other nodes</h2><p>${doubts.length ? html`${view.living.length - 1 - doubts.length} of ${view.living.length - 1} take ${node.name} for alive.` : html`No node suspects ${node.name}.`}</p></section>`}
    <${Demo} node=${node} isDown=${isDown} />`;
}

const RTT_FROM = -1; // the axis, as powers of ten of a millisecond: 0.1 ms to 1 s
const RTT_TO = 3;

function RoundTrips({ peers, view }) {
  const known = (peers ?? []).filter((peer) => peer.rtt_ms !== null && peer.rtt_ms > 0);
  if (!known.length) return null;
  const x = (value) => 8 + (344 * (Math.max(RTT_FROM, Math.min(RTT_TO, Math.log10(value))) - RTT_FROM)) / (RTT_TO - RTT_FROM);
  const levels = [];
  const dots = known.sort((a, b) => a.rtt_ms - b.rtt_ms).map((peer) => {
    const at = x(peer.rtt_ms);
    let level = levels.findIndex((last) => at - last > 9);
    if (level < 0) level = levels.push(0) - 1;
    levels[level] = at;
    return { peer, at, level: Math.min(level, 3) };
  });
  return html`<section><h2 class="minor">Round trips to its peers <small>· smoothed, ms</small></h2><svg class="rtt" viewBox="0 0 360 62" role="img" aria-label=${dots.map(({ peer }) => `${peer.node} ${ms(peer.rtt_ms)}`).join(", ")}>
    ${[0.1, 1, 10, 100, 1000].map((value) => html`<line class="grid" x1=${x(value)} x2=${x(value)} y1="2" y2="46" /><text x=${x(value)} y="60" text-anchor=${value === 0.1 ? "start" : value === 1000 ? "end" : "middle"}>${value}</text>`)}
    ${dots.map(({ peer, at, level }) => html`<circle key=${peer.address} class="h${view.nodes.get(peer.address)?.hue ?? 0}" cx=${at} cy=${40 - 10 * level} r="4"><title>${peer.node} ${ms(peer.rtt_ms)}</title></circle>`)}</svg></section>`;
}

function StandIns({ view, vnode }) {
  const covers = view.covers.filter((cover) => cover.dead === vnode);
  return html`${covers.length > 0 && html`<section><h2 class="minor">Stand-in</h2><table>
    <thead><tr><th scope="col">node</th><th scope="col" class="n">covers</th><th scope="col" class="n">owns</th></tr></thead>
    <tbody>${covers.map((cover) => html`<tr key=${cover.by.id}><td><b>${cover.by.name}</b></td><td class="n">${percent(clockwise(cover.from, cover.to))}</td><td class="n">${percent(cover.by.share)}</td></tr>`)}</tbody></table></section>`}
  ${vnode.owner.mark === "paused" ? html`<div class="note warn">${vnode.name} has announced that it stops for a while, and it has the only copy of its keys.</div>`
    : vnode.owner.mark === "unreachable" ? html`<div class="note">${view.living.length ? `No node declares ${vnode.name} dead.` : "No node responds."} ${vnode.name} may live, and only this dashboard may not reach it.</div>`
    : html`<div class="note warn">The ring waits for this node, because its disk may return. After 10 minutes the ring makes new copies.
    <br /><code>chord forget ${vnode.node}</code> ends the wait.</div>`}`;
}

function Fingers({ view, vnode }) {
  const runs = [...(vnode.fingers ?? [])].sort((a, b) => b[1] - a[1]);
  if (!runs.length) return html`<section><h2 class="minor">Fingers</h2><p class="mute">not reported</p></section>`;
  const different = new Set(runs.map((run) => run[2])).size;
  return html`<section><h2 class="minor">Fingers <small>· first node at or after id + 2<sup>i</sup></small></h2>
    <table><thead><tr><th scope="col">i</th><th scope="col">distance</th><th scope="col">to</th><th scope="col" class="n">at</th></tr></thead>
    <tbody>${runs.slice(0, 12).map(([first, last, id]) => html`<tr key=${last}><td class="mono">${first === last ? last : `${first}–${last}`}</td>
      <td class="mute">${first === last ? powerText(view.bits, last) : `up to ${powerText(view.bits, last)}`}</td>
      <td><b>${view.byId.get(id)?.name ?? shortId(id, view.bits)}</b></td><td class="n">${percent(view.byId.get(id)?.x ?? position(id, view.bits))}</td></tr>`)}</tbody></table>
    <p class="mute gap">${view.bits} entries, ${different} different ${different === 1 ? "node" : "nodes"}.</p></section>`;
}

function Demo({ node, isDown }) {
  if (!store.server.isDemo || health() === "played" || !hasContact()) return null;
  const act = (what) => api.chaos(what, node.address).then(() => say(`${node.name}: ${what}`), (error) => say(error.message));
  const split = () => api.partition(halfFrom(node)).then(({ groups }) => say(`The network is cut: ${groups.map((group) => names(group)).join(" | ")}`), (error) => say(error.message));
  const heal = () => api.heal().then(() => say("The network is whole again"), (error) => say(error.message));
  // The faults of the last 15 minutes are a hint only: a shell can stop and wake processes, too.
  const isFrozen = store.live?.faults.findLast((fault) => ["stop", "wake", "kill"].includes(fault.do) && fault.groups.flat().includes(node.name))?.do === "stop";
  const isSplit = store.live?.faults.findLast((fault) => ["partition", "heal"].includes(fault.do))?.do === "partition";
  return html`<section><h2 class="minor">Demo ring</h2><div class="row">
    ${(isFrozen || isDown) && html`<button type="button" class="button" onClick=${() => act("thaw")}><${Icon} name="play" tone="own" />Thaw ${node.name}</button>`}
    ${isDown && html`<button type="button" class="button" onClick=${() => act("start")}><${Icon} name="up" tone="own" />Start ${node.name} again</button>`}
    ${(isFrozen || !isDown) && html`<button type="button" class="button danger" onClick=${() => act("kill")}>Kill ${node.name}</button>`}
    ${!isFrozen && !isDown && html`<button type="button" class="button" onClick=${() => act("freeze")}>Freeze</button>
      <button type="button" class="button" title="It hands over its keys and leaves. With --data, it only stops and keeps its place." onClick=${() => act("leave")}>Leave</button>`}</div>
    <div class="row gap">${!isSplit && Object.keys(store.live?.live.nodes ?? {}).length > 1 && html`<button type="button" class="button danger" onClick=${split} title=${`Half of the nodes, clockwise from ${node.name}, and all others no longer reach each other`}><${Icon} name="cut" />Split the network here</button>`}
      <button type="button" class="button" onClick=${heal}><${Icon} name="link" tone="path" />Heal the network</button></div></section>`;
}

// The addresses of half of the circle now, clockwise from a node. The page may show an earlier moment.
export function halfFrom(node) {
  const order = derive(store.live.live, store.live).members;
  const begin = Math.max(0, order.findIndex((vnode) => vnode.node === node.address));
  const nodes = [...new Set([...order.slice(begin), ...order.slice(0, begin)].map((vnode) => vnode.node))];
  return nodes.slice(0, Math.floor(nodes.length / 2));
}

// -- key --------------------------------------------------------------------------------------------

export function KeyTab() {
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [text, setText] = useState("");
  const [query, setQuery] = useState(store.key);
  const isLive = health() === "live" || health() === "slow";
  const load = async (key) => {
    setError(null);
    try {
      const [values, copies] = await Promise.all([api.get(key).catch((e) => (e.status === 404 ? null : Promise.reject(e))), api.inspect(key)]);
      setFound({ key, values: values?.values ?? [], context: values?.context, copies: copies.copies ?? [], owner: copies.owner });
      const merged = (values?.values ?? []).map((one) => one.text ?? "");
      setText(mergedValue(merged));
    } catch (failure) {
      setFound(null);
      setError(failure);
    }
  };
  const write = async (change, words) => {
    try {
      await change();
      say(words);
      await load(found.key);
    } catch (failure) {
      setError(failure);
    }
  };
  useEffect(() => { if (store.key && isLive) load(store.key); }, [store.key]);
  const submit = (event) => {
    event.preventDefault();
    const key = new FormData(event.target).get("key").trim();
    if (!key) return;
    if (store.key === key) load(key);
    set({ key });
  };
  if (!isLive) return html`<p class="mute">${currentLog() ? "A recording has no values. A living ring shows the copies of a key here." : "No ring."}</p>`;
  const values = found?.values ?? [];
  return html`<form onSubmit=${submit} class="field"><${Icon} name="search" /><input name="key" aria-label="Key" placeholder="key" value=${query} onInput=${(e) => setQuery(e.target.value)} autocomplete="off" spellcheck="false" /><button class="sr" type="submit">Read</button></form>
    ${error && html`<div class="note bad" role="alert"><b>${error.message}</b>${error.hint && html`<br />${error.hint}`}</div>`}
    ${found && html`<section>
      <div class="row"><h2 class="grow">${found.key}</h2>${values.length > 1 ? html`<span class="pill warn">${values.length === 2 ? "two" : values.length} concurrent values</span>` : values.length ? html`<span class="pill">one value</span>` : html`<span class="pill">no value</span>`}</div>
      ${values.length > 1 && html`<p class="mute">The writers of these values did not know of each other. The store keeps all values until you resolve them.</p>`}
      <div class="cards two gap more">${values.map((value, i) => html`<div class="card" key=${i}><code>${value.text ?? `${value.b64.length} base64 characters`}</code>
        ${values.length > 1 && html`<br /><button type="button" class="button" onClick=${() => write(() => api.put(found.key, value.text, found.context), "Resolved")}>Keep this</button>`}</div>`)}</div>
      <form class="row nowrap gap more" onSubmit=${(event) => { event.preventDefault(); write(() => api.put(found.key, text, found.context), values.length > 1 ? "Resolved" : "Written"); }}>
        <div class="field grow"><input aria-label=${values.length > 1 ? "Merged value" : "New value"} value=${text} onInput=${(event) => setText(event.target.value)} /></div>
        <button class="button primary" type="submit">${values.length > 1 ? "Resolve" : "Put"}</button></form>
      ${values.length > 1 && html`<p class="mute">Write the merged value, and resolve.</p>`}
    </section>
    <section><h2 class="minor">Copies</h2><table><thead><tr><th scope="col">node</th><th scope="col">version</th><th scope="col">state</th></tr></thead>
      <tbody>${found.copies.map((copy, i) => html`<tr key=${copy.id}><td><b>${copy.node}</b> <span class="mute">${i === 0 ? "owner" : `copy ${i}`}</span></td>
        <td class="mono">${copy.version ? copy.version.slice(0, 8) : "–"}</td><td class="wrap">${copyText(copy)}</td></tr>`)}</tbody></table></section>
    <div class="row"><button type="button" class="button" onClick=${() => load(found.key)}>Get</button>
      <button type="button" class="button" onClick=${() => lookUp({ key: found.key })}>Look up</button>
      <button type="button" class="button danger" onClick=${() => write(() => api.remove(found.key, found.context), "Deleted")}>Delete</button></div>`}
    ${!found && !error && html`<p class="mute">Type a key to see its values and its copies.</p>`}`;
}

function copyText(copy) {
  if (copy.reason) return `not queried: ${copy.reason}`;
  if (copy.damaged) return "damaged";
  if (copy.tombstone && !copy.values.length) return "deleted";
  return `${copy.values.length === 1 ? "one value" : `${copy.values.length} values`}${copy.in_sync === false ? ", not in sync" : ""}`;
}

// The union of JSON arrays, or the first value.
export function mergedValue(values) {
  try {
    const lists = values.map((value) => JSON.parse(value));
    if (lists.length > 1 && lists.every(Array.isArray)) return JSON.stringify([...new Set(lists.flat())]);
  } catch {
    // not JSON
  }
  return values[0] ?? "";
}
