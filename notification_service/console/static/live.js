// Keeps an open page fresh: when the service has something new, the page fetches itself and replaces its main part.
"use strict";
(() => {
  if (!("EventSource" in window) || document.querySelector("[data-still]")) return;
  const isChanged = (field) => {
    if (field.matches("select")) {
      const before = [...field.options].findLast((option) => option.defaultSelected) ?? field.options[0];
      return field.selectedOptions[0] !== before;
    }
    return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  };
  // Replacing the main part would take away what a person has typed, chosen or marked and has not sent yet.
  const isBusy = () => {
    const at = document.activeElement;
    const selected = window.getSelection();
    const fields = [...document.querySelectorAll("main input, main textarea, main select")];
    return document.hidden || fields.some((field) => field === at || isChanged(field)) || (selected && !selected.isCollapsed);
  };
  // What identifies a link or a button on its page. Few have an id.
  const nameOf = (each) => [each.id, each.localName, each.getAttribute("href") ?? each.textContent, each.form?.action, each.value].join();
  // A page that is expensive to make is fetched more rarely, and never twice at once.
  let isFetching = false;
  let notBefore = 0;
  const refresh = async () => {
    if (isBusy() || isFetching || performance.now() < notBefore) return;
    isFetching = true;
    const begun = performance.now();
    try {
      await replace();
    } finally {
      isFetching = false;
      notBefore = performance.now() + 20 * (performance.now() - begun);
    }
  };
  const replace = async () => {
    const answer = await fetch(location.href, { headers: { "X-Refresh": "1" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (isBusy()) return; // Asked last: a person may begin while the answer is read.
    const open = new Set([...document.querySelectorAll("main details[open]")].map((each) => each.id));
    const focused = document.querySelector("main").contains(document.activeElement) ? nameOf(document.activeElement) : null;
    for (const each of fresh.querySelectorAll("main details")) if (open.has(each.id)) each.open = true;
    document.querySelector("main").replaceChildren(...fresh.querySelector("main").childNodes);
    document.querySelector("[data-as-of]").textContent = fresh.querySelector("[data-as-of]").textContent;
    if (focused === null) return;
    const same = [...document.querySelectorAll("main *")].find((each) => each.tabIndex >= 0 && nameOf(each) === focused);
    same?.focus({ preventScroll: true });
  };
  // A group that is through is shown so at once: the rest of its row follows with the page.
  const complete = ({ group, total, missing }) => {
    const row = document.querySelector(`[data-group="${CSS.escape(group)}"]`);
    if (!row || missing) return;
    row.querySelector(".badge").className = "badge ok";
    row.querySelector(".badge").textContent = "complete";
    const final = row.querySelector(".final strong");
    if (total !== null) final.textContent = total;
  };
  // Browsers allow few connections to one host: a hidden page gives its own up.
  let events = null;
  const follow = () => {
    if (document.hidden) {
      events?.close();
      events = null;
    } else if (!events) {
      events = new EventSource(document.querySelector("[data-events]")?.dataset.events ?? "/events");
      for (const name of ["changed", "progress", "problem"]) events.addEventListener(name, refresh);
      events.addEventListener("completed", (event) => {
        complete(JSON.parse(event.data));
        refresh();
      });
    }
  };
  document.addEventListener("visibilitychange", follow);
  follow();
})();
