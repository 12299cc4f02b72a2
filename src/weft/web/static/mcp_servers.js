// MCP servers: their status, and the way to a provider's login page and back.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, post, remove } from "./api.js";
import { Dialog, Loaded, Notice, useLoaded } from "./parts.js";

const STATUS = { connected: "connected", disabled: "switched off", failed: "failed", needs_auth: "needs a login", needs_client_registration: "needs a client id" };

export function McpServers({ directory }) {
  const [problem, setProblem] = useState("");
  const [login, setLogin] = useState(null);
  const found = useLoaded(() => Promise.all([get("/mcp", { directory }), get("/config", { directory })]), [directory]);
  const act = (promise) => promise.then(() => (setProblem(""), found.reload()), (error) => setProblem(error.message));
  const path = (name, action) => `/mcp/${encodeURIComponent(name)}/${action}`;
  async function logIn(name) {
    const { authorizationUrl } = await post(path(name, "auth"), undefined, { directory });
    if (authorizationUrl) setLogin({ name, address: authorizationUrl });
  }
  const close = () => (setLogin(null), found.reload());
  return html`${problem && html`<${Notice} kind="error" onClose=${() => setProblem("")}>${problem}<//>`}
    <${Loaded} of=${found}>${([servers, config]) => (Object.keys(servers).length ? html`<section class="card"><h2>MCP servers</h2><ul class="entries">${Object.entries(servers).map(([name, { status, error }]) => html`<li key=${name}>
      <strong>${name}</strong> <span class=${`badge ${status === "connected" ? "running" : "waiting"}`}>${STATUS[status] ?? status}</span>
      <span class="about">${toAddress(config.mcp?.[name])}</span>
      <span class="buttons">
        ${status === "needs_auth" && html`<button type="button" class="primary" onClick=${() => act(logIn(name))}>Log in</button>`}
        ${status === "connected" ? html`<button type="button" onClick=${() => act(post(path(name, "disconnect"), undefined, { directory }))}>Disconnect</button>` : html`<button type="button" onClick=${() => act(post(path(name, "connect"), undefined, { directory }))}>Connect</button>`}
        ${status === "connected" && hasLogin(config.mcp?.[name]) && html`<button type="button" onClick=${() => act(remove(path(name, "auth"), { directory }))}>Forget the login</button>`}</span>
      ${error && html`<p class="failed">${error}</p>`}</li>`)}</ul></section>`
    : html`<div class="empty"><h2>No MCP server is configured</h2><p><code>weft mcp add</code> adds one.</p></div>`)}<//>
    ${login && html`<${LoginDialog} ...${login} directory=${directory} onClose=${close} />`}`;
}

const hasLogin = (config) => config?.type === "remote" && config.oauth !== false;
const toAddress = (config) => (config?.type === "remote" ? config.url : (config?.command ?? []).join(" "));

/** Send the person to the login page, and wait until the server says that they have come back. */
function LoginDialog({ name, address, directory, onClose }) {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const control = new AbortController();
    // The server answers when the login has succeeded or failed.
    get("/mcp", { directory }, { signal: control.signal }).then(
      (servers) => (servers[name]?.status === "connected" ? onClose() : setProblem(servers[name]?.error ?? "The login was not completed.")),
      (error) => error.name === "AbortError" || setProblem(error.message),
    );
    return () => control.abort();
  }, []);
  async function submit(event) {
    event.preventDefault();
    const typed = new FormData(event.target).get("code").trim();
    const code = URL.canParse(typed) ? (new URL(typed).searchParams.get("code") ?? typed) : typed;
    try {
      await post(`/mcp/${encodeURIComponent(name)}/auth/callback`, { code }, { directory });
      onClose();
    } catch (error) {
      setProblem(error.message);
    }
  }
  return html`<${Dialog} title=${`Log in to ${name}`} onClose=${onClose}>
    <p><a class="button primary" href=${address} target="_blank" rel="noopener noreferrer">Open the login page</a></p>
    <p class="about address">${new URL(address).origin}</p>
    ${problem ? html`<p class="failed" role="alert">${problem}</p>` : html`<p role="status">Waiting until you come back …</p>`}
    <form onSubmit=${submit}><label for="code">If your browser cannot return to the server's machine, paste the address that it was sent to, or the code in it</label>
      <input id="code" name="code" required autocomplete="off" /><div class="buttons"><button>Use this code</button></div></form>
  <//>`;
}
