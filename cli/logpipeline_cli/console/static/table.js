// One table with a search field. Rows keep their elements while they are shown, so that a selection
// and the focus stay where they are.
import { el, setText, spark } from "./dom.js";

export class TablePage {
  constructor(id, search) {
    this.id = id;
    this.by = "";
    this.rows = new Map();
    this.columns = "";
    this.field = el("input", {
      type: "search", placeholder: "search hosts, files and states", "aria-label": "search", value: search.text,
      oninput: () => { search.text = this.field.value; search.changed(); },
    });
    this.found = el("span", { class: "soft", role: "status" });
    this.head = el("tr");
    this.body = el("tbody");
    this.empty = el("div", { class: "empty" });
    this.changed = search.changed;
    this.root = el("div", {},
      el("div", { class: "tools" }, this.field, this.found),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" },
        el("table", {}, el("thead", {}, this.head), this.body), this.empty));
  }

  query() {
    return { table: this.id, text: this.field.value, by: this.by };
  }

  focusSearch() {
    this.field.focus();
    this.field.select();
  }

  draw(view) {
    const table = view.table;
    if (table.id !== this.id) return;
    this.drawHead(table);
    const focused = document.activeElement;
    const seen = new Set();
    table.rows.forEach((row, at) => {
      seen.add(row.key);
      let node = this.rows.get(row.key);
      if (!node) this.rows.set(row.key, (node = el("tr")));
      this.drawRow(node, row, table.columns);
      if (this.body.children[at] !== node) this.body.insertBefore(node, this.body.children[at] ?? null);
    });
    for (const [key, node] of this.rows)
      if (!seen.has(key)) { node.remove(); this.rows.delete(key); }
    if (focused && focused !== document.activeElement && this.body.contains(focused)) focused.focus();
    const more = table.found > table.rows.length ? `, the first ${table.rows.length} are shown` : "";
    setText(this.found, `${table.found} found${more}; ${table.by ? "by " + table.by.toLowerCase() : "what is worst first"}`);
    setText(this.empty, table.rows.length ? "" : "nothing here");
    this.empty.hidden = table.rows.length > 0;
  }

  drawHead(table) {
    const wanted = JSON.stringify([table.columns, table.by]);
    if (wanted === this.columns) return;
    this.columns = wanted;
    this.head.replaceChildren(...table.columns.map((column) => {
      const sorted = table.by === column.title;
      const order = column.number ? "descending" : "ascending";
      return el("th", { class: column.number ? "number" : "", scope: "col", "aria-sort": sorted ? order : null },
        el("button", { type: "button", title: sorted ? "what is worst first" : "sort",
          onclick: () => { this.by = sorted ? "" : column.title; this.changed(); } },
          column.title.toLowerCase() + (sorted ? " ▼" : "")));
    }));
  }

  drawRow(node, row, columns) {
    node.className = row.tone;
    if (node.children.length !== columns.length)
      node.replaceChildren(...columns.map((column) => el("td", { class: column.number ? "number" : "name" })));
    columns.forEach((column, at) => {
      const cell = node.children[at];
      if (column.line) {
        const wanted = row.line.join();
        if (cell.dataset.line === wanted) return;
        cell.dataset.line = wanted;
        cell.replaceChildren(spark(row.line, "the last minute"));
        return;
      }
      const text = row.cells[at];
      cell.className = `${column.number ? "number" : "name"} ${row.tones[at]}`;
      const links = column.title === "SOURCE" && row.source ? `#/source/${row.source}` : "";
      if (!links) return setText(cell, text);
      let link = cell.firstElementChild;
      if (!link) cell.replaceChildren((link = el("a")));
      if (link.getAttribute("href") !== links) link.setAttribute("href", links);
      setText(link, text);
      cell.title = text;
    });
  }
}
