"use strict";
(() => {
  const PAGE = 100;
  const sites = JSON.parse(document.getElementById("data").textContent);
  const [PATH, LINE, FUNCTION, KIND, EXCEPTION, MESSAGE, TODAY, AFTER, BOUNDARIES, DECISION, BY, PRINT, ECHO, GUESS, NEAREST] = [...Array(15).keys()];
  const $ = (id) => document.getElementById(id);
  const body = document.querySelector("#queue tbody");
  let shown = PAGE;
  let file = "";

  const make = (name, text, className) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  for (const status of [...new Set(sites.flatMap((site) => site[TODAY]))].sort()) {
    $("today").append(new Option(`${status} today`, status));
  }

  const matches = (site) => {
    const text = $("text").value.trim().toLowerCase();
    const state = $("state").value;
    return (!file || site[PATH] === file) &&
      (!text || [PATH, FUNCTION, EXCEPTION, MESSAGE, PRINT, DECISION].some((k) => String(site[k]).toLowerCase().includes(text))) &&
      (!state || (state === "open" ? !site[DECISION] : site[BY].startsWith(state))) &&
      (!$("kind").value || site[KIND] === $("kind").value) &&
      (!$("boundary").value || $("boundary").value in site[BOUNDARIES]) &&
      (!$("today").value || site[TODAY].includes(Number($("today").value))) &&
      (!$("certain").checked || !site[GUESS]);
  };

  const details = (site) => {
    const cell = make("td");
    cell.colSpan = 6;
    if (site[NEAREST]) {
      const [name, steps, clauses, outcome, guesses] = site[NEAREST];
      cell.append(make("div", `Nearest boundary: ${name}. Today: ${outcome}.`));
      for (const clause of clauses) cell.append(make("div", `On the way: ${clause}`, "where"));
      const list = make("ol", undefined, "steps");
      for (const step of steps) list.append(make("li", step));
      cell.append(list);
      if (guesses.length) cell.append(make("div", `Guessed: ${guesses.join("; ")}.`, "guess"));
    }
    if (site[ECHO].length) cell.append(make("div", `Its text holds values: ${site[ECHO].join(", ")}.`));
    cell.append(make("div", `Fingerprint ${site[PRINT]}`, "where"));
    const row = make("tr", undefined, "more");
    row.append(cell);
    return row;
  };

  const row = (site) => {
    const tr = make("tr", undefined, "site");
    const place = make("td");
    place.append(make("span", `${site[PATH]}:${site[LINE]}`, "where"), make("span", ` ${site[FUNCTION]}`), make("span", site[MESSAGE], "message"));
    const reached = Object.entries(site[BOUNDARIES]).map(([kind, number]) => `${number} ${kind}`).join(", ") || "–";
    tr.append(
      place, make("td", `${site[KIND] === "raise" ? "" : site[KIND] + " "}${site[EXCEPTION]}`), make("td", site[TODAY].join(", ") || "–"),
      make("td", site[AFTER] ?? "–"), make("td", reached, site[GUESS] ? "guess" : ""),
      make("td", site[DECISION] ? `${site[DECISION]} (${site[BY]})` : "open", site[DECISION] ? "decided" : "open"));
    tr.tabIndex = 0;
    tr.setAttribute("aria-expanded", "false");
    const toggle = () => {
      const expanded = tr.getAttribute("aria-expanded") === "true";
      tr.setAttribute("aria-expanded", String(!expanded));
      if (expanded) tr.nextSibling.remove(); else tr.after(details(site));
    };
    tr.addEventListener("click", toggle);
    tr.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } });
    return tr;
  };

  const draw = () => {
    const found = sites.filter(matches);
    body.replaceChildren(...found.slice(0, shown).map(row));
    $("count").textContent = `${found.length} of ${sites.length}${file ? ` in ${file}` : ""}`;
    $("more").hidden = found.length <= shown;
    for (const box of document.querySelectorAll(".file")) box.classList.toggle("chosen", box.dataset.path === file);
  };
  const again = () => { shown = PAGE; draw(); };
  const choose = (box) => { file = file === box.dataset.path ? "" : box.dataset.path; again(); };
  $("filters").addEventListener("input", again);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => { file = ""; setTimeout(again); });
  $("more").addEventListener("click", () => { shown += PAGE; draw(); });
  for (const box of document.querySelectorAll(".file")) {
    box.addEventListener("click", () => choose(box));
    box.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(box); } });
  }
  draw();
})();
