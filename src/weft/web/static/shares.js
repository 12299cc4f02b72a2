// What is shared, where, for how long, and how to take it back.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, remove } from "./api.js";
import { formatAgo, formatTime, toTitle } from "./format.js";
import { Loaded, Notice, useLoaded } from "./parts.js";
import { toSession } from "./router.js";
import { ShareDialog } from "./share_dialog.js";
import { state } from "./store.js";
import { copyText } from "./trust.js";

const PLACES = { server: "on this server", remote: "on another server", received: "received from elsewhere" };

export function SharesScreen() {
  const [problem, setProblem] = useState("");
  const [dialog, setDialog] = useState(null);
  useEffect(() => {
    document.title = state.title = "Shares · weft";
  }, []);
  const shares = useLoaded(async () => {
    const found = await get("/weft/share");
    return Promise.all(found.map(async (share) => ({ ...share, session: await get(`/session/${share.sessionID}`).catch(() => null) })));
  }, []);
  const revoke = (share) => remove(`/weft/share/${encodeURIComponent(share.id)}`).then(shares.reload, (error) => setProblem(error.message));
  return html`<div class="shares"><header class="page-head"><h1>Shares</h1></header>
    ${problem && html`<${Notice} kind="error" onClose=${() => setProblem("")}>${problem}<//>`}
    <${Loaded} of=${shares}>${(found) => (found.length ? html`<ul class="list">${found.map((share) => html`<li key=${share.id} class="row share"><div class="row-line">
        <a class="row-title" href=${toSession(share.sessionID)}>${share.session ? toTitle(share.session) : share.sessionID}</a>
        <span class="badge running">${PLACES[share.target] ?? share.target}</span>${share.redact === false && html`<span class="badge waiting">not redacted</span>`}
        <span class="grow"></span><span class="about">${share.expires ? `until ${formatTime(share.expires)}` : "until revoked"}${share.created ? ` · ${formatAgo(share.created)}` : ""}</span></div>
        <div class="row-line"><a class="about address" href=${share.url} target="_blank">${share.url}</a><span class="grow"></span>
        <button type="button" class="quiet" onClick=${(event) => copyText(share.url, event.currentTarget)}>Copy the address</button>
        ${share.session && html`<button type="button" class="quiet" onClick=${() => setDialog(html`<${ShareDialog} session=${share.sessionID} onClose=${() => (setDialog(null), shares.reload())} />`)}>What it shows</button>`}
        <button type="button" class="danger" onClick=${() => revoke(share)}>Revoke</button></div></li>`)}</ul>`
      : html`<div class="empty"><h2>Nothing is shared</h2><p>Share a session from its menu. You see what others would see, and what is redacted, before anything leaves this machine.</p></div>`)}<//>
    ${dialog}</div>`;
}
