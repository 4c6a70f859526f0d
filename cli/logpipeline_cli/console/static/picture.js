// The way of the lines: files, shippers, streams, and side by side what reads the streams.
import { el, spark } from "./dom.js";

const READ_STREAMS = ["collectors", "table", "readers"];

function card(stage) {
  return el(
    "div", { class: "stage" },
    el("div", { class: "title" }, el("span", {}, stage.name), el("span", { class: "soft" }, stage.count)),
    el("div", { class: "rates" }, stage.rates),
    spark(stage.line, `${stage.name}, the last minute`),
    el("div", { class: "waiting" }, stage.waiting),
  );
}

export function drawWay(list, stages) {
  const columns = [];
  for (const stage of stages) {
    const reads = READ_STREAMS.includes(stage.name);
    if (reads && columns.length && columns.at(-1).reads) columns.at(-1).stages.push(stage);
    else columns.push({ reads, stages: [stage] });
  }
  list.replaceChildren(
    ...columns.map((column) =>
      el("li", { class: `${column.stages.some((stage) => stage.moves) ? "moves" : ""} ${column.stages.length > 1 ? "side" : ""}` }, ...column.stages.map(card)),
    ),
  );
}

export function drawProblems(list, view) {
  const rows = view.problems.map((text) => el("li", {}, text));
  if (view.problems_total > view.problems.length)
    rows.push(el("li", {}, `and ${view.problems_total - view.problems.length} more: logpipeline status --check`));
  if (!rows.length && view.at) rows.push(el("li", { class: "fine" }, "No problems."));
  list.replaceChildren(...rows);
}
