// The token that reading takes. The address holds it behind #, which a browser sends to no server;
// from there it is kept for this tab and this origin, which has its port: a cookie would go to
// the servers on all ports of the host. A tab that was opened without it asks the others.
const NAME = "token";
// An address of a former version holds it behind ?.
const GIVEN = /[#?&]token=([\w-]+)/;
const tabs = new BroadcastChannel(NAME);
let changed = () => {};

export const token = () => sessionStorage.getItem(NAME) ?? "";

// Takes the token out of the address, so that neither a picture of the screen nor a copied address holds it.
export function takeToken() {
  const given = GIVEN.exec(location.hash) ?? GIVEN.exec(location.search);
  if (!given) return;
  sessionStorage.setItem(NAME, given[1]);
  history.replaceState(null, "", location.pathname);
}

// Asks the other tabs of this page, which answer only while they have one; calls *then* once one came.
export function askTabs(then) {
  changed = then;
  tabs.postMessage("");
}

tabs.addEventListener("message", ({ data }) => {
  if (data === "" && token()) tabs.postMessage(token());
  else if (data !== "" && !token()) { sessionStorage.setItem(NAME, data); changed(); }
});
