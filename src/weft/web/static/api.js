// Requests to the server. Each carries the token of the login, which no other site can read.
let token = "";

export class ApiError extends Error {
  constructor(status, name, message) {
    super(message);
    this.status = status;
    this.name = name;
  }
}

/** The other tabs of this browser. They hear that one was opened, logged in or logged out. */
export const tabs = new BroadcastChannel("weft");
tabs.addEventListener("message", ({ data }) => data === "logged out" && onLoggedOut());

/** What to call when the server no longer accepts the login. */
let onLoggedOut = () => {};
export function whenLoggedOut(listener) {
  onLoggedOut = listener;
}

/** Send a request and return what the server answers. Throws an `ApiError` with the server's own words. */
export async function send(method, path, body, { query = {}, signal } = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) url.searchParams.set(name, value);
  }
  const headers = { "x-weft-page": token };
  if (body !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method, headers, signal, credentials: "same-origin", body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "Unreachable", "The server does not answer. It may be restarting.");
  }
  const text = await response.text();
  const value = text ? parse(text) : null;
  if (response.ok) return value;
  if (response.status === 401 && !path.startsWith("/web/login")) onLoggedOut();
  throw new ApiError(response.status, value?.name ?? "Error", value?.data?.message ?? `The server answered ${response.status}.`);
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const get = (path, query, options) => send("GET", path, undefined, { query, ...options });
export const post = (path, body, query) => send("POST", path, body, { query });
export const patch = (path, body, query) => send("PATCH", path, body, { query });
export const put = (path, body, query) => send("PUT", path, body, { query });
export const remove = (path, query) => send("DELETE", path, undefined, { query });

/** Log in by the ticket in the address, if there is one; return whether the page may be shown. */
export async function checkLogin() {
  const ticket = /^#login=([\w-]+)$/.exec(location.hash)?.[1];
  if (ticket) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      return await logInWith({ ticket });
    } catch (error) {
      const state = await send("GET", "/web/login");
      if (accept(state)) return true;
      throw error;
    }
  }
  return accept(await send("GET", "/web/login"));
}

function accept(state) {
  token = state.token;
  return !state.needed || Boolean(state.token);
}

/** Log in. The other tabs have the same cookie from then on, and need the token that belongs to it. */
async function logInWith(secret) {
  const isAccepted = accept(await send("POST", "/web/login", secret));
  tabs.postMessage("logged in");
  return isAccepted;
}

export const logIn = (password) => logInWith({ password });

export async function logOut() {
  await send("DELETE", "/web/login");
  token = "";
  tabs.postMessage("logged out");
}

/** Make an id of a message, so that a prompt that is sent twice is one prompt. It sorts by time, as the server's own do. */
export function makeMessageId() {
  const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const random = crypto.getRandomValues(new Uint8Array(14));
  const time = ((BigInt(Date.now()) * 4096n + 1n) % (1n << 48n)).toString(16).padStart(12, "0");
  return `msg_${time}${Array.from(random, (each) => letters[each % 62]).join("")}`;
}
