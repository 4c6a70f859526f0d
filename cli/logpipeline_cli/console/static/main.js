// Asks for what is to be shown once a second, and draws it. The part behind # chooses the page.
import { el, setText } from "./dom.js";
import { drawLife } from "./life.js";
import { drawProblems, drawWay } from "./picture.js";
import { TablePage } from "./table.js";
import { TailPage } from "./tail.js";
import { askTabs, takeToken, token } from "./token.js";

const at = (id) => document.getElementById(id);
const main = at("main");
const search = { text: "", changed: () => ask() };
const STALE_S = 10;
let page = null, paused = false, timer = 0, asked = 0, tabs = "";

// Cookies are sent along for the login of a proxy; ours has none.
async function get(path, query) {
  const asking = { credentials: "same-origin", headers: { "X-Logpipeline-Token": token() } };
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`, asking);
  if (answer.headers.get("content-type")?.startsWith("application/json")) return answer.json();
  if (answer.status !== 401) throw new Error(`the console answers ${answer.status}`);
  throw new Error(`${token() ? "the token has changed" : "this tab has no token"}: open the address that the command printed`);
}

function route() {
  const [, name = "sources", id = ""] = location.hash.split("/");
  if (name === "source") page = { kind: "life", id, root: el("div", {}, el("p", { class: "empty" }, "asking collectors …")) };
  else if (name === "lines") { const tail = new TailPage(id); page = { kind: "lines", id, tail, root: tail.root }; }
  else {
    // A text that finds hosts and files finds nothing elsewhere.
    if (!["sources", "hosts", "missing", ""].includes(name)) search.text = "";
    const table = new TablePage(name || "sources", search); page = { kind: "table", id: name || "sources", table, root: table.root };
  }
  main.replaceChildren(page.root);
  tabs = "";
  ask();
}

function drawTabs(view) {
  const wanted = JSON.stringify([page.kind, page.id, view.tables]);
  if (wanted === tabs) return;
  tabs = wanted;
  const held = document.activeElement?.getAttribute?.("href");
  const links = view.tables.map((table) => ({ href: `#/${table.id}`, name: table.name, count: table.count, here: page.kind === "table" && page.id === table.id }));
  links.push({ href: "#/lines", name: "Lines", count: "", here: page.kind === "lines" });
  if (page.kind === "life") links.push({ href: `#/source/${page.id}`, name: "One source", count: "", here: true });
  at("tabs").replaceChildren(...links.map((link) => el("li", {}, el("a", { href: link.href, "aria-current": link.here ? "page" : null }, link.name, " ", el("span", { class: "count" }, String(link.count))))));
  if (held) at("tabs").querySelector(`a[href="${CSS.escape(held)}"]`)?.focus();
}

function state(text, isBad) {
  setText(at("state"), paused ? `paused; ${text}` : text);
  at("state").className = isBad ? "bad" : "";
}

function draw(answer) {
  const view = answer.view;
  document.title = `${view.problems_total ? `(${view.problems_total}) ` : ""}${view.name} – logpipeline`;
  setText(at("name"), `${view.namespace}/${view.name}`);
  setText(at("server"), view.server ? `on ${view.server}` : "");
  if (view.trouble) state(view.trouble, true);
  else if (answer.age_s < 0) state("gathering …", false);
  else if (answer.age_s > STALE_S + 2 * view.every_s) state(`as of ${view.at}`, true);
  else state(view.at, false);
  drawWay(at("way"), view.stages);
  drawProblems(at("problems"), view);
  drawTabs(view);
  if (page.kind === "table") page.table.draw(view);
  return answer.age_s < 0 || answer.age_s > STALE_S ? 500 : Math.max(1000, Math.min(5000, 1000 * view.every_s));
}

async function drawPage() {
  const here = page;
  if (here.kind === "life") {
    const life = await get("/api/source", { id: here.id });
    if (here !== page) return;
    if (life.error) here.root.replaceChildren(el("p", { class: "empty" }, life.error));
    else drawLife(here.root, life, here.id);
  } else if (here.kind === "lines") {
    const query = here.tail.query();
    const answer = await get("/api/lines", query);
    if (here === page) here.tail.draw(answer, query);
  }
}

async function ask() {
  clearTimeout(timer);
  if (document.hidden || (paused && asked)) return;
  const number = ++asked, query = page.kind === "table" ? page.table.query() : { table: "problems" };
  let wait = 2000;
  try {
    const answer = await get("/api/view", query);
    if (number !== asked) return;
    wait = draw(answer);
    await drawPage();
  } catch (error) {
    if (number !== asked) return;
    state(error instanceof TypeError ? `the console does not answer: ${error.message}` : error.message, true);
  }
  if (number === asked) { clearTimeout(timer); timer = setTimeout(ask, wait); }
}

addEventListener("hashchange", () => { paused = false; takeToken(); route(); });
document.addEventListener("visibilitychange", ask);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") {
    if (isTyping && event.target.value) return;
    if (isTyping) event.target.blur();
    else if (page.kind !== "table") location.hash = "#/sources";
    return;
  }
  if (isTyping) return;
  if (event.key === "/") { (page.table ?? page.tail)?.focusSearch(); event.preventDefault(); }
  else if (event.key === "p") { paused = !paused; state(at("state").textContent.replace(/^paused; /, ""), false); if (!paused) ask(); }
  else if (/^[1-9]$/.test(event.key)) at("tabs").querySelectorAll("a")[Number(event.key) - 1]?.click();
});
takeToken();
if (!token()) askTabs(ask);
route();
