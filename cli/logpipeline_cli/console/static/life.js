// The page of one source: every generation, how far it is shipped and collected, and its holes.
import { el, svg } from "./dom.js";

const bar = (kind, start, stop, end) =>
  svg("rect", { class: kind, x: (1000 * start) / end, y: 0, width: Math.max(kind === "hole" ? 4 : 0, (1000 * (stop - start)) / end), height: 10 });

function generation(each) {
  const end = Math.max(each.end, 1);
  const parts = [`collected ${each.begun} to ${each.collected}`];
  if (each.shipped !== null) parts.push(`shipped up to ${each.shipped}`);
  return el("div", { class: "generation" },
    el("div", {}, el("code", {}, each.name), " ", el("span", { class: "soft" }, each.group)),
    svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": parts.join(", ") },
      each.shipped === null ? null : bar("shipped", 0, each.shipped, end),
      bar("collected", each.begun, each.collected, end),
      ...each.holes.map((hole) => bar("hole", hole.start, hole.end, end))),
    el("div", { class: "soft" }, parts.join(", ")),
    ...each.holes.map((hole) => el("div", { class: "badtext" }, `hole ${hole.start} to ${hole.end}: ${hole.bytes}`)));
}

const swatch = (kind, text) =>
  el("span", {}, svg("svg", { viewBox: "0 0 10 10" }, svg("rect", { class: kind, width: 10, height: 10 })), ` ${text}`);

export function drawLife(root, life, id) {
  const losses = life.losses.map((loss) =>
    el("li", { class: "badtext" }, `${loss.bytes} of ${loss.generation}, ${loss.range}: ${loss.cause}, since ${loss.since}`));
  const parts = [
    el("h2", {}, `${life.host} ${life.source}`),
    el("p", {}, el("a", { href: `#/lines/${id}` }, "its lines as they pass")),
    life.silent ? el("p", { class: "badtext" }, life.silent) : null,
    el("dl", { class: "facts" }, ...life.facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
    el("h2", {}, "Generations, the newest first"),
    el("p", { class: "key" }, swatch("collected", "collected"), swatch("shipped", "shipped, not collected yet"), swatch("hole", "a hole")),
    life.answered ? null : el("p", { class: "soft" }, "No collector answered: none owns the partition, or this login may only read."),
    ...(life.generations.length ? life.generations.map(generation) : [el("p", { class: "empty" }, "nothing is shipped of it yet")]),
    losses.length ? el("h2", {}, "Lost") : null,
    el("ul", {}, ...losses),
  ];
  root.replaceChildren(...parts.filter((part) => part !== null));
}
