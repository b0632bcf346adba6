"use strict";
// Bars over time, stacked by name. All text becomes text, never markup: names are anybody's words.

const svgNS = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

function shape(tag, attributes = {}, text) {
  const e = document.createElementNS(svgNS, tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}

function swatch(i) {
  const s = shape("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" });
  s.append(shape("rect", { width: 10, height: 10, rx: 2, class: "f" + i }));
  return s;
}

// steps are round numbers from 0 up to at least max.
function steps(max, whole) {
  let step = Math.pow(10, Math.floor(Math.log10(max / 3)));
  for (const m of [1, 2, 5, 10]) if (max / (step * m) <= 4) { step *= m; break; }
  if (whole) step = Math.max(1, Math.round(step));
  const list = [0];
  while (list[list.length - 1] < max) list.push(list.length * step);
  return list;
}

// plot draws into box: columns are {label, short, values by name}, names in the order of their colours.
function plot(box, columns, names, format, whole) {
  const sums = columns.map((c) => names.reduce((s, n) => s + (c.values.get(n) || 0), 0));
  const max = Math.max(...sums, 0);
  if (max <= 0) {
    box.replaceChildren(element("p", { class: "empty" }, "Nothing in this time."));
    return;
  }
  const width = Math.max(280, box.clientWidth), small = window.matchMedia("(max-width: 40rem)").matches;
  const height = small ? 192 : 240, left = 54, bottom = 24, top = 8;
  const ticks = steps(max, whole), most = ticks[ticks.length - 1];
  const y = (v) => top + (height - top - bottom) * (1 - v / most);
  const step = (width - left) / columns.length;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0",
    "aria-label": `Bars over time, at most ${format(max)}; the table below has the sums. Arrow keys read the bars.` });
  for (const t of ticks) {
    svg.append(shape("line", { x1: left, x2: width, y1: y(t), y2: y(t), class: t === 0 ? "base" : "grid" }));
    svg.append(shape("text", { x: left - 8, y: y(t) + 4, "text-anchor": "end" }, format(t)));
  }
  const every = Math.ceil(columns.length / Math.max(1, Math.floor((width - left) / 64)));
  const hits = columns.map((c, i) => column(svg, c, i));
  function column(svg, c, i) {
    const x = left + i * step, gap = step > 6 ? Math.min(6, step * 0.2) : 0.5;
    let sum = 0;
    names.forEach((n, k) => {
      const v = c.values.get(n) || 0;
      if (v <= 0) return;
      svg.append(shape("rect", { x: x + gap / 2, width: step - gap, y: y(sum + v), height: y(sum) - y(sum + v),
        class: "f" + k + (step > 8 ? " bar" : "") }));
      sum += v;
    });
    if (i % every === 0) svg.append(shape("text", { x: x + step / 2, y: height - 6, "text-anchor": "middle" }, c.short));
    const hit = shape("rect", { x, y: top, width: step, height: height - top - bottom, class: "hit" });
    svg.append(hit);
    return hit;
  }
  const tip = element("div", { class: "tip", "aria-live": "polite", hidden: "" });
  let at = -1;
  const show = (i) => {
    if (at >= 0) hits[at].classList.remove("on");
    at = i;
    tip.hidden = i < 0;
    if (i < 0) return;
    hits[i].classList.add("on");
    const lines = names.map((n, k) => [n, k, columns[i].values.get(n) || 0]).filter((l) => l[2] > 0).reverse();
    tip.replaceChildren(element("b", {}, `${columns[i].label}: ${format(sums[i])}`),
      ...lines.map(([n, k, v]) => element("div", {}, swatch(k), element("span", {}, n), format(v))));
    const x = left + (i + 0.5) * step;
    if (x < width / 2) { tip.style.left = x + 14 + "px"; tip.style.right = "auto"; }
    else { tip.style.right = width - x + 14 + "px"; tip.style.left = "auto"; }
  };
  hits.forEach((h, i) => h.addEventListener("pointerenter", () => show(i)));
  svg.addEventListener("pointerleave", () => show(-1));
  svg.addEventListener("blur", () => show(-1));
  svg.addEventListener("keydown", (e) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!move) return;
    e.preventDefault();
    show(Math.min(columns.length - 1, Math.max(0, at < 0 ? (move > 0 ? 0 : columns.length - 1) : at + move)));
  });
  box.replaceChildren(svg, tip, element("ul", { class: "legend" }, ...names.map((n, k) => [n, k]).filter(([n]) => columns.some((c) => c.values.get(n) > 0))
    .map(([n, k]) => element("li", {}, swatch(k), element("span", {}, n)))));
}
