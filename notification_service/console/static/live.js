// Keeps an open page fresh: when the service has something new, the page fetches itself and replaces its main part. It also adds
// what only a browser knows: how old the page is, the reader's time beside UTC, and buttons that copy ids.
"use strict";
(() => {
  const main = document.querySelector("main");
  const bar = document.querySelector("[data-live]");
  const durationOf = (ms) => {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
    if (days) return `${days} d ${hours} h`;
    if (hours) return `${hours} h ${minutes} min`;
    return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
  };

  // The server's clock counts, as the page has it; the reader's may be wrong.
  const asOf = document.querySelector("[data-as-of]");
  let loaded = performance.now();
  const age = () => performance.now() - loaded;
  const now = () => Number(asOf.dataset.asOf) + age();

  // The reader's time stands beside that of the server, with its day where that is another one.
  const localOf = (at) => {
    const text = (options) => new Intl.DateTimeFormat("en-GB", options).format(at);
    const [there, here] = ["UTC", undefined].map((zone) => text({ timeZone: zone, day: "numeric", month: "short" }));
    const time = text({ hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
    return there === here ? time : `${here}, ${time}`;
  };
  const addLocal = (within) => {
    for (const each of within.querySelectorAll("time[datetime]")) {
      const at = new Date(each.dateTime);
      if (Number.isNaN(at.getTime()) || at.getTimezoneOffset() === 0) continue;
      if ("age" in each.dataset) {
        each.title += ` (${localOf(at)})`;
        continue;
      }
      const local = document.createElement("span");
      local.className = "local";
      local.textContent = localOf(at);
      each.after(" ", local);
    }
    for (const each of within.querySelectorAll("title[data-at]")) {
      const at = new Date(Number(each.dataset.at));
      if (at.getTimezoneOffset() !== 0) each.textContent += ` (${localOf(at)})`;
    }
  };

  // An id can be copied where the browser allows it: over https, and on this machine.
  const addCopies = (within) => {
    if (!navigator.clipboard) return;
    for (const each of within.querySelectorAll("[data-copy]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.dataset.script = "";
      button.setAttribute("aria-label", `Copy ${each.dataset.copy}`);
      button.title = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(each.dataset.copy);
        button.title = "Copied";
        button.classList.add("done");
        setTimeout(() => button.classList.remove("done"), 2000);
      });
      each.append(button);
    }
  };
  // On a phone a row of a table is a card, in which each cell has the name of its column.
  const addNames = (within) => {
    for (const table of within.querySelectorAll("main table")) {
      const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((each) => each.textContent.replace(/[▲▼]/, "").trim());
      table.classList.add("labelled");
      for (const cell of table.querySelectorAll("tbody td")) {
        if (cell.colSpan === 1 && !cell.dataset.name && names[cell.cellIndex]) cell.dataset.name = names[cell.cellIndex];
      }
    }
  };
  // A table that is whole on its page can be sorted by each column; lists with pages are sorted by the server.
  const sorts = new Map();
  const nameOfTable = (table) => table.closest("[aria-labelledby]")?.getAttribute("aria-labelledby");
  const SECONDS = { d: 86400, h: 3600, min: 60, s: 1 };
  const numberOf = (text) => {
    if (/^(\d+ (d|h|min|s)( |$))+/.test(text)) {
      return [...text.matchAll(/(\d+) (d|h|min|s)\b/g)].reduce((sum, [, count, unit]) => sum + count * SECONDS[unit], 0);
    }
    return /^-?[\d,.]+$/.test(text) ? Number(text.replaceAll(",", "")) : Infinity;
  };
  const valueOf = (cell) => {
    const time = cell.querySelector("time[datetime]");
    const text = cell.textContent.trim();
    return { text, number: time ? Date.parse(time.dateTime) : numberOf(text) };
  };
  const compare = (one, other) =>
    one.number === other.number ? one.text.localeCompare(other.text, "en", { numeric: true }) : one.number - other.number;
  const sort = (table) => {
    const by = sorts.get(nameOfTable(table));
    if (!by) return;
    const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[by.column]), row]);
    rows.sort(([one], [other]) => (by.isDown ? -1 : 1) * compare(one, other));
    table.tBodies[0].replaceChildren(...rows.map(([, row]) => row));
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    table.tHead.rows[0].cells[by.column].setAttribute("aria-sort", by.isDown ? "descending" : "ascending");
  };
  const addSorts = (within) => {
    for (const table of within.querySelectorAll("main table")) {
      const [names, rows] = [[...(table.tHead?.rows[0]?.cells ?? [])], [...(table.tBodies[0]?.rows ?? [])]];
      const isWhole = nameOfTable(table) && !("part" in table.dataset) && !table.closest("section")?.querySelector(".paging");
      if (!isWhole || rows.length < 2 || rows.some((row) => row.cells.length !== names.length)) continue;
      for (const [column, name] of names.entries()) {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.dataset.script = "";
        button.append(...name.childNodes);
        button.addEventListener("click", () => {
          const before = sorts.get(nameOfTable(table));
          sorts.set(nameOfTable(table), { column, isDown: before?.column === column && !before.isDown });
          sort(table);
        });
        name.append(button);
      }
      sort(table);
    }
  };
  const add = (within) => {
    addNames(within);
    addSorts(within);
    addLocal(within);
    addCopies(within);
  };
  const tickAges = () => {
    for (const each of document.querySelectorAll("time[data-age]")) {
      const text = durationOf(now() - Date.parse(each.dateTime));
      if (each.textContent !== text) each.textContent = text;
    }
  };
  add(document);
  document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  const isStill = !("EventSource" in window) || document.querySelector("[data-still]") !== null;
  if (isStill) return;

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
    return fields.some((field) => field === at || isChanged(field)) || (selected && !selected.isCollapsed);
  };

  // What identifies a link, a button or a part that scrolls on its page. Few have an id.
  const nameOf = (each) => {
    const name = each.getAttribute("href") ?? each.getAttribute("aria-label") ?? each.getAttribute("aria-labelledby");
    return [each.id, each.localName, name ?? each.textContent, each.form?.action, each.value].join();
  };
  // The row under the mouse stays there: who is about to click it clicks no other one.
  let mouse = null;
  document.addEventListener("pointermove", (event) => {
    mouse = event.pointerType === "mouse" ? [event.clientX, event.clientY] : null;
  });
  document.documentElement.addEventListener("pointerleave", () => (mouse = null));
  const nameOfRow = (row) => row.querySelector("a[href]")?.getAttribute("href") ?? row.cells[0]?.textContent;
  const rowUnderMouse = () => {
    const row = mouse && document.elementFromPoint(...mouse)?.closest("main tbody tr");
    return row ? { name: nameOfRow(row), top: row.getBoundingClientRect().top } : null;
  };
  const keepRow = (row) => {
    if (row === null) return;
    const same = [...main.querySelectorAll("tbody tr")].find((each) => nameOfRow(each) === row.name);
    if (same) window.scrollBy({ top: same.getBoundingClientRect().top - row.top, behavior: "instant" });
  };
  const scrolled = () => [...main.querySelectorAll(".scroll, pre")].map((each) => [each.scrollLeft, each.scrollTop]);

  // A page that is expensive to make is fetched more rarely, and never twice at once: after a pause of 20 times as long as the
  // answer took, but of 5 seconds at most, or twice as long as the answer took.
  const PAUSE_MS = 5000;
  let isFetching = false;
  let isPaused = false;
  let isWanted = false;
  let notBefore = 0;
  let problem = "";
  const refresh = () => {
    isWanted = true;
    attempt();
  };
  const attempt = async () => {
    if (!isWanted || isPaused || isFetching || document.hidden || isBusy() || performance.now() < notBefore) return;
    isFetching = true;
    isWanted = false;
    const begun = performance.now();
    try {
      problem = await replace(begun);
    } catch {
      problem = "The console does not answer";
    } finally {
      isFetching = false;
      const took = performance.now() - begun;
      notBefore = performance.now() + Math.min(20 * took, Math.max(PAUSE_MS, 2 * took));
      if (problem) isWanted = true;
      tick();
    }
  };
  const replace = async (begun) => {
    const answer = await fetch(location.href, { headers: { "X-Refresh": "1" } });
    if (!answer.ok) return `The console answers ${answer.status}`;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const freshMain = fresh.querySelector("main");
    const freshAsOf = fresh.querySelector("[data-as-of]");
    if (!freshMain || !freshAsOf) return "The console answers with another page; load this one again";
    if (isBusy() || isPaused) {
      isWanted = true; // Asked last: a person may begin while the answer is read.
      return "";
    }
    add(fresh);
    const open = new Set([...document.querySelectorAll("main details[open]")].map((each) => each.id));
    const focused = main.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    const [row, places] = [rowUnderMouse(), scrolled()];
    for (const each of freshMain.querySelectorAll("details")) if (open.has(each.id)) each.open = true;
    main.replaceChildren(...freshMain.childNodes);
    asOf.replaceChildren(...freshAsOf.childNodes);
    asOf.dataset.asOf = freshAsOf.dataset.asOf;
    loaded = begun;
    main.querySelectorAll(".scroll, pre").forEach((each, number) => places[number] && each.scrollTo(...places[number]));
    keepRow(row);
    if (focused === null) return "";
    const same = [...document.querySelectorAll("main *")].find((each) => each.tabIndex >= 0 && nameOf(each) === focused);
    same?.focus({ preventScroll: true });
    return "";
  };

  // The bar says how old the page is, and why it is not newer.
  const status = bar.querySelector("p");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "second";
  button.dataset.script = "";
  button.textContent = "Pause updates";
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Continue updates" : "Pause updates";
    if (!isPaused) refresh();
    tick();
  });
  bar.append(button);
  bar.hidden = false;
  const reason = () => {
    const wait = Math.ceil((notBefore - performance.now()) / 1000);
    if (isPaused) return "updates are paused";
    if (isBusy()) return "updates wait while you fill in a form or select text";
    if (problem) return problem;
    return isWanted && wait > 1 ? `the last answer was slow; the next update follows in ${wait} s` : "";
  };
  const tick = () => {
    const text = [`This page is ${durationOf(age())} old`, reason()].filter(Boolean).join("; ");
    if (status.textContent !== text) status.textContent = text;
    bar.classList.toggle("problem", problem !== "");
    tickAges();
    attempt();
  };
  setInterval(tick, 1000);
  tick();

  // A group that is through is shown so at once: the rest of its row follows with the page.
  const complete = ({ group, total, missing }) => {
    const row = document.querySelector(`[data-group="${CSS.escape(group)}"]`);
    if (!row || missing || isPaused) return;
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
