// SPDX-License-Identifier: MIT
// Keep a page of the console alive: load it again each half minute while it is seen, each two seconds while a worker
// is asked, and put in what has changed. What is being filled in, chosen or unfolded stays as it is, and so does a
// refusal. What a form is about is never changed under who reads it.
"use strict";
const EVERY_MS = 30000, WAITING_MS = 2000;
const main = document.getElementById("main");
const note = document.createElement("p");
note.className = "legend";
note.setAttribute("role", "status");
let isTouched = false;
let seen = new Date();
document.addEventListener("input", () => { isTouched = true; });

const isBusy = () => isTouched || document.hidden || !document.getSelection().isCollapsed
  || main.querySelector(".refused") || main.contains(document.activeElement?.closest("form"));
const shown = (root) => [...root.querySelectorAll("[name=shown]")].map((each) => each.value).join();
const say = (text) => { note.textContent = text; main.prepend(note); };
const opened = (root) => [...root.querySelectorAll("details")];
const focusable = (root) => [...root.querySelectorAll("a, summary, [tabindex]")];

async function renew() {
  if (isBusy() || main.querySelector("table.figures") && !main.querySelector(".waiting")) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store", credentials: "same-origin" });
    if (answer.redirected) { location.reload(); return; }
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (!fresh || isBusy()) return;
    // What a worker has left may come with a script of its own, which has changed the page.
    if (main.querySelector(".waiting") && !fresh.querySelector(".waiting")) { location.reload(); return; }
    if (shown(fresh) !== shown(main)) { say("This has changed since the page was loaded: load it again."); return; }
    opened(main).forEach((each, at) => { if (each.open && opened(fresh)[at]) opened(fresh)[at].open = true; });
    const place = focusable(main).indexOf(document.activeElement);
    main.replaceChildren(...fresh.childNodes);
    focusable(main)[place]?.focus({ preventScroll: true });
    document.title = page.title;
  } catch {
    say(`Not renewed: the console does not answer. This is of ${seen.toLocaleTimeString()}.`);
    return;
  }
  seen = new Date();
}
if (document.querySelector("header.console")) {
  const again = () => setTimeout(() => renew().then(again), main.querySelector(".waiting") ? WAITING_MS : EVERY_MS);
  again();
  document.addEventListener("visibilitychange", renew);
}
