// Keys: one table of what they do, for those that listen and for the list that people read.
import { html } from "./vendor/preact-htm.js";
import { Dialog } from "./parts.js";

const KEYS = [
  ["Everywhere", [["?", "show these keys"], ["g s", "go to sessions"], ["g p", "go to pictures"], ["g t", "go to trials"], ["g h", "go to shares"], ["g e", "go to settings"], ["Esc", "close what is open"]]],
  ["Sessions", [["/", "search"], ["n", "new session"], ["j, k", "next, previous session"], ["Enter", "open the session"]]],
  ["A session", [["i", "write a prompt"], ["j, k", "next, previous message"], ["o", "open or close all calls"], ["c", "show what changed"],
    ["u", "undo the last prompt"], ["r", "redo"], ["y", "allow once, when asked"], ["Esc Esc", "stop the agent"]]],
  ["The prompt", [["Enter", "send (on a phone: new line)"], ["Shift+Enter", "new line"], ["Ctrl+Enter", "send, also on a phone"],
    ["@", "name a file or an agent"], ["/", "name a command"], ["!", "run a shell command"], ["↑", "the last prompt, if nothing is written"]]],
];

/** Call functions for keys until the returned function is called. Keys typed into a field do not count, except Escape. */
export function bindKeys(keys) {
  let first = "", at = 0;
  function onKey(event) {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.defaultPrevented || event.metaKey || event.altKey || event.ctrlKey) return;
    if ((typing && event.key !== "Escape") || document.querySelector("dialog[open]")) return;
    const pair = event.timeStamp - at < 1000 && first ? `${first} ${event.key}` : "";
    const run = keys[pair] ?? keys[event.key];
    [first, at] = [event.key, event.timeStamp];
    if (!run) return;
    if (keys[pair]) first = "";
    event.preventDefault();
    run(event);
  }
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

export function KeyList({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <div class="keys">${KEYS.map(([where, rows]) => html`<section key=${where}><h3>${where}</h3>
      <dl>${rows.map(([key, what]) => html`<div key=${key}><dt>${key.split(" ").map((each) => (/^[,→]$/.test(each) ? each : html`<kbd>${each}</kbd> `))}</dt><dd>${what}</dd></div>`)}</dl>
    </section>`)}</div>
  <//>`;
}
