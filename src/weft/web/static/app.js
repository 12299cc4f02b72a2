// The page: login, the frame around the screens, the theme, and the keys that work everywhere.
import { html, render, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { checkLogin, logIn, logOut, tabs, whenLoggedOut } from "./api.js";
import { KeyList, bindKeys } from "./keys.js";
import { navigate, useRoute } from "./router.js";
import { SessionScreen } from "./session.js";
import { SessionsScreen } from "./sessions.js";
import { Announcer, Notice } from "./parts.js";
import { state, stream, useTopic } from "./store.js";

// A screen is loaded when it is first opened.
const SCREENS = {
  sessions: { name: "Sessions", address: "/", load: async () => SessionsScreen },
  pictures: { name: "Pictures", address: "/web/pictures", load: async () => (await import("./pictures.js")).PicturesScreen },
  trials: { name: "Trials", address: "/web/trials", load: async () => (await import("./trials.js")).TrialsScreen },
  shares: { name: "Shares", address: "/web/shares", load: async () => (await import("./shares.js")).SharesScreen },
  settings: { name: "Settings", address: "/web/settings", load: async () => (await import("./settings.js")).SettingsScreen },
  session: { load: async () => SessionScreen },
  blame: { load: async () => (await import("./look_back.js")).BlameScreen },
};

const ICON = new URL("icon.svg", import.meta.url).pathname;
const THEMES = ["system", "light", "dark"];

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("weft-theme", theme);
}
applyTheme(localStorage.getItem("weft-theme") ?? "system");

function App() {
  const [login, setLogin] = useState({ ready: false });
  useEffect(() => {
    whenLoggedOut(() => (stream.stop(), setLogin({ ready: true, ok: false })));
    const check = () => checkLogin().then(
      (ok) => setLogin({ ready: true, ok }),
      (error) => setLogin({ ready: true, ok: false, error: error.message }),
    );
    tabs.addEventListener("message", ({ data }) => data === "logged in" && check());
    check();
  }, []);
  useEffect(() => {
    if (login.ok) stream.start();
  }, [login.ok]);
  if (!login.ready) return html`<p class="boot">Loading …</p>`;
  if (!login.ok) return html`<${Login} error=${login.error} onLogin=${() => setLogin({ ready: true, ok: true })} />`;
  return html`<${Frame} />`;
}

function Login({ error, onLogin }) {
  const [problem, setProblem] = useState(error ?? "");
  const [busy, setBusy] = useState(false);
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn(new FormData(event.target).get("password"));
      onLogin();
    } catch (failure) {
      setProblem(failure.message);
    }
    setBusy(false);
  }
  return html`<main class="login">
    <h1><span class="brand">weft</span></h1>
    <form onSubmit=${submit}>
      <p>Run <code>weft web</code> for a link that logs this browser in, or enter the password of the server.</p>
      <label for="password">Password</label>
      <input id="password" name="password" type="password" autocomplete="current-password" required autofocus />
      ${problem && html`<p class="failed" role="alert">${problem}</p>`}
      <button class="primary" disabled=${busy}>Log in</button>
    </form>
  </main>`;
}

function Frame() {
  const route = useRoute();
  const [keysOpen, setKeysOpen] = useState(false);
  const [screen, setScreen] = useState(null);
  const main = useRef(null);
  useEffect(() => bindKeys({ "?": () => setKeysOpen(true), "g s": () => navigate("/"), "g p": () => navigate("/web/pictures"),
    "g t": () => navigate("/web/trials"),
    "g h": () => navigate("/web/shares"), "g e": () => navigate("/web/settings") }), []);
  useEffect(() => {
    let current = true;
    (SCREENS[route.screen] ?? SCREENS.sessions).load().then(
      (Screen) => current && setScreen({ name: route.screen, Screen }),
      () => current && setScreen({ name: route.screen, Screen: Missing }),
    );
    return () => (current = false);
  }, [route.screen]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>Skip to content</a>
    <${TopBar} route=${route} onKeys=${() => setKeysOpen(true)} />
    <${ConnectionNotice} />
    <main id="main" tabindex="-1" ref=${main} class=${`screen-${route.screen}`}>
      ${screen?.name === route.screen && html`<${screen.Screen} key=${route.screen + route.id} id=${route.id} query=${route.query} />`}
    </main>
    <${Announcer} />
    ${keysOpen && html`<${KeyList} onClose=${() => setKeysOpen(false)} />`}
  `;
}

function Missing() {
  return html`<div class="empty"><h1>There is no such screen</h1><p><a href="/">All sessions</a></p></div>`;
}

function TopBar({ route, onKeys }) {
  useTopic("requests");
  const waiting = state.permissions.size + state.questions.size;
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${state.title ?? "weft"}`;
  });
  return html`<header class="top">
    <a class="brand" href="/" aria-label="weft: all sessions"><img src=${ICON} alt="" width="22" height="22" />weft</a>
    <nav aria-label="Screens">
      <ul>
        ${Object.entries(SCREENS).filter(([, each]) => each.name).map(([key, each]) => html`<li key=${key}>
          <a href=${each.address} aria-current=${route.screen === key ? "page" : undefined}>${each.name}</a></li>`)}
      </ul>
    </nav>
    <span class="grow"></span>
    <${Waiting} />
    <${ThemeButton} />
    <button type="button" class="quiet" onClick=${onKeys} aria-label="Keys" title="Keys (?)">?</button>
    <button type="button" class="quiet wide-only" onClick=${() => logOut().then(() => location.assign("/"))}>Log out</button>
  </header>`;
}

/** Says in every screen that an agent waits for a person. */
function Waiting() {
  useTopic("requests");
  const request = [...state.permissions.values(), ...state.questions.values()].find((each) => !location.pathname.endsWith(each.sessionID));
  return request ? html`<a class="badge waiting" href=${`/web/session/${request.sessionID}`}>An agent needs you</a>` : null;
}

function ThemeButton() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  return html`<button type="button" class="quiet" title=${`Theme: ${theme}`} aria-label=${`Theme: ${theme}. Change to ${next}`}
    onClick=${() => (applyTheme(next), setTheme(next))}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}</button>`;
}

function ConnectionNotice() {
  useTopic("connection");
  return state.connection === "lost" ? html`<${Notice} kind="warning">The connection to the server was lost. Trying again …<//>` : null;
}

render(html`<${App} />`, document.getElementById("app"));
