// The ten chapters of the page Learn. Each step is a moment of a recording of real nodes; see tools/lessons.py.
// A step has: log, t, title, text, terminal, and optionally think [question, answer], key, show, table.
// A chapter may have `setup`: the commands that make its ring, before those of the step.

import { html } from "./parts.js";

const K = ({ children }) => html`<b class="key">${children}</b>`;
const P = ({ children }) => html`<b class="path">${children}</b>`;

const UP = "chord up --bits 8 --successors 3 \\\n  --ids 10,42,80,120,160,200,230 &";
const LOAD = "for i in $(seq 60); do\n  printf 'key %s\\tvalue\\n' $i; done |\n  chord load -";
const NEWS = "chord top | cat &";
const JOIN = "chord node --id 100 --name 100 \\\n  --bits 8 --successors 3 --preset local \\\n  --join 127.0.0.1:9000 &";
const KILL = "chord kill n4 --signal 9";

export const CHAPTERS = [
  { title: "A circle of 256 points", sub: "numbers instead of places", setup: [UP], steps: [
    {
      log: "ring", t: 0, title: "Picture a clock with 256 marks instead of 12.", show: "bare",
      text: html`<p>The marks have the numbers 0 to 255, clockwise. After 255 comes 0 again. We call each mark a <b>point</b>.</p>
        <p>Every piece of data has a name, its <b>key</b>. A hash function turns the key into a number that looks random, and so the key has a point on the circle. The same key always has the same point.</p>`,
      think: ["How far is it, clockwise, from point 250 to point 10?", "16 points: 6 to reach 0, and 10 more."], terminal: "chord ring",
    },
    {
      log: "ring", t: 0, title: "Seven computers share the circle.",
      text: html`<p>Each computer is a <b>node</b>. A node has a point, too: here 10, 42, 80, 120, 160, 200 and 230. In a real ring, the hash of the node's address gives this point.</p>
        <p>Together they are a <b>ring</b>. No node is the chief, and no node has a list of all keys. Still, every node can find every key.</p>`,
      think: ["The key of a photo has the point 190. Which node would you make responsible for it?", "Chord chooses the first node at or after the point, clockwise: 200."],
      terminal: "chord ring",
    },
  ] },
  { title: "The owner of a key", sub: "the first node clockwise", setup: [UP], steps: [
    {
      log: "ring", t: 0, title: "200 owns 190: it is the first node at or after the key.", key: 190, show: "owner",
      text: html`<p>Start at <${K}>190<//>, and go clockwise until you meet a node. You meet <b>200</b>. So 200 is the <b>owner</b>: it stores the data of this key, the <b>record</b>, and answers for it.</p>
        <p>The coloured band before each node is its <b>arc</b>: all points that it owns. The arc of 200 begins after 160 and ends at 200.</p>`,
      think: ["Which node owns point 240? There is no node from 241 to 255.", "10. The circle has no end: after 255 comes 0."],
      terminal: "chord lookup --key-id 190",
    },
    {
      log: "ring", t: 0, title: "10 owns 240: the circle has no end.", key: 240, show: "owner",
      text: html`<p>From <${K}>240<//> the way leads over 255 and 0 to <b>10</b>. The arc of 10 begins after 230 and crosses 0.</p>
        <p>If a node comes or goes, only the keys of one arc get another owner. All other keys keep theirs. This is why a ring can grow while it works.</p>`,
      think: ["A node knows its own point. What else must it know, so that a question can travel around the circle?", "The next node clockwise: its successor."],
      terminal: "chord lookup --key-id 240",
    },
  ] },
  { title: "Every node knows its successor", sub: "enough to find everything", setup: [UP], steps: [
    {
      log: "ring", t: 0, title: "The next node clockwise is the successor.", show: "successors",
      text: html`<p>Each node knows the address of its <b>successor</b>. That is enough: a question can travel from successor to successor until it meets the owner. This search for an owner is a <b>lookup</b>, and each node that it reaches is a <b>hop</b>.</p>
        <p>From 80 to the owner of <${K}>190<//> the lookup passes 120 and 160. A ring of a million nodes would need half a million hops. That is too slow, and chapter 4 repairs it.</p>`,
      key: 190,
      think: ["What happens to this chain if 120 fails?", "80 would have no way on. So each node knows more than one successor."],
      terminal: "chord lookup --key-id 190 --from 80 \\\n  --mode successor --trace",
    },
    {
      log: "ring", t: 0, title: "A list of successors survives failures.", show: "list", at: "80",
      text: html`<p>Each node has a <b>successor list</b>. Here the list has three entries: 80 knows 120, 160 and 200.</p>
        <p>If 120 fails, 80 continues with 160. The ring breaks only if all nodes of a list fail at the same time.</p>`,
      think: ["80 wants to reach nodes far away in few steps. Which distances should it know?", "Distances that double: 1, 2, 4, 8, … 128."],
      terminal: "chord ring",
    },
  ] },
  { title: "Fingers that double", sub: "shortcuts across the circle", setup: [UP], steps: [
    {
      log: "ring", t: 0, title: "80 has a finger for each distance 1, 2, 4, … 128.", show: "fingers", at: "80", table: "80",
      text: html`<p>A <b>finger</b> is a shortcut. Finger <i>i</i> of 80 begins at the point 80 + 2<sup>i</sup> and leads to the first node at or after that point.</p>
        <p>The longest finger crosses half of the circle: 80 + 128 = 208, and the first node there is <b>230</b>.</p>`,
      think: ["Eight fingers lead to only three different nodes. Why?", "The short distances 1 to 32 all end before or at 120, so their first node is 120."],
      terminal: "chord fingers 80",
    },
    {
      log: "ring", t: 0, title: "Every node has its own fingers.", show: "fingers", at: "200", table: "200",
      text: html`<p>The fingers of 200 begin at 201, 202, 204, … The last one begins at 200 + 128 = 328. On our circle this is point 328 − 256 = 72, and the first node there is <b>80</b>.</p>
        <p>A node knows its neighbourhood well, and the far side of the circle roughly. A lookup needs no more than that.</p>`,
      think: ["80 looks for 190. Which of its fingers should it use?", "The longest finger that does not pass 190: the one to 160."],
      terminal: "chord fingers 200",
    },
  ] },
  { title: "Find 190 from 80", sub: "a lookup, hop by hop", setup: [UP], steps: [
    {
      log: "ring", t: 0, title: "80 looks for 190, which is 110 points ahead.", lookup: 0, table: "80",
      text: html`<p>A program asks node <b>80</b> for the key at <${K}>190<//>. 80 does not own 190, because its arc ends at 80. Its successor 120 does not own 190 either.</p>
        <p>So 80 must choose a node that is nearer to the key.</p>`,
      think: ["Which finger is the longest that does not pass 190?", "Finger 6. It begins at 144 and leads to 160. Finger 7 leads to 230, past the key."],
      terminal: "chord lookup --key-id 190 --from 80 --trace",
    },
    {
      log: "ring", t: 0, title: "Next hop: 160, the longest finger that does not pass the key", lookup: 1, table: "80", show: "passed",
      text: html`<p>80 looks for <${K}>190<//>, which is <b>110</b> points ahead. A distance of 128 begins at 208 and leads to <b class="bad">230</b>, past the key. A distance of <${P}>64<//> begins at 144 and leads to <${P}>160<//>.</p>
        <p>160 is the closest node before the key that 80 knows. Now 30 points remain of 110.</p>`,
      think: ["Which node will 160 return, and how does 160 know that the lookup is complete?", "The successor of 160 is 200, and 190 lies between the two. So 200 owns 190, and 160 says so."],
      terminal: "chord lookup --key-id 190 --from 80 --trace",
    },
    {
      log: "ring", t: 0, title: "160 returns 200: the lookup is complete.", lookup: 2,
      text: html`<p>190 lies between 160 and its successor <b class="own">200</b>. So 160 knows the owner, and returns its address. Now 80 calls 200, which has the data.</p>
        <p>The path has two hops: from 80 to 160, and from 160 to the owner 200. A finger goes at least half of the way to the node before the key, so 256 points need at most 8 hops. A million nodes need about 10 on average.</p>`,
      think: ["Why two hops, and not three as along the successors?", "The finger of 80 skips 120. It leads at once to 160, the last node before the key."],
      terminal: "chord lookup --key-id 190 --from 80 --trace",
    },
    {
      log: "ring", t: 0, title: "Now try your own key.", lookup: 2, free: true,
      text: html`<p>Type a point from 0 to 255 below the picture, or click a point of the circle. The lookup starts at 80 and follows the recorded fingers.</p>
        <p>Try 42. It is 218 points ahead, almost once around the circle.</p>`,
      think: ["Which nodes does the lookup of 42 meet?", "80 uses its finger to 230, and 230 its finger to 10. The successor of 10 is 42, the owner."],
      terminal: "chord lookup --key-id 42 --from 80 --trace",
    },
  ] },
  { title: "A node joins", sub: "100 takes a part of an arc", setup: [UP, LOAD, NEWS, JOIN], steps: [
    {
      log: "join", t: 1.0, title: "A new node, 100, asks: which node owns my point?", show: "at", at: "100",
      text: html`<p>100 starts with the address of one node. It looks up its own point, exactly as chapter 5 looks up a key. The answer is <b>120</b>: the successor of 100 from now on.</p>
        <p>The dashed circle shows that 100 is not yet a part of the ring. No other node sends questions to it.</p>`,
      think: ["Which keys must move to 100? From which node?", "The keys between 80 and 100. They belong to 120 so far."],
      terminal: "chord lookup --key-id 100 --trace",
    },
    {
      log: "join", t: 1.0452, title: "120 hands over the points 81 to 100.", show: "at", at: "100",
      text: html`<p>120 sends the records of this part of its arc, and 100 confirms them. Then the arc belongs to 100. At every moment exactly one node answers for each point.</p>
        <p>100 copies the successor list of 120, and so it knows 120, 160 and 200 at once.</p>`,
      think: ["80 still believes that 120 is its successor. Does a lookup of point 95 go wrong now?", "No. 80 names 120 as the owner, but 120 knows that it gave this part to 100, and says so."],
      terminal: "chord ring",
    },
  ] },
  { title: "Stabilize", sub: "neighbours correct their pointers", setup: [UP, LOAD, NEWS, JOIN], steps: [
    {
      log: "join", t: 1.0482, title: "120 learns which node is before it: 100.", show: "waiting", at: "120",
      text: html`<p>The node before a node is its <b>predecessor</b>. 100 notifies 120, and 120 adopts 100, because 100 is closer than 80.</p>
        <p>A predecessor and a successor list are the <b>pointers</b> of a node. The amber lines below list those that are <b>not yet correct</b>.</p>`,
      think: ["How can 80 find out about 100, although 100 and 80 have never talked?", "80 asks its successor 120: which node is your predecessor? The answer is 100."],
      terminal: "chord check",
    },
    {
      log: "join", t: 1.0484, title: "80 asks 120 for its predecessor, and finds 100.", show: "waiting", at: "80",
      text: html`<p>Every node asks its successor again and again: <i>which node is your predecessor?</i> If that node lies between the two, it becomes the new successor. This step is called <b>stabilize</b>.</p>
        <p>Now 80 has the successor 100. Only the lists of 42 and 10 still miss it.</p>`,
      think: ["How does 42 learn about 100?", "42 copies the list of its successor 80. News travels counter-clockwise, one list at a time."],
      terminal: "chord check",
    },
    {
      log: "join", t: 1.0623, title: "All lists are exact: the ring is whole.", show: "list", at: "10",
      text: html`<p>42 has copied the list of 80, and 10 has copied the list of 42. Seventeen milliseconds after 100 became a part of the ring, every pointer to a neighbour is correct.</p>
        <p>Correct neighbours are enough for correct answers. Fingers make the answers fast.</p>`,
      think: ["Which fingers of the other nodes should lead to 100 now?", "Those that begin between 81 and 100, for example 80 + 1 to 80 + 16."],
      terminal: "chord check",
    },
  ] },
  { title: "Fix fingers", sub: "shortcuts follow later", setup: [UP, LOAD, JOIN], steps: [
    {
      log: "join", t: 1.07, title: "100 has only its short fingers so far.", show: "fingers", at: "100", table: "100",
      text: html`<p>The five short fingers of 100 all lead to its successor 120, which it knows. The three long ones are missing. Lookups from 100 still find every key, but they take more hops.</p>
        <p>Now and then, each node looks up the start of one finger. This step is called <b>fix fingers</b>.</p>`,
      think: ["Finger 7 of 100 begins at 228. Which node will the lookup return?", "230, the first node at or after 228."],
      terminal: "chord fingers 100",
    },
    {
      log: "join", t: 1.7, title: "0.6 s later, all fingers of 100 are exact.", show: "fingers", at: "100", table: "100",
      text: html`<p>100 looked up 132, 164 and 228, and found 160, 200 and 230. Each lookup used the fingers that were already there.</p>
        <p>A wrong finger never makes an answer wrong: it only costs a hop. So no node hurries with its fingers.</p>`,
      think: ["What is more urgent after a failure: fingers or successors?", "Successors. Without a correct successor, a lookup cannot reach the owner."],
      terminal: "chord fingers 100",
    },
  ] },
  { title: "A node dies", sub: "160 fails without a word", setup: [UP, LOAD, NEWS, KILL], steps: [
    {
      log: "death", t: 1.005, title: "160 fails, without a goodbye.", show: "plain",
      text: html`<p>This chapter begins again with the seven nodes of chapter 1. The process of <b class="bad">160</b> ends in the middle of its work. 120 still has 160 as its successor, and the arc of 160 has no owner that responds.</p>
        <p>The other nodes notice when a call to 160 gets no answer. First they suspect 160, and then they declare it dead.</p>`,
      think: ["120 has lost its successor. Which node comes next in its list?", "200. The list of 120 was 160, 200, 230."],
      terminal: "chord check",
    },
    {
      log: "death", t: 1.0606, title: "120 continues with the next entry of its list.", show: "list", at: "120",
      text: html`<p>120 removes 160 from its list. Its successor is 200 now. It copies the list of 200, so that the list has three entries again.</p>
        <p>Then 120 notifies 200, and 200 adopts it as its predecessor. The circle is closed again, 61 ms after the failure.</p>`,
      think: ["Which node should own the points 121 to 160 now?", "200: it is the first living node at or after them."],
      terminal: "chord ring",
    },
    {
      log: "death", t: 1.3, title: "200 takes over the arc of 160.", show: "at", at: "200",
      text: html`<p>The amber line shows it: 200 <b>covers</b> for 160. It already has copies of these records, so no data is missing.</p>
        <p>The hatch marks records with fewer copies than usual. The ring waits for 160, because its disk may return. After ten minutes it makes new copies on other nodes.</p>`,
      think: ["How does 80 find 190 now? Its finger to 160 is gone.", "It chooses the next best node before the key: 120. The successor of 120 is 200."],
      terminal: "chord ring\nchord status",
    },
    {
      log: "death", t: 3.5, title: "The lookup of 190 works without 160.", lookup: 2, fromState: true,
      text: html`<p>80 uses its finger to <${P}>120<//>, the closest living node before the key. 190 lies between 120 and its new successor <b class="own">200</b>. The owner has not changed.</p>
        <p>The death of a node costs some milliseconds, and sometimes a hop. It costs no record.</p>`,
      think: ["How did 200 get the records of 160 before 160 died?", "160 had sent them to 200 and 230 as copies. The next chapter shows this."],
      terminal: "chord lookup --key-id 190 --from 80 --trace",
    },
  ] },
  { title: "Copies", sub: "every record on three nodes", setup: [UP, LOAD], steps: [
    {
      log: "ring", t: 0, title: "The owner and its next two nodes keep each record.", key: 190, show: "copies",
      text: html`<p>The owner of <${K}>190<//> is 200. It sends each record to <b>230</b> and <b>10</b>, the next two nodes. So each record has <b class="own">three copies</b>.</p>
        <p>A write is complete when two of the three nodes have stored it. A read asks two of the three, so it always meets the newest value.</p>`,
      think: ["How many of these three nodes may fail at the same time without a loss?", "One. A complete write is on at least two of the three nodes, so at least one of them remains. Usually all three have it, and two may fail."],
      terminal: "chord put photo 'by the sea'\nchord get photo --trace",
    },
    {
      log: "death", t: 3.5, title: "After a failure, two of three copies remain.", show: "at", at: "200",
      text: html`<p>160 kept its own records, and copies for 80 and 120. Each of them has two copies left. The hatched arcs show them: <b class="warn">under-replicated</b>, but not lost.</p>
        <p>That is Chord: a circle of points, an owner for each, successors for correctness, fingers for speed, and copies for safety.</p>`,
      think: ["Can you answer all three? Which node owns 190? Why does 80 need two hops? What happens when 160 dies?", "200, the first node clockwise. A finger leads to 160, and 160 knows its successor 200. 120 continues with 200, and 200 takes over the arc of 160."],
      terminal: "chord kill n4 --signal 9\nchord check",
    },
  ] },
];
