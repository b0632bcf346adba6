"use strict";
// Asks GET v1/ledger and v1/state, and draws what they say.

const $ = (id) => document.getElementById(id);
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const plain = new Intl.NumberFormat("en");
const named = 7; // colours; the rest is "others"
let last = null; // what was drawn, to draw it again where the width changes

function money(micro, currency, short) {
  const o = short ? { notation: "compact", maximumSignificantDigits: 3 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  if (!short && micro !== 0 && Math.abs(micro) < 1e6) o.maximumFractionDigits = 6;
  try {
    return new Intl.NumberFormat("en", { style: "currency", currency, ...o }).format(micro / 1e6);
  } catch {
    return new Intl.NumberFormat("en", o).format(micro / 1e6) + " " + currency;
  }
}

// spans are the columns of each range: the names that the ledger gives to hours, days and months.
function span(range) {
  const now = new Date(), y = now.getUTCFullYear(), m = now.getUTCMonth(), d = now.getUTCDate();
  const list = [];
  if (range === "24h") {
    for (let i = 23; i >= 0; i--) list.push(new Date(Date.UTC(y, m, d, now.getUTCHours() - i)).toISOString().slice(0, 13) + ":00:00Z");
    return { unit: "hour", list, short: (s) => s.slice(11, 16), label: (s) => s.slice(0, 10) + " " + s.slice(11, 16) + " UTC" };
  }
  if (range === "12m") {
    for (let i = 11; i >= 0; i--) list.push(new Date(Date.UTC(y, m - i, 1)).toISOString().slice(0, 7));
    return { unit: "month", list, short: (s) => s, label: (s) => s };
  }
  for (let i = parseInt(range, 10) - 1; i >= 0; i--) list.push(new Date(Date.UTC(y, m, d - i)).toISOString().slice(0, 10));
  return { unit: "day", list, short: (s) => s.slice(5), label: (s) => s };
}

class Unauthorized extends Error {}

async function ask(path, parameters) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path + "?" + new URLSearchParams(parameters), {
    headers: token ? { Authorization: "Bearer " + token } : {}, signal: AbortSignal.timeout(40000),
  });
  const body = await answer.json();
  if (answer.status === 401) throw new Unauthorized(token ? "This token is not the ledger's." : "");
  if (!answer.ok) throw new Error(body.error.message);
  return body;
}

async function rows(parameters) {
  const list = [];
  for (let after = null; ;) {
    const page = await ask("v1/ledger", { ...parameters, limit: 10000, ...(after ? { after } : {}) });
    for (const r of page.rows) list.push(r);
    if ((after = page.next) === null) return list;
  }
}

const tokensOf = (r) => r.prompt_tokens + r.completion_tokens;
const nameOf = (r, by) => r[by] === "" ? "(none)" : r[by];

// colours are the names that have one, in its order, in every plot of the page; what is left is the others.
function colours(list, by) {
  const sums = new Map();
  for (const r of list) sums.set(nameOf(r, by), (sums.get(nameOf(r, by)) || 0) + tokensOf(r));
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a) || (a < b ? -1 : 1));
  const others = names.length > named + 1 ? `${names.length - named} others` : null;
  return { names: others ? [...names.slice(0, named), others] : names, others };
}

// stack sorts rows into columns.
function stack(list, by, when, value, { names, others }) {
  const columns = when.list.map((s) => ({ label: when.label(s), short: when.short(s), values: new Map() }));
  const index = new Map(when.list.map((s, i) => [s, i]));
  for (const r of list) {
    const c = columns[index.get(r[when.unit])];
    if (!c) continue;
    const n = names.includes(nameOf(r, by)) ? nameOf(r, by) : others;
    c.values.set(n, (c.values.get(n) || 0) + value(r));
  }
  return columns;
}

function draw() {
  const { list, by, when, state } = last;
  const sum = (f, of = list) => of.reduce((s, r) => s + f(r), 0);
  const currencies = [...new Set(list.map((r) => r.currency).filter((c) => c !== null))].sort();
  tiles(list, currencies, sum);
  $("tokens-title").textContent = `Tokens by ${by}`;
  const of = colours(list, by);
  plot($("tokens"), stack(list, by, when, tokensOf, of), of.names, (n) => compact.format(n), true);
  $("costs").replaceChildren();
  for (const c of currencies) {
    const box = element("div", { class: "plot" });
    $("costs").append(element("section", { class: "card" }, element("h2", {}, `Cost in ${c} by ${by}`), box));
    plot(box, stack(list.filter((r) => r.currency === c), by, when, (r) => r.cost, of), of.names, (n) => money(n, c, true), false);
  }
  if (currencies.length === 0) {
    $("costs").append(element("section", { class: "card" }, element("h2", {}, "Cost"),
      element("p", { class: "empty" }, list.length ? "No model that was used has a price in the policy." : "Nothing in this time.")));
  }
  table(list, by);
  balance(state);
}

function tiles(list, currencies, sum) {
  const tile = (name, value, note) => element("dl", { class: "tile" }, element("dt", {}, name),
    element("dd", { class: "value" }, value), note ? element("dd", { class: "note" }, note) : null);
  const unknown = sum((r) => r.unknown_tokens);
  const list2 = [
    tile("Requests", compact.format(sum((r) => r.requests)), `${plain.format(sum((r) => r.cut + r.failed + r.not_served))} cut, failed or not served`),
    tile("Prompt tokens", compact.format(sum((r) => r.prompt_tokens)), `${compact.format(sum((r) => r.cached_tokens))} from the cache`),
    tile("Completion tokens", compact.format(sum((r) => r.completion_tokens)), unknown ? `and ${plain.format(unknown)} requests unknown` : "all are known"),
  ];
  for (const c of currencies) {
    const of = list.filter((r) => r.currency === c), missing = sum((r) => r.unknown_cost, of);
    list2.push(tile(`Cost, ${c}`, money(sum((r) => r.cost, of), c), missing ? `and ${plain.format(missing)} requests unknown` : ""));
  }
  $("tiles").replaceChildren(...list2);
}

function table(list, by) {
  $("table-title").textContent = `Sums by ${by}`;
  const sums = new Map();
  for (const r of list) {
    const k = JSON.stringify([nameOf(r, by), r.currency]), s = sums.get(k) || { name: nameOf(r, by), currency: r.currency };
    for (const [n, v] of Object.entries(r)) if (typeof v === "number") s[n] = (s[n] || 0) + v;
    sums.set(k, s);
  }
  if (sums.size === 0) {
    $("table").replaceChildren(element("caption", { class: "nothing" }, "No request has ended in this time."));
    return;
  }
  const cells = [[by, (s) => s.name], ["requests", (s) => plain.format(s.requests)], ["prompt", (s) => plain.format(s.prompt_tokens)],
    ["cached", (s) => plain.format(s.cached_tokens)], ["completion", (s) => plain.format(s.completion_tokens)],
    ["unknown", (s) => plain.format(s.unknown_tokens)], ["cost", (s) => s.currency === null ? "no price" : money(s.cost, s.currency)]];
  const whole = new Map();
  for (const s of sums.values()) whole.set(s.name, (whole.get(s.name) || 0) + tokensOf(s));
  const body = [...sums.values()].sort((a, b) => whole.get(b.name) - whole.get(a.name) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0) || (b.cost ?? -1) - (a.cost ?? -1)).slice(0, 200).map((s) =>
    element("tr", {}, ...cells.map(([, f], i) => element("td", i === 0 ? { title: s.name } : {}, f(s)))));
  $("table").replaceChildren(element("thead", {}, element("tr", {}, ...cells.map(([n]) => element("th", { scope: "col" }, n)))),
    element("tbody", {}, ...body));
}

function balance(s) {
  const sum = (n) => s.sums.reduce((t, r) => t + r[n], 0);
  const line = (kind, mark, text, why) => element("li", { class: kind }, element("b", {}, mark), element("span", {}, text, " ", element("small", {}, why)));
  const count = (n, kind, text, why) => line(n ? kind : "good", n ? plain.format(n) : "none", text, why);
  const refused = Object.values(s.refused.counts).reduce((a, b) => a + b, 0);
  const lines = [
    count(s.missing, "bad", `admissions without usage, older than ${Math.round(s.overdue / 60)} minutes`, "reconcile with -repair"),
    count(s.open, "note", "admissions that are younger, and open", ""),
    count(sum("repaired"), "warn", "requests told by a repair, not by their door", "an original that comes late wins"),
    count(sum("unserved"), "warn", "complete answers of which no worker told", "its spool may not have been shipped yet"),
    count(sum("differing"), "note", "requests where door and worker counted differently", `billed is what was ${s.bill}; ${plain.format(sum("undelivered_tokens"))} tokens were made and not delivered`),
    count(sum("unknown_tokens"), "warn", "requests with unknown tokens", "they are in no sum of tokens"),
    count(refused, "bad", "records refused, ever", Object.entries(s.refused.counts).map(([k, n]) => `${k}: ${n}`).join(", ")),
    count(s.records.pending, "note", "records (or more) still to read", ""),
  ];
  if (s.records.skipped) lines.push(line("bad", plain.format(s.records.skipped), "records were removed before they were read", "read the spools instead"));
  if (s.records.error) lines.push(line("bad", "error", s.records.error, ""));
  $("state").replaceChildren(...lines);
  told(s.balances);
  listing("missing", "Longest without usage", ["admitted", "team", "key", "model", "admission"],
    s.oldest.slice(0, 10).map((o) => [stamp(o.admitted_at), o.team, o.key, o.model, o.admission]));
  listing("refused", "Refused last", ["when", "reason", "record", "what"], s.refused.latest.map((r) => [stamp(r.at), r.reason, r.id || r.origin, r.what]));
}

const stamp = (t) => t.slice(0, 19).replace("T", " ");

function told(list) {
  const rows = list.map((t) => {
    const b = t.record.balance;
    if (!b) return [stamp(t.at), "written off", t.record.id.replace(/^write-off\//, ""), ""];
    const against = ["missing_usage", "missing_admitted", "missing_served", "token_differences", "conflicts", "gaps", "altered", "damaged", "engine_differences"]
      .filter((k) => b[k]).map((k) => `${k.replaceAll("_", " ")}: ${plain.format(b[k])}`).join(", ");
    return [stamp(t.at), b.balanced ? "balances" : "does not balance", `${plain.format(b.admitted)} admissions`, against];
  });
  if (rows.length) listing("told", null, ["when (UTC)", "result", "of", "against it"], rows);
  else $("told").replaceChildren(element("p", { class: "nothing" }, "No result of spokegate usage reconcile is in the journals: it publishes with -kafka, and from spools with -publish."));
}

function listing(id, title, heads, rows) {
  if (rows.length === 0) { $(id).replaceChildren(); return; }
  $(id).replaceChildren(...(title ? [element("h3", {}, title)] : []), element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((h) => element("th", { scope: "col", class: "text" }, h)))),
    element("tbody", {}, ...rows.map((r) => element("tr", {}, ...r.map((c) => element("td", { class: "text" }, c))))))));
}

let turn = 0; // of refreshes: an answer to an earlier one is dropped
async function refresh() {
  const mine = ++turn, by = $("by").value, when = span($("range").value);
  try {
    const from = when.list[0];
    const [list, state] = await Promise.all([rows({ group: when.unit + "," + by, from }), ask("v1/state", { from })]);
    if (mine !== turn) return;
    last = { list, by, when, state };
    $("login").hidden = true;
    $("content").hidden = $("controls").hidden = false;
    draw();
    $("status").className = "";
    $("status").textContent = "As of " + new Date().toISOString().slice(11, 19) + " UTC";
  } catch (e) {
    if (mine !== turn) return;
    if (e instanceof Unauthorized) {
      $("login").hidden = false;
      $("content").hidden = $("controls").hidden = true;
      $("refusal").textContent = e.message;
      return;
    }
    $("status").className = "bad";
    $("status").textContent = last ? "Not renewed: " + e.message : e.message;
  }
}

$("login").addEventListener("submit", (e) => { e.preventDefault(); sessionStorage.setItem("token", $("token").value); $("token").value = ""; refresh(); });
$("controls").addEventListener("submit", (e) => e.preventDefault());
for (const id of ["range", "by"]) $(id).addEventListener("change", refresh);
let width = 0;
new ResizeObserver(() => { if (last && document.body.clientWidth !== width) { width = document.body.clientWidth; draw(); } }).observe(document.body);
setInterval(() => { if (!document.hidden && $("login").hidden) refresh(); }, 30000);
refresh();
