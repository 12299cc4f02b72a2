// The address is the state: what is shown can be bookmarked, reloaded, and opened in another tab.
import { useEffect, useState } from "./vendor/preact-htm.js";

const listeners = new Set();

/** Go to an address of the page. `replace` leaves no entry in the history. */
export function navigate(address, { replace = false } = {}) {
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  for (const listener of listeners) listener();
}

/** Change parameters of the address and keep the others. An empty value removes a parameter. */
export function setQuery(change, { replace = true } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(change)) {
    if (value === undefined || value === null || value === "" || value === false) query.delete(name);
    else query.set(name, value);
  }
  const search = query.toString();
  navigate(location.pathname + (search ? `?${search}` : ""), { replace });
}

/** Return the screen, the id in the address, and its parameters; render again when they change. */
export function useRoute() {
  const [route, setRoute] = useState(readRoute);
  useEffect(() => {
    const update = () => setRoute(readRoute());
    listeners.add(update);
    addEventListener("popstate", update);
    return () => {
      listeners.delete(update);
      removeEventListener("popstate", update);
    };
  }, []);
  return route;
}

function readRoute() {
  const [, web, screen, id] = location.pathname.split("/");
  const query = Object.fromEntries(new URLSearchParams(location.search));
  return { screen: web === "web" && screen ? screen : "sessions", id: decode(id ?? ""), query };
}

/** Return a name in an address; one with an invalid escape stays as it is, and names nothing. */
function decode(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

// Links within the page change the address without loading the page again.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || link.target || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const url = new URL(link.href);
  if (url.origin !== location.origin || !(url.pathname === "/" || url.pathname.startsWith("/web/")) || link.hash) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
  scrollTo(0, 0);
});

export const toSession = (id) => `/web/session/${encodeURIComponent(id)}`;
export const toComparison = (...sessions) => `/web/trials?session=${sessions.map(encodeURIComponent).join()}`;
export const toBlame = (path, directory) => `/web/blame?path=${encodeURIComponent(path)}&directory=${encodeURIComponent(directory)}`;
