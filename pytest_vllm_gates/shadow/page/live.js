"use strict";
// Text of others is only ever put in as text: nothing here makes markup of it.
const EVERY_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 160;
const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(id, children) {
  byId(id).replaceChildren(...children);
}

function number(value) {
  return value === null ? "?" : String(Number(value.toPrecision(3)));
}

function percent(value) {
  return `${Number((100 * value).toPrecision(3))} %`;
}

function bounds(each, shown) {
  const limits = [each.lower, each.upper].map((limit) => (limit === null ? "?" : shown(limit)));
  return `${shown(each.value)} (${limits.join(" to ")})`;
}

function bands(stable, canary, shown) {
  const values = [stable, canary].flatMap((each) => [each.lower, each.value, each.upper]);
  const most = Math.max(...values.filter((value) => value !== null)) || 1;
  const drawn = document.createElementNS(SVG, "svg");
  drawn.setAttribute("viewBox", `0 0 ${WIDTH} 26`);
  drawn.setAttribute("role", "img");
  drawn.setAttribute("aria-label", `stable ${bounds(stable, shown)}, canary ${bounds(canary, shown)}`);
  [["stable", stable, 2], ["canary", canary, 15]].forEach(([name, side, top]) => {
    const place = (value) => (WIDTH - 3) * value / most;
    const low = place(side.lower ?? 0);
    const high = place(side.upper ?? most);
    const boxes = [[low, Math.max(1, high - low), top + 3, 3], [place(side.value), 3, top, 9]];
    for (const [left, width, from, height] of boxes) {
      const box = document.createElementNS(SVG, "rect");
      const sizes = { x: left, y: from, width, height };
      for (const [key, value] of Object.entries(sizes)) box.setAttribute(key, value.toFixed(1));
      box.setAttribute("class", name);
      drawn.append(box);
    }
  });
  return drawn;
}

function row(name, says, cells) {
  const made = element("tr");
  const head = element("th", name);
  head.scope = "row";
  head.append(element("span", says, "says"));
  made.append(head);
  for (const cell of cells) {
    const place = element("td");
    place.append(cell);
    made.append(place);
  }
  return made;
}

function kindState(kind) {
  if (kind.rejected) return element("span", "rejected", "bad");
  if (kind.until_reject !== null) return element("span", `${kind.until_reject} more pairs like these reject it`);
  if (kind.canary_only === 0) return element("span", "no failure", "good");
  return element("span", "open");
}

function figureState(figure) {
  if (figure.rejected) return element("span", "rejected", "bad");
  return figure.fine ? element("span", "within", "good") : element("span", "open");
}

function counts(table) {
  return Object.entries(table).map(([reason, count]) => `${reason}: ${count}`).join("; ") || "none";
}

function traffic(shown) {
  const { traffic, greedy } = shown;
  const lines = [
    ["requests passed on", traffic.passed],
    ["of them without an answer", traffic.failed],
    ["copies sent to the canary", traffic.mirrored],
    ["not copied", counts(traffic.not_mirrored)],
    ["pairs not judged", counts(traffic.not_judged)],
    ["greedy answers", `${greedy.same} of ${greedy.pairs} the same text`],
  ];
  if (greedy.part_at_token_median !== null) {
    lines.push(["greedy answers part", `after ${greedy.part_at_token_median} tokens in the median, ${greedy.part_at_token_least} at the earliest`]);
  }
  fill("traffic", lines.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

function show(shown) {
  const word = shown.watching ? "KEEP WATCHING" : shown.promotion;
  document.title = `${word}: shadow`;
  const title = byId("promotion");
  if (title.textContent !== word) title.textContent = word;
  title.className = shown.promotion;
  const more = shown.more_pairs ? `; about ${shown.more_pairs} more pairs like these are needed for PROMOTE` : "";
  byId("progress").textContent = `${shown.pairs} pairs judged since ${shown.started}${more}`;
  byId("sides").textContent = `stable ${shown.stable}, canary ${shown.canary}`;
  fill("reasons", shown.reasons.map((reason) => element("li", reason)));
  const failing = shown.kinds.filter((kind) => kind.last);
  byId("no-failures").hidden = failing.length > 0;
  fill("failures", failing.map((kind) => element("li", `${kind.name}: ${kind.last}`)));
  fill("kinds", shown.kinds.map((kind) => row(kind.name, kind.says, [
    bounds(kind.stable_rate, percent), bounds(kind.canary_rate, percent),
    bands(kind.stable_rate, kind.canary_rate, percent),
    percent(kind.difference_below), kindState(kind),
  ])));
  fill("figures", shown.figures.map((figure) => row(`${figure.name} p${100 * figure.quantile}`, figure.says, [
    String(figure.pairs), bounds(figure.stable, number), bounds(figure.canary, number),
    bands(figure.stable, figure.canary, number), String(figure.ratio_allowed), figureState(figure),
  ])));
  traffic(shown);
}

async function update() {
  const stale = byId("stale");
  try {
    const reply = await fetch("verdict", { cache: "no-store" });
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    show(await reply.json());
    stale.hidden = true;
  } catch (error) {
    stale.textContent = `The shadow does not answer (${error.message}): what is shown is old.`;
    stale.hidden = false;
  }
  setTimeout(update, EVERY_MS);
}

update();
