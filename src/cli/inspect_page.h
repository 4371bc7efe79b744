// The page of pteron inspect --html: what stands around the data. Included by inspect_html.cpp alone.
#pragma once

#include <string_view>

namespace pteron::cli {

/// Up to the data, which is JSON in a script element.
inline constexpr std::string_view kPageHead = R"page(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pteron inspect</title>
<style>
:root { --ink: #1d2733; --soft: #66758a; --line: #d5dce5; --back: #f6f8fa; --mark: #d9480f; }
* { box-sizing: border-box; }
body { margin: 0; font: 14px/1.4 system-ui, sans-serif; color: var(--ink); background: var(--back); display: grid; grid-template-rows: auto 1fr 34vh; height: 100vh; }
header { display: flex; gap: 14px; align-items: center; padding: 8px 14px; background: #fff; border-bottom: 1px solid var(--line); }
header b { white-space: nowrap; } header span { color: var(--soft); }
select, input { font: inherit; padding: 4px 8px; border: 1px solid var(--line); border-radius: 6px; background: #fff; } input { width: 260px; }
main { display: grid; grid-template-columns: 1fr 330px; min-height: 0; }
aside { overflow: auto; padding: 12px 14px; background: #fff; border-left: 1px solid var(--line); overflow-wrap: anywhere; }
aside h3 { margin: 0 0 6px; font-size: 14px; } aside dt { color: var(--soft); margin-top: 8px; } aside dd { margin: 0; }
section { position: relative; background: #fff; border-top: 1px solid var(--line); min-height: 0; }
section p { position: absolute; left: 14px; top: 4px; margin: 0; color: var(--soft); pointer-events: none; }
svg { width: 100%; height: 100%; display: block; cursor: grab; } svg text { font: 11px ui-monospace, monospace; pointer-events: none; fill: var(--ink); }
.node rect { stroke: #93a1b3; } .node { cursor: pointer; } .edge { fill: none; stroke: #b4bfcc; } .skip { stroke: #4c6ef5; stroke-width: 1.4; }
.hit rect, rect.hit { stroke: var(--mark); stroke-width: 3; } .chosen rect, rect.chosen { stroke: #000; stroke-width: 3; } .far { opacity: .25; }
</style></head><body>
<header><b id="file"></b><select id="method" aria-label="method"></select><input id="search" type="search" placeholder="search operators, values, lines" aria-label="search"><span id="count"></span></header>
<main><svg id="graph"></svg><aside id="details"></aside></main>
<section><p id="memory-title"></p><svg id="memory"></svg></section>
<script id="data" type="application/json">)page";

/// Behind the data.
inline constexpr std::string_view kPageTail = R"page(</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), at = id => document.getElementById(id);
const make = (parent, name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
};
const color = text => { let h = 0; for (const c of text) h = (h * 31 + c.charCodeAt(0)) % 360; return `hsl(${h} 65% 88%)`; };
const bytes = n => n < 1e3 ? n + " B" : n < 1e6 ? (n / 1e3).toFixed(1) + " KB" : (n / 1e6).toFixed(1) + " MB";
let method, nodes, bars, hits = [], turn = 0;

function zoomable(svg, box) {  // the wheel zooms where the pointer is, dragging moves; box is [x, y, width, height]
  const show = () => svg.setAttribute("viewBox", box.join(" "));
  svg.onwheel = e => {
    e.preventDefault();
    const r = svg.getBoundingClientRect(), f = Math.exp(e.deltaY / 400), x = (e.clientX - r.left) / r.width, y = (e.clientY - r.top) / r.height;
    box[0] += box[2] * x * (1 - f); box[1] += box[3] * y * (1 - f); box[2] *= f; box[3] *= f; show();
  };
  svg.onpointerdown = e => { svg.grab = [e.clientX, e.clientY]; };
  svg.onpointermove = e => {
    if (!svg.grab) return;
    if (!svg.hasPointerCapture(e.pointerId)) {  // a click stays a click on what is there
      if (Math.hypot(e.clientX - svg.grab[0], e.clientY - svg.grab[1]) < 4) return;
      svg.setPointerCapture(e.pointerId);
    }
    const r = svg.getBoundingClientRect(), s = Math.max(box[2] / r.width, box[3] / r.height);
    box[0] -= (e.clientX - svg.grab[0]) * s; box[1] -= (e.clientY - svg.grab[1]) * s; svg.grab = [e.clientX, e.clientY]; show();
  };
  svg.onpointerup = svg.onpointercancel = () => { svg.grab = null; };
  svg.go = (x, y) => { box[0] = x - box[2] / 2; box[1] = y - box[3] / 2; show(); };
  show();
}

function drawGraph() {
  const svg = at("graph"); svg.replaceChildren();
  const maker = new Map(), depth = [], rows = [];  // value: the step that wrote it last
  const cards = [...method.inputs.map((v, i) => ({ op: "input " + i, ins: [], outs: [v], io: true })), ...method.steps.map((s, i) => ({ ...s, step: i })),
                 ...method.outputs.map((v, i) => ({ op: "output " + i, ins: [v], from: [method.outputs_from[i]], outs: [], io: true }))];
  const edges = [];
  cards.forEach((card, i) => {
    let d = 0;
    for (const v of card.from || card.ins) if (maker.has(v)) { const from = maker.get(v); if (from !== i) { edges.push([from, i, v]); d = Math.max(d, depth[from] + 1); } }
    depth[i] = d; (rows[d] = rows[d] || []).push(i);
    for (const v of card.outs) maker.set(v, i);
  });
  const width = 190, gapX = 24, gapY = 78, place = [];
  rows.forEach((row, d) => {
    const wanted = i => { const from = edges.filter(e => e[1] === i && place[e[0]]).map(e => place[e[0]].x); return from.length ? from.reduce((a, b) => a + b) / from.length : 0; };
    if (row.length < 400) row.sort((a, b) => wanted(a) - wanted(b));
    row.forEach((i, k) => { place[i] = { x: (k - (row.length - 1) / 2) * (width + gapX), y: d * gapY }; });
  });
  const lines = make(svg, "g", {});
  let beside = 0;
  for (const [a, b] of edges) {
    const p = place[a], q = place[b], y = p.y + 40, m = (y + q.y) / 2;
    if (depth[b] > depth[a] + 1) {  // over rows in between: round their cards, not behind them
      const between = rows.slice(depth[a] + 1, depth[b]).flat().map(i => place[i].x);
      const x = Math.max(p.x, q.x, ...between) + width / 2 + 14 + 9 * (beside++ % 6);
      make(lines, "path", { class: "edge skip", d: `M${p.x + width / 2} ${p.y + 20} C${x} ${p.y + 20} ${x} ${p.y + 40} ${x} ${p.y + 60} L${x} ${q.y - 20} C${x} ${q.y} ${x} ${q.y + 20} ${q.x + width / 2} ${q.y + 20}` });
      continue;
    }
    make(lines, "path", { class: "edge", d: `M${p.x} ${y} C${p.x} ${m} ${q.x} ${m} ${q.x} ${q.y}` });
  }
  nodes = cards.map((card, i) => {
    const g = make(svg, "g", { class: "node", transform: `translate(${place[i].x - width / 2} ${place[i].y})` });
    make(g, "rect", { width, height: 40, rx: 7, fill: card.io ? "#fff" : color(card.op) });
    make(g, "text", { x: 8, y: 16 }, card.op.slice(0, 27));
    const out = card.outs.length ? card.outs[0] : card.ins[0];
    make(g, "text", { x: 8, y: 32, style: "fill: var(--soft)" }, out === undefined ? "" : (out + ": " + method.values[out].type).slice(0, 27));
    g.onclick = () => choose(i);
    const text = [card.op, card.source || "", card.module || "", ...card.ins.concat(card.outs).map(v => "%" + v + " " + (method.values[v].name || "") + " " + method.values[v].type)].join(" ").toLowerCase();
    return { g, card, text, x: place[i].x, y: place[i].y + 20 };
  });
  const widest = Math.max(...rows.map(r => r.length)), w = Math.max(900, Math.min(widest, 6) * (width + gapX)), r = svg.getBoundingClientRect();
  zoomable(svg, [-w / 2, -20, w, w * r.height / Math.max(1, r.width)]);
}

function drawMemory() {
  const svg = at("memory"); svg.replaceChildren(); bars = [];
  const steps = method.steps.length + 2, total = method.arenas.reduce((a, b) => a + b, 0), r = svg.getBoundingClientRect(), w = 1200, h = w * r.height / Math.max(1, r.width), top = 26;
  at("memory-title").textContent = `planned memory: ${method.arenas.length} arena${method.arenas.length === 1 ? "" : "s"}, ${bytes(total)}; left to right the ${method.steps.length} instructions, downwards the bytes`;
  let base = 0;
  const y = n => top + n / Math.max(1, total) * (h - top - 6), x = n => 8 + n / steps * (w - 16);
  method.arenas.forEach((size, arena) => {
    make(svg, "rect", { x: x(0), y: y(base), width: x(steps) - x(0), height: Math.max(0, y(base + size) - y(base)), fill: "#f0f3f7", stroke: "#b4bfcc" });
    if (method.arena_devices[arena] !== "cpu") make(svg, "text", { x: x(steps) - 70, y: y(base) + 12 }, method.arena_devices[arena]);
    for (const b of method.buffers.filter(b => b.arena === arena)) {
      const bar = make(svg, "rect", { x: x(b.first), y: y(base + b.offset), width: Math.max(1, x(b.last + 1) - x(b.first) - 1), height: Math.max(1, y(base + b.offset + b.bytes) - y(base + b.offset) - .5),
                                     fill: color("v" + b.value), stroke: "#93a1b3", "stroke-width": .6 });
      make(bar, "title", {}, `%${b.value} ${method.values[b.value].type}: ${bytes(b.bytes)} at ${b.offset}, steps ${b.first} to ${b.last}`);
      bar.onclick = () => { const i = nodes.findIndex(n => n.card.outs.includes(b.value)); if (i >= 0) choose(i, true); };
      bars.push({ bar, value: b.value });
    }
    base += size;
  });
  zoomable(svg, [0, 0, w, h]);
}

function choose(i, go) {
  const n = nodes[i], box = at("details");
  nodes.forEach((other, k) => other.g.classList.toggle("chosen", k === i));
  bars.forEach(b => b.bar.classList.toggle("chosen", n.card.outs.includes(b.value)));
  if (go) at("graph").go(n.x, n.y);
  box.replaceChildren();
  const add = (name, text) => { const e = document.createElement(name); e.textContent = text; box.append(e); };
  add("h3", n.card.op);
  const list = (title, values) => { if (values.length) { add("dt", title); for (const v of values) add("dd", `%${v} ${method.values[v].name || ""} ${method.values[v].role}: ${method.values[v].type}`); } };
  list("reads", n.card.ins); list("writes", n.card.outs);
  if (n.card.step !== undefined) { add("dt", "instruction"); add("dd", n.card.step); }
  if (n.card.source) { add("dt", "source"); add("dd", n.card.source); }
  if (n.card.module) { add("dt", "module"); add("dd", n.card.module); }
  if (n.card.inside !== undefined) { add("dt", "inside"); add("dd", data.methods[n.card.inside].name); box.lastChild.style.cursor = "pointer"; box.lastChild.onclick = () => { at("method").value = n.card.inside; show(n.card.inside); }; }
}

function search() {
  const word = at("search").value.trim().toLowerCase();
  hits = []; turn = 0;
  nodes.forEach((n, i) => { const hit = word !== "" && n.text.includes(word); n.g.classList.toggle("hit", hit); n.g.classList.toggle("far", word !== "" && !hit); if (hit) hits.push(i); });
  const values = new Set(hits.flatMap(i => nodes[i].card.outs));
  bars.forEach(b => b.bar.classList.toggle("hit", values.has(b.value)));
  at("count").textContent = word === "" ? `${method.steps.length} instructions, ${method.values.length} values` : `${hits.length} found; Enter shows the next`;
}

function show(index) { method = data.methods[index]; drawGraph(); drawMemory(); at("details").replaceChildren(); search(); if (nodes.length) choose(0); }
at("file").textContent = data.file;
data.methods.forEach((m, i) => { const o = document.createElement("option"); o.value = i; o.textContent = m.name; at("method").append(o); });
at("method").onchange = e => show(Number(e.target.value));
at("search").oninput = search;
at("search").onkeydown = e => { if (e.key === "Enter" && hits.length) choose(hits[turn++ % hits.length], true); };
if (location.hash.startsWith("#search=")) {
  const word = location.hash.slice(8);
  try { at("search").value = decodeURIComponent(word); } catch { at("search").value = word; }  // "%" alone is no escape
}
if (data.methods.length) show(0);
document.body.dataset.ready = "yes";
</script></body></html>
)page";

}  // namespace pteron::cli
