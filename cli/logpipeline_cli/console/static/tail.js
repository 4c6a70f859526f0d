// Lines as they pass.
import { el, setText } from "./dom.js";

const SHOWN_MAX = 1000;

export class TailPage {
  constructor(id) {
    this.id = id;
    this.after = 0;
    this.begin = () => { this.after = 0; this.lines.replaceChildren(); };
    this.host = el("input", { type: "search", placeholder: "host", "aria-label": "only this host", onchange: this.begin });
    this.text = el("input", { type: "search", placeholder: "only lines with this text", "aria-label": "only lines with this text", onchange: this.begin });
    this.note = el("span", { class: "soft", role: "status" });
    this.lines = el("div", { id: "lines", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "lines" });
    this.root = el("div", {}, el("div", { class: "tools" }, id ? null : this.host, this.text, this.note), this.lines);
  }

  query() {
    const where = this.id ? { id: this.id } : { host: this.host.value };
    return { ...where, text: this.text.value, after: this.after };
  }

  focusSearch() {
    this.text.focus();
  }

  draw(answer, asked) {
    // An answer to a former filter comes too late.
    if (JSON.stringify(asked) !== JSON.stringify(this.query())) return;
    setText(this.note, answer.error ?? "");
    if (answer.error) return;
    const isAtEnd = this.lines.scrollHeight - this.lines.scrollTop - this.lines.clientHeight < 40;
    this.lines.append(...answer.lines.map((line) =>
      el("div", { class: line.damaged ? "damaged" : "" },
        this.id || line.damaged ? null : el("span", { class: "of" }, `${line.host} ${line.label} `), line.text)));
    while (this.lines.children.length > SHOWN_MAX) this.lines.firstChild.remove();
    this.after = answer.next;
    if (isAtEnd) this.lines.scrollTop = this.lines.scrollHeight;
  }
}
