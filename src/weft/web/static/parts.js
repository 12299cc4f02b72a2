// Pieces that several screens use.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { state, useTopic } from "./store.js";
import { toNodes } from "./trust.js";

/** A dialog of the browser's own: it keeps the focus, closes with Escape, and gives the focus back. */
export function Dialog({ title, onClose, children, wide = false, actions }) {
  const dialog = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${dialog} class=${wide ? "wide" : ""} aria-labelledby="dialog-title"
    onCancel=${(event) => (event.preventDefault(), onClose())} onClick=${(event) => event.target === dialog.current && onClose()}>
    <div class="dialog">
      <header><h2 id="dialog-title">${title}</h2><button type="button" class="quiet" aria-label="Close" onClick=${onClose}>✕</button></header>
      <div class="dialog-body" tabindex="0" role="group" aria-labelledby="dialog-title">${children}</div>
      ${actions && html`<footer>${actions}</footer>`}
    </div>
  </dialog>`;
}

export function Notice({ kind = "info", children, onClose }) {
  return html`<div class=${`notice ${kind}`} role=${kind === "info" ? "status" : "alert"}><span>${children}</span>
    ${onClose && html`<button type="button" class="quiet small" aria-label="Close this notice" onClick=${onClose}>✕</button>`}</div>`;
}

/** HTML of the server. It is put in place once, and again only if it differs. */
export function ServerHtml({ source, class: name = "" }) {
  const place = useRef(null);
  useEffect(() => place.current.replaceChildren(toNodes(source)), [source]);
  return html`<div ref=${place} class=${name}></div>`;
}

/** Reads out blocks that have ended, not words that arrive. */
export function Announcer() {
  const place = useRef(null);
  useTopic("announcement");
  useEffect(() => {
    const said = state.announcements.splice(0).map((words) => (Array.isArray(words) ? toNodes(words.join("\n")).textContent : words));
    if (said.length) place.current.textContent = said.join("\n").slice(0, 2000);
  });
  return html`<div class="unseen" role="status" aria-live="polite" ref=${place}></div>`;
}

/** Load something, and show that it is being loaded or why it could not be. */
export function useLoaded(load, dependencies) {
  const [result, setResult] = useState({ loading: true });
  const [count, again] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setResult({ value }),
      (error) => current && setResult({ error: error.message }),
    );
    return () => (current = false);
  }, [...dependencies, count]);
  return { ...result, reload: () => again((n) => n + 1) };
}

export function Loaded({ of, children }) {
  if (of.error) return html`<${Notice} kind="error">${of.error} <button type="button" class="small" onClick=${of.reload}>Try again</button><//>`;
  if (of.value === undefined) return html`<p class="about" role="status">Loading …</p>`;
  return children(of.value);
}

/** A button that opens a short list of actions. */
export function Menu({ label, title, items, children = "⋯" }) {
  const place = useRef(null);
  return html`<details class="menu" ref=${place} onKeyDown=${(event) => {
      if (event.key === "Escape" && place.current.open) {
        place.current.open = false;
        place.current.querySelector("summary").focus();
        event.stopPropagation();
      }
    }} onFocusOut=${(event) => !place.current.contains(event.relatedTarget) && event.relatedTarget && (place.current.open = false)}>
    <summary class="quiet button" aria-label=${label} title=${title ?? label}>${children}</summary>
    <ul>${items.filter(Boolean).map(([name, run, danger]) => html`<li key=${name} class=${danger ? "apart" : ""}>
      <button type="button" class=${danger ? "danger" : ""} onClick=${() => ((place.current.open = false), run())}>${name}</button></li>`)}</ul>
  </details>`;
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});

/** Save text as a file. */
export function saveFile(name, text, type = "application/json") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
