// Share a session: what others would see and what is redacted, before anything leaves this machine.
import { html, useState } from "./vendor/preact-htm.js";
import { post, remove } from "./api.js";
import { formatCount } from "./format.js";
import { Dialog, Loaded, Notice, useLoaded } from "./parts.js";
import { putSession, state } from "./store.js";
import { copyText } from "./trust.js";

const DAY = 24 * 60 * 60 * 1000;
const TERMS = [["", "until I revoke it"], ["1", "for a day"], ["7", "for a week"], ["30", "for a month"]];

export function ShareDialog({ session, onClose }) {
  const [terms, setTerms] = useState({ redact: true, attachments: true });
  const [days, setDays] = useState("");
  const [problem, setProblem] = useState("");
  const preview = useLoaded(() => post(`/weft/session/${session}/share/preview`, terms), [terms.redact, terms.attachments]);
  const [url, setUrl] = useState(state.sessions.get(session)?.share?.url ?? "");
  async function run(promise) {
    try {
      const info = await promise;
      putSession(info);
      setUrl(info.share?.url ?? "");
      setProblem("");
    } catch (error) {
      setProblem(error.message);
    }
  }
  const share = () => run(post(`/weft/session/${session}/share`, { ...terms, ...(days ? { expires: Date.now() + Number(days) * DAY } : {}) }));
  const revoke = () => run(remove(`/weft/session/${session}/share`));
  return html`<${Dialog} title="Share this session" onClose=${onClose} actions=${url
      ? html`<button type="button" class="primary" onClick=${(event) => copyText(url, event.currentTarget)}>Copy the address</button><button type="button" class="danger" onClick=${revoke}>Stop sharing</button>`
      : html`<button type="button" class="primary" onClick=${share}>Share</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button>`}>
    ${problem && html`<${Notice} kind="error">${problem}<//>`}
    ${url && html`<p>It is shown at <a href=${url} target="_blank">${url}</a>.</p>`}
    ${!url && html`<div class="stack">
      <label><input type="checkbox" checked=${terms.redact} onChange=${(event) => setTerms({ ...terms, redact: event.target.checked })} /> Redact secrets</label>
      <label><input type="checkbox" checked=${terms.attachments} onChange=${(event) => setTerms({ ...terms, attachments: event.target.checked })} /> Include attached files</label>
      <label>Shown <select value=${days} onChange=${(event) => setDays(event.target.value)}>${TERMS.map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}</select></label></div>`}
    <${Loaded} of=${preview}>${(seen) => html`<h3>What others would see</h3>
      <p>${formatCount(seen.messages, "message")} with ${formatCount(seen.parts, "part")}${seen.pictures ? `, ${formatCount(seen.pictures, "picture")} that cannot be searched for secrets` : ""}${seen.leftOut ? `; ${formatCount(seen.leftOut, "attachment")} left out` : ""}${seen.to ? `, at ${seen.to}` : ""}.</p>
      ${seen.covered?.length ? html`<h3>What is redacted</h3><table class="plain"><thead><tr><th>Kind</th><th>Shown as</th><th>Where</th><th class="right">Times</th></tr></thead><tbody>${seen.covered.map((each) => html`<tr key=${each.placeholder}><td>${each.kind}</td><td><code>${each.placeholder}</code> <span class="about">${each.glimpse}</span></td><td>${each.where}</td><td class="right">${each.times}</td></tr>`)}</tbody></table>` : html`<p class="about">No secrets were found.</p>`}`}<//>
  <//>`;
}
